"""Exact and estimating counters accept any text."""

import random
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import ThresherError
from thresher.tokens import get_counter
from thresher.tokens.counter import CounterError
from thresher.tokens.estimate import CLASSES, estimate_text

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)

PROSE = "The quick brown fox jumps over the lazy dog, and nobody in the whole village asks why it does so. " * 5
CODE = (
    'def total(rows: list[Row]) -> int:\n    """Sum them."""\n    return sum(row.price * row.count for row in rows)\n'
    * 5
)
JSON = (
    '[{"id":17,"name":"item_4","price":3.25,"tags":["red","new"]},{"id":18,"name":"item_9","price":7.5,"tags":[]}]' * 4
)
RUSSIAN = "Сервер вернул ошибку, потому что срок действия токена истёк. " * 5
JAPANESE = "まず設定ファイルを読み込んで、各項目が正しいかどうかを確認します。" * 5
HEX = random.Random(1).randbytes(300).hex()


@pytest.fixture
def _without_splintr(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "splintr", None)
    get_counter.cache_clear()
    yield
    get_counter.cache_clear()


@given(ANY_TEXT)
def test_the_estimator_accepts_any_text(text: str) -> None:
    assert estimate_text(text) >= (1 if text else 0)


@given(ANY_TEXT)
def test_the_exact_counter_accepts_any_text(text: str) -> None:
    pytest.importorskip("splintr")
    assert 0 < get_counter("exact")(text) <= 4 * len(text) if text else get_counter("exact")(text) == 0


def test_no_byte_is_in_two_classes() -> None:
    members = b"".join(CLASSES.values())
    assert len(members) == len(set(members))


@pytest.mark.parametrize("text", [PROSE, CODE, JSON, RUSSIAN, JAPANESE, HEX], ids=lambda text: text[:8])
def test_the_estimate_is_near_the_exact_count(text: str) -> None:
    pytest.importorskip("splintr")
    assert estimate_text(text) == pytest.approx(get_counter("exact")(text), rel=0.25)


def test_known_counts() -> None:
    pytest.importorskip("splintr")
    assert get_counter("o200k_base")("hello world") == 2
    assert get_counter("cl100k_base")("hello world") == 2


def test_the_text_of_a_control_token_is_plain_text() -> None:
    pytest.importorskip("splintr")
    assert get_counter("exact")("<|endoftext|>") > 1


def test_surrogate_pairs_count_as_the_character() -> None:
    pytest.importorskip("splintr")
    assert get_counter("exact")("\ud83d\ude00") == get_counter("exact")("😀")
    assert get_counter("exact")("a\ud800b") == get_counter("exact")("a\ufffdb")


@pytest.mark.parametrize("letter", ["a", " ", "\n", "-", "é", "中"])
def test_a_megabyte_of_one_letter_is_counted_in_proportion(letter: str) -> None:
    pytest.importorskip("splintr")
    short, long = get_counter("exact")(letter * 10_000), get_counter("exact")(letter * 1_000_000)
    assert long == pytest.approx(100 * short, rel=0.02)


def test_auto_selects_the_best_installed_counter() -> None:
    pytest.importorskip("splintr")
    assert get_counter().name == get_counter("exact").name == "o200k_base"
    assert get_counter("estimate").name == "estimate"


@pytest.mark.usefixtures("_without_splintr")
def test_without_the_extra_auto_estimates_and_exact_is_an_error() -> None:
    assert get_counter().name == "estimate"
    with pytest.raises(CounterError, match=r"thresher\[exact\]"):
        get_counter("exact")


def test_an_unknown_counter_is_an_error() -> None:
    with pytest.raises(ThresherError, match="no-such-vocabulary"):
        get_counter("no-such-vocabulary")
