"""Damaged blocks of the archive are problems of their session; all others are found and read."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from chats import chat, name, talk

import thresher as th
from thresher.memory import Memory
from thresher.memory.archive.block_codec import compress
from thresher.store.errors import StoreError


def _flip_middle(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes((body[middle] ^ 0xFF,)) + body[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flip_middle,
    "truncated": lambda body: body[: len(body) // 2],
    "empty": lambda _: b"",
    "other messages": lambda _: compress(b"\x91\xc1"),
    "other JSON": lambda _: compress(b'[{"role": 1}]'),
    "torn JSON": lambda _: compress(b'[{"role": "user"'),
    "wrong messages": lambda _: compress(b"\xdc\x00\x40" + b"\x01" * 64),
}


@pytest.fixture(params=DAMAGE)
def memory(tmp_path: Path, request: pytest.FixtureRequest) -> Memory:
    """Return a memory of three sessions; the first block of the first one is damaged."""
    return _damaged_memory(tmp_path, "body", DAMAGE[request.param])


def _damaged_memory(tmp_path: Path, column: str, change: Callable[[bytes], object]) -> Memory:
    files = tmp_path / "files"
    files.mkdir()
    (files / f"{name(1)}.jsonl").write_bytes(talk(name(1), 70))
    (files / f"{name(2)}.jsonl").write_bytes(talk(name(2), 70))
    (files / f"{name(3)}.jsonl").write_bytes(chat(name(3), ["Why does topic3 fail?"]))
    memory = Memory(home=tmp_path, sources=[files], discover=False)
    memory.sync()
    key = memory.facts(name(1)).key
    table, condition = ("blocks", "session = ? AND number = 0") if column == "body" else ("sessions", "key = ?")
    with closing(sqlite3.connect(tmp_path / "memory" / "archive.sqlite3")) as connection, connection:
        ((body,),) = connection.execute(f"SELECT {column} FROM {table} WHERE {condition}", (key,))
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {condition}", (change(body), key))
    return Memory(home=tmp_path, sources=[files], discover=False)


def test_every_query_works_and_reports_the_session(memory: Memory) -> None:
    results = memory.search("topic3")
    assert {session.id for session in results.sessions} >= {name(2), name(3)}
    assert all(hit.text for session in results.sessions for hit in session.hits)
    (note,) = (note for note in results.notes if "archive is damaged" in note and name(1) in note)
    assert f"show {name(1)}" not in note, "an id of a transcript is not part of a command"
    assert memory.recall(name(2), "what about topic3?").found
    assert not memory.recall(name(1), "what about topic3?").found
    assert memory.recall(name(1), "what about topic69?").found
    assert not memory.search("topic69").notes


def test_a_regex_reports_the_session(memory: Memory) -> None:
    pytest.importorskip("regex")
    results = memory.search("", regex="topic3\\b")
    assert {session.id for session in results.sessions} == {name(2), name(3)}
    assert [note for note in results.notes if "archive is damaged" in note and name(1) in note]


def test_the_rest_of_the_session_is_read_and_the_problem_reported(memory: Memory) -> None:
    session = memory.session(name(1))
    assert len(session.history) == 70
    intact = memory.session(name(2)).history
    assert [one.text for one in session.history.messages[64:]] == [one.text for one in intact.messages[64:]]
    (problem,) = session.problems
    assert problem.what == "64 messages from number 0 on are damaged in the archive"
    assert not memory.session(name(2)).problems
    assert th.fit(th.emit(session.history, "anthropic"), budget=10_000)


def test_a_sync_and_a_rebuild_of_the_index_continue(memory: Memory, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "files" / f"{name(number)}.jsonl").write_bytes(talk(name(number), 80))
    (tmp_path / "memory" / "index" / "meta.json").unlink()
    report = memory.sync()
    assert (report.grown, report.failed) == (2, ())
    assert {session.id for session in memory.search("topic79").sessions} == {name(1), name(2)}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_layout_is_reported(tmp_path: Path, damage: str) -> None:
    session = _damaged_memory(tmp_path, "shape", DAMAGE[damage]).session(name(1))
    assert len(session.history) == 70
    assert [problem.what for problem in session.problems] == ["the session's layout is damaged in the archive"]


def _found(memory: Memory) -> set[str]:
    """Return the ids of the sessions that a search finds; copies are one result."""
    return {id for session in memory.search("topic69").sessions for id in (session.id, *session.family)}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("started", "2026-03-01T01:05:00.000000+00:0 "),
        ("ended", "2026-03-01T01:05:00"),
        ("ended", 7),
        ("title", None),
        ("project", b"\xff"),
        ("messages", "many"),
        ("shape", None),
        ("owner", None),
    ],
)
def test_a_damaged_fact_of_a_session_is_missing(tmp_path: Path, column: str, value: object) -> None:
    memory = _damaged_memory(tmp_path, column, lambda _: value)
    assert _found(memory) == {name(1), name(2)}
    assert memory.session(name(1)).id == name(1)
    assert memory.sync().failed == ()


@pytest.mark.parametrize(("table", "column"), [("sources", "problem"), ("sessions", "title"), ("sessions", "branch")])
def test_a_damaged_text_is_read_with_replacement_characters(tmp_path: Path, table: str, column: str) -> None:
    memory = _damaged_memory(tmp_path, "title", lambda title: title)
    with closing(sqlite3.connect(tmp_path / "memory" / "archive.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = CAST(x'61ff62' AS TEXT)")
    assert _found(memory) == {name(1), name(2)}
    assert memory.session(name(1)).id == name(1)


@pytest.mark.parametrize("column", ["size", "state", "prefix"])
def test_a_file_with_a_damaged_record_is_read_again(tmp_path: Path, column: str) -> None:
    memory = _damaged_memory(tmp_path, "title", lambda title: title)
    with closing(sqlite3.connect(tmp_path / "memory" / "archive.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE sources SET {column} = NULL")
    report = memory.sync()
    assert (report.unchanged, report.failed) == (0, ())
    assert _found(memory) == {name(1), name(2)}


def test_an_archive_without_its_own_id_is_searched(tmp_path: Path) -> None:
    memory = _damaged_memory(tmp_path, "title", lambda title: title)
    with closing(sqlite3.connect(tmp_path / "memory" / "archive.sqlite3")) as connection, connection:
        connection.execute("DELETE FROM state")
    assert _found(memory) == {name(1), name(2)}


def test_a_damaged_schema_is_an_error_with_advice(tmp_path: Path) -> None:
    memory = _damaged_memory(tmp_path, "title", lambda title: title)
    path = tmp_path / "memory" / "archive.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    path.write_bytes(
        data.replace(b"CREATE TABLE sources (\n    path TEXT", b"CREATE TABLE sources (\n    p\xf4th TEXT", 1)
    )
    with pytest.raises(StoreError, match="is damaged: restore a backup"):
        memory.store.archive.sources()
