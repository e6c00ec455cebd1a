"""Truncation: at character boundaries, within limits, and JSON stays valid."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from thresher.edits import Elision, apply_elisions, elide_long_arguments, elide_to_limit, keep_head_and_tail
from thresher.edits.truncate import merge_elisions

pieces = st.sampled_from(("a", "word ", "\n", "é", "e\u0301", "😀", "👩‍💻", "🇨🇭", "漢", "\u200d", "👍🏽", "\ud83d"))
texts = st.lists(pieces, max_size=400).map("".join)
NOTE = 60


@given(text=texts, limit=st.integers(0, 400))
def test_truncated_text_is_within_the_limit_including_the_note(text: str, limit: int) -> None:
    after = apply_elisions(text, elide_to_limit(text, limit))
    assert after == text if len(text) <= limit else len(after) <= max(limit, NOTE, len(text))


@given(text=texts, head=st.integers(0, 200), tail=st.integers(0, 200))
def test_truncation_keeps_both_ends_and_splits_no_combined_character(text: str, head: int, tail: int) -> None:
    for gap in keep_head_and_tail(text, head, tail):
        assert gap.start <= head
        assert len(text) - gap.stop <= tail
        for edge in (gap.start, gap.stop):
            after = text[edge : edge + 1]
            assert not after or edge == 0 or not unicodedata.combining(after)
            assert after not in ("\u200d", "🏽")
            assert text[edge - 1 : edge] != "\u200d" or edge in (0, len(text))


@given(text=texts)
def test_truncated_text_is_not_truncated_again(text: str) -> None:
    once = apply_elisions(text, elide_to_limit(text, 120))
    assert elide_to_limit(once, 120) == ()


json_texts = st.recursive(
    st.none() | st.integers() | st.sampled_from(("x" * 400, '"\\\n' * 90, "😀" * 200, "\ud83d" * 150, "é" * 300, "")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "b" * 300)), inner, max_size=3),
    max_leaves=6,
)


@given(value=json_texts, ascii=st.booleans(), limit=st.integers(0, 300))
def test_truncated_arguments_are_json_with_the_same_keys(value: object, ascii: bool, limit: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    after = json.loads(apply_elisions(text, elide_long_arguments(text, limit)))
    assert keys(after) == keys(value)
    assert "\ufffd" not in json.dumps(after, ensure_ascii=False)


def keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: keys(inner) for key, inner in value.items()}
    return [keys(inner) for inner in value] if isinstance(value, list) else None


def test_overlapping_gaps_are_merged() -> None:
    text = "0123456789"
    both = merge_elisions((Elision(6, 9, "[cut]"), Elision(1, 3), Elision(2, 4), Elision(8, 10)))
    assert apply_elisions(text, both) == "045[cut]"
