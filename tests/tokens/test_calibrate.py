"""Calibration fits a line to the reported usage, and changes nothing without evidence."""

from pathlib import Path

import pytest
from msgspec import structs

import thresher
from thresher.model import History, Message, Session, Text, Usage
from thresher.tokens import Calibration, TokenWeights, calibrate, default_token_weights, get_counter
from thresher.tokens.calibrate import MIN_TURNS

SCALE = TokenWeights(get_counter("estimate"))


def billed(turns: int, *, factor: float, base: int, odd: int = 0) -> History:
    """A history whose reported usage follows a line; every `odd`-th turn reports 5,000 tokens more."""
    messages: list[Message] = []
    counted = 0
    for turn in range(turns):
        question = Message("user", (Text(f"question {turn} " + "about the weather in the mountains " * 120),))
        counted += SCALE.message(question)
        bill = Usage(input=base + round(factor * counted) + (5000 if odd and turn % odd == 1 else 0))
        answer = Message("assistant", (Text(f"answer {turn} " + "with some rain " * 60),), author="model", usage=bill)
        counted += SCALE.message(answer)
        messages += [question, answer]
    return History(tuple(messages))


@pytest.mark.parametrize(("factor", "base"), [(1.0, 0), (1.11, 18_000), (1.45, 40_000), (0.9, 500)])
def test_the_line_is_fitted(factor: float, base: int) -> None:
    found = calibrate(billed(30, factor=factor, base=base), SCALE)
    assert found.factor == pytest.approx(factor, rel=0.01)
    assert found.base == pytest.approx(base, abs=60)
    assert found.turns == 30
    assert found.error < 0.005


def test_odd_turns_do_not_distort_it() -> None:
    assert calibrate(billed(40, factor=1.2, base=9000, odd=5), SCALE).factor == pytest.approx(1.2, rel=0.05)


def test_the_segments_of_a_session_share_one_slope() -> None:
    segments = (billed(12, factor=1.3, base=7000), billed(9, factor=1.3, base=7000))
    found = calibrate(Session("x", "1", "f", segments=segments), SCALE)
    assert found.turns == 21
    assert found.factor == pytest.approx(1.3, rel=0.01)


def test_usage_of_carried_messages_does_not_count() -> None:
    carried = tuple(structs.replace(message, carried=True) for message in billed(20, factor=2.5, base=90_000))
    history = billed(15, factor=1.2, base=3000)
    found = calibrate(History((*carried, *history.messages)), SCALE)
    assert found.turns == 15
    assert found.factor == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize(
    "history",
    [
        History(),
        billed(MIN_TURNS - 1, factor=1.2, base=0),
        billed(30, factor=9.0, base=0),
        History((Message("user", (Text("hi"),)), Message("assistant", (Text("hi"),), usage=Usage()))),
    ],
    ids=["empty", "few turns", "no tokenizer's slope", "no bill"],
)
def test_without_evidence_nothing_changes(history: History) -> None:
    found = calibrate(history, SCALE)
    assert found == Calibration()
    assert found.scale(SCALE) == SCALE


def test_a_long_session_is_sampled() -> None:
    assert calibrate(billed(200, factor=1.1, base=100), SCALE).factor == pytest.approx(1.1, rel=0.01)


def test_calibrated_weights_match_the_usage() -> None:
    history = billed(30, factor=1.25, base=3000)
    scale = calibrate(history, SCALE).scale(SCALE)
    assert (scale.vendor, scale.counter.name) == (SCALE.vendor, SCALE.counter.name)
    assert calibrate(history, scale).factor == pytest.approx(1.0, rel=0.02)


def test_recorded_usage_agrees_with_the_model_catalog(shared_data: Path) -> None:
    pytest.importorskip("splintr")
    session = max(
        thresher.read_all(shared_data / "claude_code" / "entire-001.jsonl.gz"), key=lambda session: len(session.history)
    )
    found = calibrate(session, default_token_weights("claude-sonnet-4-5"))
    assert found.turns > 20
    assert found.factor == pytest.approx(1.0, rel=0.2)
    assert found.error < 0.05
