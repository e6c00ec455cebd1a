"""The outcome of references when a request is reduced."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import agent, call, did, trace, user

import thresher as th
from thresher.edits import (
    Drop,
    Replace,
    Summarize,
    Truncate,
    apply,
    build_plan,
    elide_long_arguments,
    keep_head_and_tail,
)
from thresher.edits.edit import Edit
from thresher.model import History, Message, Occurrence, Place, part_text
from thresher.replay import CallResidency, ResidencyChecker, list_request_texts, trace_session
from thresher.store import InMemoryContentStore, compute_summary_id, exact_id
from thresher.tokens import default_token_weights

LINES = [f"value_{n} = compute(first_{n}, second_{n})  # a remark on number {n}" for n in range(60)]
NUMBERED = "".join(f"{n:6}→{line}\n" for n, line in enumerate(LINES, 1))
READ, BASH = (Place(1, 0), Place(2, 0)), (Place(3, 0), Place(4, 0))


def told(*last: Message) -> History:
    """Build a history that reads a file, does something else, and ends before the checked call."""
    return trace(
        user("go"),
        did("1", "Read", NUMBERED, file_path="f"),
        did("2", "Bash", "all is well\n" * 30, command="make"),
        agent("All is read."),
        user("now edit it"),
        list(last),
    ).history


def uses(*lines: int) -> History:
    """Build a history whose last call edits these lines of the file."""
    old = "\n".join(LINES[n] for n in lines)
    return told(*agent(call("Edit", "9", file_path="f", old_string=old, new_string="")))


def smaller(history: History, *edits: Edit) -> Sequence[Message]:
    """Return the request of the last call after these edits."""
    seen = History(history.messages[:-1])
    plan = build_plan(seen, edits, default_token_weights(counter="estimate"))
    assert not plan.refused
    return apply(seen, plan).messages


def judged(history: History, sent: Sequence[str], store: InMemoryContentStore | None = None) -> CallResidency:
    of = trace(list(history.messages))
    outcome = ResidencyChecker(of, store=store).check_call(len(of.calls) - 1, sent)
    assert outcome.references
    assert sorted(map(id, outcome.references)) == sorted(map(id, [*outcome.hits, *outcome.recoverable, *outcome.lost]))
    return outcome


def at(history: History, place: Place) -> Occurrence:
    return history.occurrence(place)


def test_complete_request_serves_its_call() -> None:
    history = uses(3, 50)
    outcome = judged(history, list_request_texts(history.messages[:-1]))
    assert outcome.is_served
    assert outcome.hits == outcome.references
    assert outcome.refetch_blocks == ()


def test_texts_may_contain_line_numbers_and_json() -> None:
    history = uses(3, 50)
    assert judged(history, [part_text(part) for message in history.messages[:-1] for part in message.parts]).is_served
    assert judged(history, [NUMBERED + "\nand a word more"]).is_served


def test_reference_without_its_block_and_call_is_lost() -> None:
    history = uses(3)
    outcome = judged(
        history, list_request_texts(smaller(history, *(Drop(at(history, place), "test", "") for place in READ)))
    )
    assert outcome.lost == outcome.references
    assert outcome.refetch_blocks == (2,)
    assert not outcome.is_served


def test_placeholder_makes_a_reference_recoverable() -> None:
    history = uses(3)
    sent = list_request_texts(smaller(history, Replace(at(history, READ[1]), "test", "")))
    assert judged(history, sent).recoverable
    without_call = [text for text in sent if not text.startswith("Read")]
    assert judged(history, without_call).lost == ()
    without_stub = [text for text in sent if "[thresher " not in text]
    assert judged(history, without_stub).lost == ()
    neither = [text for text in without_call if "[thresher " not in text]
    assert judged(history, neither).recoverable == ()


def test_placeholder_of_another_text_does_not() -> None:
    history = uses(3)
    gone = [Drop(at(history, place), "test", "") for place in READ]
    outcome = judged(history, list_request_texts(smaller(history, *gone, Replace(at(history, BASH[1]), "test", ""))))
    assert outcome.lost == outcome.references


@pytest.mark.parametrize(("line", "kept"), [(0, True), (59, True), (30, False)])
def test_truncated_text_contains_its_ends(line: int, kept: bool) -> None:
    history = uses(line)
    cut = Truncate(at(history, READ[1]), "test", "", keep_head_and_tail(NUMBERED, 300, 300))
    outcome = judged(history, list_request_texts(smaller(history, cut)))
    assert outcome.is_served is kept
    assert outcome.lost == ()


def test_truncation_inside_a_reference_removes_it() -> None:
    history = uses(3)
    middle = NUMBERED.index(LINES[3]) + 20
    outcome = judged(history, [NUMBERED[:middle] + "\n…\n" + NUMBERED[middle:]])
    assert [reference.kind for reference in outcome.lost] == ["E", "I"]
    assert [reference.text for reference in outcome.hits] == ["value_3", "second_3"]


def test_truncated_arguments_are_parsed_without_escapes() -> None:
    """The rest of a truncated argument is still JSON, and its lines are lines."""
    written = did("1", "Write", "ok", file_path="f", content="\n".join(LINES))
    of = trace(
        user("go"), written, agent("so"), user("on"), agent(call("Edit", "9", file_path="f", old_string=LINES[1]))
    )
    seen = History(of.history.messages[:-1])
    gaps = elide_long_arguments(part_text(seen.part(Place(1, 0))), 1000)
    plan = build_plan(
        seen, [Truncate(at(seen, Place(1, 0)), "test", "", gaps)], default_token_weights(counter="estimate")
    )
    sent = [part_text(part) for message in apply(seen, plan) for part in message.parts]
    assert "[thresher " in sent[1]
    assert ResidencyChecker(of).check_call(2, sent).is_served


def test_summary_counts_verbatim() -> None:
    history = uses(3)
    assert judged(history, ["We read the file.", f"It has: {LINES[3]}"]).is_served
    outcome = judged(history, ["It computes value_3 of first_3 and second_3."])
    assert [reference.kind for reference in outcome.lost] == ["E"]


def test_combined_placeholder_is_resolved_through_the_store() -> None:
    history = uses(3)
    parts = [history.part(place) for place in (*READ, *BASH)]
    fold = Summarize(tuple(at(history, place) for place in (*READ, *BASH)), "test", "", "some work was done")
    sent = list_request_texts(smaller(history, fold))
    members = [exact_id(part) for part in parts]
    store = InMemoryContentStore()
    store.put(parts, {compute_summary_id(members): members})
    assert judged(history, sent, store).lost == ()
    assert judged(history, sent).recoverable == ()


def test_refetch_chooses_the_smallest_block_and_serves_several_references() -> None:
    of = trace(
        user(f"{LINES[3]}\n{'and more ' * 1000}"),
        did("1", "Read", "\n".join(LINES[:5]), file_path="f"),
        user("go"),
        agent(call("Edit", "9", file_path="f", old_string="\n".join(LINES[2:5]))),
    )
    outcome = ResidencyChecker(of).check_call(1, ["go"])
    assert len(outcome.lost) > 3
    assert outcome.refetch_blocks == (2,)


def test_refetched_block_serves_later_calls() -> None:
    history = uses(3)
    of = trace(list(history.messages))
    checker = ResidencyChecker(of)
    (fault,) = checker.check_call(3, ["go"]).refetch_blocks
    assert checker.check_call(3, ["go", of.blocks[fault].text]).is_served
    assert not checker.check_call(3, ["go"]).is_served


HISTORY = uses(3, 50)
REFEREE = ResidencyChecker(trace(list(HISTORY.messages)))
some_texts = st.lists(
    st.sampled_from([*list_request_texts(HISTORY.messages[:-1]), LINES[3], LINES[50], NUMBERED[:900]]), max_size=5
)


@given(some_texts, some_texts)
def test_earlier_checks_do_not_affect_the_result(first: list[str], more: list[str]) -> None:
    for sent in (first, first + more, more):
        assert REFEREE.check_call(3, sent) == judged(HISTORY, sent)


def test_call_without_references_is_always_served() -> None:
    of = trace(user("go"), agent("done"))
    assert ResidencyChecker(of).check_call(0, []).is_served


def test_complete_requests_of_recordings_serve_all_calls(shared_data: Path) -> None:
    session = th.read_all(shared_data / "claude_code" / "entire-007.jsonl.gz")[0]
    of = max(trace_session(session), key=lambda one: len(one.calls))
    checker = ResidencyChecker(of)
    whole = [
        checker.check_call(n, list_request_texts(of.history.messages[: one.stop])) for n, one in enumerate(of.calls)
    ]
    short = [
        checker.check_call(n, list_request_texts(of.history.messages[max(0, one.stop - 4) : one.stop]))
        for n, one in enumerate(of.calls)
    ]
    assert all(outcome.is_served for outcome in whole)
    assert not all(outcome.is_served for outcome in short)
