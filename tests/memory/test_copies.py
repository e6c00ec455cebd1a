"""Copies of a session are one result, and a fork that only asked something does not replace its original."""

from pathlib import Path

import pytest
from chats import chat, name

from thresher.memory import Memory

STORY = [
    "Why is the lilac parcel late?",
    "The lilac parcel waits for the gate.",
    "Open it then.",
    "The gate is open now.",
]
QUESTION = ["Why is the lilac parcel late, and what was the gate?", "The lilac parcel was late because of the gate."]


def memory_of(folder: Path, *sessions: list[str]) -> Memory:
    """Return a memory of sessions without common ids."""
    for number, texts in enumerate(sessions, 1):
        (folder / f"{name(number)}.jsonl").write_bytes(chat(name(number), texts))
    return Memory(home=folder / "home", sources=[folder], discover=False)


@pytest.mark.parametrize("rank", ["best", "matches"])
def test_the_original_stands_before_a_fork_that_only_asked(tmp_path: Path, rank: str) -> None:
    results = memory_of(tmp_path, STORY, [*STORY, *QUESTION]).search("lilac parcel late gate", rank=rank)  # type: ignore[arg-type]
    assert [(session.id, session.family) for session in results.sessions] == [(name(1), (name(2),))]


def test_a_fork_with_more_work_may_stand_first(tmp_path: Path) -> None:
    more = [*QUESTION, "And the lilac parcel of today?", "The lilac parcel of today is not late at the gate."]
    results = memory_of(tmp_path, STORY, [*STORY, *more]).search("lilac parcel late gate today")
    assert [(session.id, session.family) for session in results.sessions] == [(name(2), (name(1),))]


def test_what_only_the_fork_says_is_found_in_the_fork(tmp_path: Path) -> None:
    results = memory_of(tmp_path, STORY, [*STORY, "Which turnip grows here?", "No turnip at all."]).search("turnip")
    assert [session.id for session in results.sessions] == [name(2)]


def test_sessions_without_times_are_no_copies(tmp_path: Path) -> None:
    for number in (1, 2):
        untimed = chat(name(number), STORY).replace(b'"timestamp"', b'"unknown"')
        (tmp_path / f"{name(number)}.jsonl").write_bytes(untimed)
    assert len(Memory(home=tmp_path / "home", sources=[tmp_path], discover=False).search("lilac").sessions) == 2


def test_sessions_that_say_the_same_at_another_time_are_no_copies(tmp_path: Path) -> None:
    memory_of(tmp_path, STORY)
    (tmp_path / f"{name(2)}.jsonl").write_bytes(chat(name(2), STORY).replace(b"2026-03", b"2026-04"))
    assert len(Memory(home=tmp_path / "home", sources=[tmp_path], discover=False).search("lilac").sessions) == 2


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_sessions_that_only_begin_alike_are_no_copies(tmp_path: Path, kept: int) -> None:
    other = [*STORY[:kept], *(f"another lilac parcel {number}" for number in range(kept, 4))]
    assert len(memory_of(tmp_path, STORY, other).search("lilac parcel").sessions) == 2
