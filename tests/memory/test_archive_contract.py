"""Protocol tests for SQLite and the in-memory archive, and identical searches with both."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name, synced, talk
from in_memory_archive import InMemoryArchive
from msgspec import structs

from thresher.memory import Memory
from thresher.memory.archive.protocol import Archive, EncodedBlock, SessionFilter, StoredSession
from thresher.memory.archive.sqlite import SqliteArchive
from thresher.memory.records import ArchivedSession, FileStat, SourceRecord, SourceState
from thresher.memory.session_store import SessionStore
from thresher.samples import write_samples

ARCHIVES: dict[str, Callable[[Path], Archive]] = {
    "sqlite": lambda folder: SqliteArchive(folder / "archive" / "archive.sqlite3"),
    "memory": lambda _folder: InMemoryArchive(),
}
TIME = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
STAT = FileStat(1, 2, 3, 4)


@pytest.fixture(params=ARCHIVES)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return ARCHIVES[request.param](tmp_path)


def _row(id: str = "one", *, ordinal: int = 0, source: str = "/a", owner: int = 0, **facts: Any) -> StoredSession:
    session = ArchivedSession(key=0, id=id, **{"agent": "claude-code", "file": "/a", **facts})
    return StoredSession(session, ordinal, source, owner, f"id:{id}", True, 10, "v1")


def _block(text: str) -> EncodedBlock:
    return EncodedBlock(text.encode(), 1, text.encode() * 2)


def test_a_stored_session_round_trips(archive: Archive) -> None:
    assert not archive.exists()
    facts: dict[str, Any] = {
        "project": "/home/sam/Shop",
        "branch": "main",
        "title": "Round the pennies",
        "version": "2.0",
        "parent": "zero",
        "root": "zero",
        "subagent": True,
        "call": "call-1",
        "started": TIME,
        "ended": TIME,
        "messages": 3,
        "compactions": 1,
        "made_by": "tool",
    }
    row = _row(owner=7, **facts)
    with archive.lease(wait=True, on_wait=None) as held:
        assert held
        key = archive.put_session(row, b"layout")
        assert archive.put_session(_row("two", ordinal=1, source="/b"), b"") > key
    assert archive.exists()
    (found,) = archive.find_sessions(SessionFilter(keys=[key]))
    assert found == row._replace(session=structs.replace(row.session, key=key))
    assert archive.read_layout(key) == b"layout"
    changed = found._replace(session=structs.replace(found.session, title="Another"), is_present=False)
    assert archive.put_session(changed) == key
    (found,) = archive.find_sessions(SessionFilter(keys=[key]))
    assert found == changed._replace(session=structs.replace(changed.session, gone=True))
    assert archive.read_layout(key) == b"layout"


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (SessionFilter(), [1, 2, 3, 4]),
        (SessionFilter(keys=[4, 2, 9]), [2, 4]),
        (SessionFilter(keys=[]), []),
        (SessionFilter(agent="codex"), [4]),
        (SessionFilter(id="ab"), [1, 3]),
        (SessionFilter(id_prefix="ab"), [1, 2, 3]),
        (SessionFilter(id_prefix="ab", file="/b"), [2, 3]),
        (SessionFilter(source="/s"), [3]),
        (SessionFilter(owner=1), [2]),
        (SessionFilter(origin_id="id:abc"), [2]),
        (SessionFilter(root="r"), [1, 2]),
        (SessionFilter(project="HOP"), [1, 3]),
        (SessionFilter(project="ä"), [3]),
        (SessionFilter(project="Ä"), []),
        (SessionFilter(project="%"), []),
        (SessionFilter(branch="main"), [2]),
        (SessionFilter(subagent=True), [2]),
        (SessionFilter(agent="claude-code", root="r", branch="main"), [2]),
    ],
)
def test_sessions_must_meet_all_conditions(archive: Archive, where: SessionFilter, keys: list[int]) -> None:
    with archive.lease(wait=True, on_wait=None), archive.transaction():
        archive.put_session(_row("ab", project="/x/Shop", root="r"), b"")
        archive.put_session(_row("abc", file="/b", owner=1, root="r", branch="main", subagent=True), b"")
        archive.put_session(_row("ab", file="/b", source="/s", project="/shop/ä"), b"")
        archive.put_session(_row("x", agent="codex"), b"")
    assert archive.find_keys(where) == keys == [row.key for row in archive.find_sessions(where)]


@pytest.mark.parametrize(("state", "gone"), [("here", False), ("gone", True), ("failed", True), ("foreign", True)])
def test_a_session_is_gone_with_its_file(archive: Archive, state: SourceState, gone: bool) -> None:
    with archive.lease(wait=True, on_wait=None):
        archive.put_session(_row(), b"")
        archive.put_sources([SourceRecord("/a", STAT, state)])
    assert [row.session.gone for row in archive.find_sessions(SessionFilter())] == [gone]


def test_blocks_by_session_number_and_id(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None):
        one, two = archive.put_session(_row(), b""), archive.put_session(_row("two"), b"")
        ids = [archive.add_block(session, number, _block(f"{session}.{number}")) for session, number in BLOCKS]
        assert ids == sorted(set(ids))
        found = archive.find_blocks()
        assert [(row.session, row.number, row.digest) for row in found] == [(one, 0, b"1.0"), *_pairs(two)]
        assert [row.id for row in archive.find_blocks(after=ids[1])] == [ids[3], ids[2]]
        assert [row.number for row in archive.find_blocks([two])] == [0, 1, 2]
        assert archive.find_blocks([]) == []
        assert archive.read_blocks(two) == [b"2.02.0", b"2.12.1", b"2.22.2"]
        assert archive.read_blocks(two, 1, 1) == [b"2.12.1"]
        assert archive.read_blocks(two, 1) == [b"2.12.1", b"2.22.2"]
        archive.remove_blocks(ids[2:])
        assert archive.add_block(two, 2, _block("again")) > max(ids)
        archive.remove_sessions([two])
        assert [row.session for row in archive.find_blocks()] == [one]
        assert archive.find_keys(SessionFilter()) == [one]
        assert archive.put_session(_row("three"), b"") > two


BLOCKS = ((1, 0), (2, 0), (2, 2), (2, 1))


def _pairs(session: int) -> list[tuple[int, int, bytes]]:
    return [(session, number, f"{session}.{number}".encode()) for number in range(3)]


def test_tombstones_keep_their_order(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None):
        archive.add_tombstones([5, -2, 9])
        first = archive.tombstones()
        assert [block for _, block in first] == [5, -2, 9]
        archive.add_tombstones([5])
        assert [block for _, block in archive.tombstones(first[-1][0])] == [5]
        archive.clear_tombstones(first[-1][0])
        left = archive.tombstones()
        assert [block for _, block in left] == [5]
        archive.clear_tombstones(left[-1][0])
        archive.add_tombstones([1])
        assert archive.tombstones()[0][0] > left[-1][0]


def test_source_files_and_forgotten_sessions(archive: Archive) -> None:
    one = SourceRecord("/a", STAT, "failed", "codex", 7, b"\0\xff", "a problem", "/whole")
    with archive.lease(wait=True, on_wait=None):
        archive.put_sources([SourceRecord("/a", STAT), SourceRecord("/b", STAT)])
        archive.put_sources([one])
        assert archive.sources() == {"/a": one, "/b": SourceRecord("/b", STAT)}
        archive.remove_sources(["/b", "/c"])
        assert archive.sources() == {"/a": one}
        archive.add_forgotten([b"x", b"y"])
        archive.add_forgotten([b"x"])
        assert archive.has_forgotten([b"z", b"y"])
        assert not archive.has_forgotten([b"z"])
        assert not archive.has_forgotten([])


def test_a_generation_stays_until_it_is_renewed(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None):
        before = archive.generation()
        assert before == archive.generation()
        archive.renew_generation()
        assert archive.generation() not in ("", before)


def _fail_in_a_transaction(archive: Archive, key: int) -> None:
    with archive.transaction():
        archive.put_session(_row("two"), b"")
        with archive.transaction():
            archive.add_block(key, 0, _block("text"))
            archive.add_tombstones([1])
        raise KeyboardInterrupt


def test_a_transaction_is_all_or_nothing(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None):
        with archive.transaction():
            key = archive.put_session(_row(), b"")
        with pytest.raises(KeyboardInterrupt):
            _fail_in_a_transaction(archive, key)
        with archive.transaction():
            archive.put_sources([SourceRecord("/a", STAT)])
    assert archive.find_keys(SessionFilter()) == [key]
    assert (archive.find_blocks(), archive.tombstones(), [*archive.sources()]) == ([], [], ["/a"])


def test_completed_transactions_survive_an_error_in_a_lease(archive: Archive) -> None:
    def work() -> None:
        with archive.lease(wait=True, on_wait=None):
            with archive.transaction():
                key = archive.put_session(_row(), b"")
            _fail_in_a_transaction(archive, key)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [row.session.id for row in archive.find_sessions(SessionFilter())] == ["one"]


def test_only_one_process_has_the_lease(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None) as held:
        assert held
        with archive.lease(wait=False, on_wait=None) as again:
            assert not again
    with archive.lease(wait=False, on_wait=None) as held:
        assert held


def test_one_connection_serves_several_reads(archive: Archive) -> None:
    with archive.lease(wait=True, on_wait=None):
        archive.put_session(_row(), b"layout")
    with archive.connected(), archive.connected():
        assert archive.read_layout(archive.find_keys(SessionFilter())[0]) == b"layout"
    assert archive.size() >= 0


def test_memory_works_with_any_archive(archive: Archive, tmp_path: Path) -> None:
    """The session store handles growth, rewrites, forks and forgotten sessions in any archive."""
    folder, store = tmp_path / "files", SessionStore(tmp_path / "memory", archive)
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 70))
    assert synced(store, folder).messages == 210
    (folder / f"{name(1)}.jsonl").write_bytes(talk(name(1), 75))
    (folder / f"{name(2)}.jsonl").write_bytes(chat(name(2), ["something else was said"]))
    report = synced(store, folder)
    assert (report.grown, report.rewritten, report.messages) == (1, 1, 6)
    (facts,) = store.find_sessions(id=name(3))
    with store.write_lease():
        assert store.forget([facts.key]) == 1
    kept = SessionStore(store.folder, archive).find_sessions()
    assert sorted((one.id, one.messages, one.gone) for one in kept) == [
        (name(1), 75, False),
        (name(2), 1, False),
        (name(2), 70, True),
    ]
    (folder / f"{name(3)}.jsonl").write_bytes(talk(name(3), 80))
    assert synced(store, folder).forgotten_again == 1
    assert not store.is_index_behind()


# --- searches --------------------------------------------------------------------------------------------------------

QUERIES = (
    "the test fails",
    "commit fix branch",
    "round pennies cart total",
    '"the cart"',
    "migrat*",
    "why does the build fail on windows",
    "token refresh",
    "file",
)


def _answers(memory: Memory) -> list[object]:
    filters: tuple[dict[str, Any], ...] = ({}, {"everything": True, "messages": 9}, {"rank": "matches"}, {"page": 2})
    found: list[object] = [memory.search(words, sync=False, **more) for words in QUERIES for more in filters]
    found.append(memory.search("file", sync=False, project="SHOP"))
    found.append(memory.search("test", sync=False, regex=r"[Ff]ail\w+", subagents=True))
    return [*found, memory.left_out(), structs.replace(memory.sizes(), archive=0, index=0)]


def _fill(memory: Memory, files: list[Path]) -> None:
    half = len(files) // 2
    for some in (files[:half], files[half:]):
        memory._sources = some
        memory.sync()
    old = memory.store.find_sessions()[::7]
    with memory.store.write_lease():
        memory.store.forget([one.key for one in old])


@pytest.mark.parametrize("corpus", ["samples", "shared"])
def test_searches_do_not_depend_on_the_archive(corpus: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Scores, order and snippets are identical after syncs and a forget."""
    if corpus == "samples":
        write_samples(tmp_path / "samples")
        files = [path for path in sorted((tmp_path / "samples").rglob("*")) if path.is_file()]
    else:
        data: Path = request.getfixturevalue("shared_data")
        small = (path for path in sorted((data / "claude_code").iterdir()) if path.stat().st_size < 400_000)
        files = [*islice(small, 24)]
    answers = []
    for kind, make in ARCHIVES.items():
        memory = Memory(home=tmp_path / kind, archive=make(tmp_path), discover=False)
        _fill(memory, files)
        answers.append(_answers(memory))
    assert answers[0] == answers[1]
    assert sum(bool(getattr(one, "sessions", ())) for one in answers[0]) > 10
