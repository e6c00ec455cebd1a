"""The policy `superseded`: results that a later call made obsolete, and cases that only look similar."""

from typing import Any

import pytest
from hypothesis import given
from tool_chains import Did, body, closed, results, told, touched

from strategies import histories
from thresher.edits import Drop
from thresher.model import History
from thresher.policies.superseded import RemoveSuperseded

A = "/work/a.py"


def read(text: str = "one", path: str = A, lines: int = 60, **arguments: Any) -> Did:
    return Did("Read", {"file_path": path, **arguments}, body(text, lines))


def edit(path: str = A, *, is_error: bool = False) -> Did:
    return Did("Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, "no such text", is_error)


def write(path: str = A) -> Did:
    return Did("Write", {"file_path": path, "content": body("new")})


def bash(command: str, text: str = "done", *, is_error: bool = False) -> Did:
    return Did("Bash", {"command": command}, text, is_error)


def whys(history: History) -> dict[int, str]:
    """Return the edited chains with the reasons."""
    plan, _ = closed(history, RemoveSuperseded())
    return {n: one.why for one in plan.edits for n in touched(history, [one])}


AGAIN, STALE, GOOD = "same call again", "stale read", "failed, succeeded later"
CASES: dict[str, tuple[tuple[Did, ...], dict[int, str]]] = {
    "the same call, the same answer": ((bash("git status", body("x")),) * 3, {0: AGAIN, 1: AGAIN}),
    "the same call, another answer": ((bash("date", body("x")), bash("date", body("y"))), {}),
    "another call, the same answer": ((bash("ls a", body("x")), bash("ls b", body("x"))), {}),
    "read again, nothing new": ((read(), read()), {0: AGAIN}),
    "read again after an edit": ((read(), edit(), read("two")), {0: STALE}),
    "edited since": ((read(), edit(), edit()), {0: STALE}),
    "an edit of another file": ((read(), edit("/work/b.py"), read(path="/work/b.py")), {}),
    "written anew": ((read(), write()), {0: STALE}),
    "deleted": ((read(), Did("delete_file", {"path": A})), {0: STALE}),
    "read after it was written": ((write(), read()), {}),
    "a failed write changes nothing": ((read(), Did("Write", {"file_path": A, "content": "x"}, "no", True)), {}),
    "some lines, then all": ((read(offset=10, limit=20, lines=20), read("two")), {0: STALE}),
    "all, then some lines": ((read(), read("two", offset=10, limit=20, lines=20)), {}),
    "lines that the later read does not reach": ((read(offset=90, limit=20, lines=20), read("two")), {}),
    "lines within lines": ((read(offset=20, limit=9, lines=9), read("b", offset=10, limit=30, lines=30)), {0: STALE}),
    "lines that overlap": ((read(offset=10, limit=30, lines=30), read("b", offset=20, limit=30, lines=30)), {}),
    "a shorter file, read again": ((read(lines=90), read("two", lines=30)), {0: STALE}),
    "no pointer to a pointer": (
        (read("x", offset=70, limit=9, lines=9), read(lines=90), read("two", lines=30)),
        {1: STALE},
    ),
    "a failed read shows nothing": ((read(), Did("Read", {"file_path": A}, body("no"), True)), {}),
    "another page": ((read(path="a.pdf", pages="1"), read("two", path="a.pdf", pages="2")), {}),
    "read by a command": ((read(), bash(f"cat {A}", body("two"))), {0: STALE}),
    "an edit made good": ((edit(is_error=True), edit()), {0: GOOD}),
    "an edit not made good": ((edit(is_error=True), edit("/work/b.py"), read()), {}),
    "a command made good": ((bash("make   all", "no", is_error=True), bash("make all")), {0: GOOD}),
    "another command": ((bash("make", "no", is_error=True), bash("make all")), {}),
    "a read made good": ((Did("Read", {"file_path": "/work/./a.py"}, "no", True), read()), {0: GOOD}),
    "good first, failed later": ((bash("make"), bash("make", "no", is_error=True)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_superseded_results_are_edited(name: str) -> None:
    chains, expected = CASES[name]
    assert whys(told(*chains)) == expected


def test_an_edit_alone_is_an_option() -> None:
    chains = (read(), edit(), read("two", offset=10, limit=20, lines=20))
    assert list(RemoveSuperseded(edited=False)(told(*chains))) == []
    assert [edit.why for edit in RemoveSuperseded()(told(*chains))] == [STALE]


NOTES: dict[str, tuple[tuple[Did, ...], str]] = {
    "again": ((read(), bash("ls"), read()), "turn 1 · same as turn 3]"),
    "only edited": ((read(), edit()), "turn 1 · edited at turn 2 since]"),
    "edited": ((read(), edit(), read("two")), "turn 1 · edited at turn 2 since; read again at turn 3]"),
    "read again": ((read(offset=1, limit=9, lines=9), read("two")), "turn 1 · read again at turn 2]"),
    "written": ((read(), edit(), write(), edit()), "turn 1 · written anew at turn 3]"),
    "deleted": ((read(), Did("delete_file", {"path": A})), "turn 1 · deleted at turn 2]"),
}


@pytest.mark.parametrize("name", NOTES)
def test_a_placeholder_names_the_later_event(name: str) -> None:
    chains, note = NOTES[name]
    assert results(closed(told(*chains), RemoveSuperseded())[1])[0].endswith(note)


def test_placeholders_refer_to_a_read_that_stays() -> None:
    history = told(read("a"), edit(), read("b"), edit(), read("c"))
    _, smaller = closed(history, RemoveSuperseded())
    first, _, second, _, last = results(smaller)
    assert first.endswith("edited at turn 2 since; read again at turn 5]")
    assert second.endswith("edited at turn 4 since; read again at turn 5]")
    assert last == body("c")


def test_each_kind_can_be_disabled() -> None:
    history = told(bash("make", "no", is_error=True), bash("make"), read("a"), read("a"), edit(), read("b"))
    kinds = {AGAIN: "identical", STALE: "stale", GOOD: "failed"}
    for why, option in kinds.items():
        chosen = RemoveSuperseded(**{name: name == option for name in kinds.values()})
        assert {one.why for one in chosen(history)} == {why}
    assert list(RemoveSuperseded(identical=False, stale=False, failed=False)(history)) == []


def test_edits_are_ordered_by_loss_and_unique_per_part() -> None:
    history = told(read("a"), edit(is_error=True), read("a"), edit(), read("b"))
    edits = list(RemoveSuperseded()(history))
    assert [type(one) is Drop for one in edits] == [True, False, False]
    assert [one.why for one in edits] == [GOOD, AGAIN, STALE]
    assert len({one.target for one in edits}) == 3


@given(histories)
def test_any_history_is_accepted(history: History) -> None:
    closed(history, RemoveSuperseded())
