"""A sync reads only changes, keeps deleted sessions, and survives interruption."""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chats import chat, line, name, places, synced, talk

from thresher.memory.ingest.change_detection import fingerprint_file
from thresher.memory.ingest.sync import plan_sync, sync_sources
from thresher.memory.ingest.workers import IngestOptions
from thresher.memory.records import SyncReport
from thresher.memory.session_store import SessionStore
from thresher.model import Session
from thresher.samples import write_samples
from thresher.transcripts import files_below, read_all


def _no_reading(*_args: Any, **_more: Any) -> list[Session]:
    pytest.fail("read")


NO_READING = IngestOptions(read=_no_reading)
LONG_AGO = 1_700_000_000


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def _one(folder: Path, count: int = 70) -> Path:
    file = folder / f"{name(1)}.jsonl"
    file.write_bytes(talk(name(1), count))
    return file


def _state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and modification time of every file."""
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_without_changes_a_sync_neither_reads_nor_writes(store: SessionStore, tmp_path: Path) -> None:
    for file in write_samples(tmp_path / "home"):
        os.utime(file, (LONG_AGO, LONG_AGO))
    for place in (tmp_path / "home").rglob("subagents"):
        os.utime(place, (LONG_AGO, LONG_AGO))
    first = synced(store, tmp_path / "home")
    assert first.new > 4
    before = _state(store.folder)
    assert plan_sync(store.archive.sources(), dict.fromkeys(map(str, files_below(tmp_path / "home")), "")).jobs == []
    again = synced(SessionStore(store.folder), tmp_path / "home", NO_READING)
    assert again == SyncReport(unchanged=again.unchanged)
    assert again.unchanged == first.new + first.foreign
    assert _state(store.folder) == before


def test_appended_turns_are_found(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    assert synced(store, folder) == SyncReport(new=1, messages=70)
    with file.open("ab") as end:
        end.write(talk(name(1), 3, 70))
    assert synced(store, folder) == SyncReport(grown=1, messages=3)
    assert places(store, "topic72") == [(name(1), 72)]
    assert places(store, "topic1") == [(name(1), 1)]
    assert [facts.messages for facts in store.find_sessions()] == [73]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_an_incomplete_line_is_stored_once(store: SessionStore, folder: Path, cut: int) -> None:
    file = _one(folder, 4)
    last = talk(name(1), 1, 4)
    file.write_bytes(file.read_bytes() + last[:-cut])
    synced(store, folder)
    file.write_bytes(file.read_bytes()[: -len(last) + cut] + last + talk(name(1), 1, 5))
    assert synced(store, folder).grown == 1
    assert [message.text for message in store.messages(1)] == [message.text for message in read_all(file)[0].history]
    for number in range(6):
        assert places(store, f"topic{number}") == [(name(1), number)]


def test_an_incomplete_line_causes_no_read(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    synced(store, folder)
    with file.open("ab") as end:
        end.write(talk(name(1), 1, 70)[:50])
    assert synced(store, folder) == SyncReport(unchanged=1)
    with file.open("ab") as end:
        end.write(talk(name(1), 1, 70)[50:].rstrip())
    assert synced(store, folder) == SyncReport(grown=1, messages=1)


def test_a_touched_file_is_not_read(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    synced(store, folder)
    os.utime(file, (LONG_AGO, LONG_AGO))
    assert synced(store, folder, NO_READING) == SyncReport(unchanged=1)
    before = _state(store.folder)
    assert synced(store, folder) == SyncReport(unchanged=1)
    assert _state(store.folder) == before


def test_a_rewrite_is_detected(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    synced(store, folder)
    file.write_bytes(talk(name(1), 66) + chat(name(1), ["we took another way from here"], 66))
    assert synced(store, folder) == SyncReport(rewritten=1, messages=1)
    assert places(store, "another way") == [(name(1), 66)]
    assert places(store, "topic66") == [(name(1), 66)]
    before, now = sorted(store.find_sessions(), key=lambda facts: not facts.gone)
    assert (before.messages, before.gone, now.messages, now.gone) == (70, True, 67, False)
    assert before.root == now.root


def test_a_rewind_keeps_the_abandoned_branch(store: SessionStore, folder: Path) -> None:
    file = _one(folder, 6)
    synced(store, folder)
    back = line(
        name(1), 4, "user", "instead do something entirely different", uuid="4e9c7a44-0000-4000-8000-000000000001"
    )
    file.write_bytes(file.read_bytes() + back)
    assert synced(store, folder).grown == 1
    session = store.session(1)
    assert [message.text for message in session.history][-1] == "instead do something entirely different"
    assert places(store, "topic5") == [(name(1), 6)]


def test_sessions_of_a_deleted_file_are_marked_and_stay(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    synced(store, folder)
    body = file.read_bytes()
    file.rename(folder.parent / "away")
    assert synced(store, folder) == SyncReport(gone=1)
    assert synced(store, folder) == SyncReport()
    assert [facts.gone for facts in store.find_sessions()] == [True]
    assert len(store.session(1).history) == 70
    assert places(store, "topic7") == [(name(1), 7)]
    (folder.parent / "away").rename(file)
    assert synced(store, folder).unchanged == 1
    assert [facts.gone for facts in store.find_sessions()] == [False]
    assert file.read_bytes() == body


def test_a_copy_belongs_to_the_same_family(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    (folder / "copies").mkdir()
    (folder / "copies" / file.name).write_bytes(file.read_bytes())
    (folder / "copies" / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert synced(store, folder).new == 3
    assert [(facts.id, facts.root) for facts in store.find_sessions()] == [(name(1), name(1))] * 3


def test_a_foreign_file_is_read_again_when_it_changes(store: SessionStore, folder: Path) -> None:
    file = folder / "notes.jsonl"
    file.write_text("these are only notes\n")
    (folder / "empty.jsonl").touch()
    assert synced(store, folder) == SyncReport(foreign=2)
    assert synced(store, folder, NO_READING) == SyncReport(unchanged=2)
    file.write_bytes(talk(name(3), 2))
    assert synced(store, folder) == SyncReport(new=1, unchanged=1, messages=2)


def test_an_unreadable_file_is_reported_once_and_the_sync_continues(store: SessionStore, folder: Path) -> None:
    _one(folder)
    bad = folder / "bad.json"
    bad.write_text('{"info": {}, "messages": 5}')
    report = sync_sources(store, [("opencode", bad), (None, folder / f"{name(1)}.jsonl")])
    assert report.new == 1
    assert len(report.failed) == 1
    assert "no list of `messages`" in report.failed[0]
    assert store.archive.sources()[str(bad)].state == "failed"
    assert sync_sources(store, [("opencode", bad)]).failed == ()


def test_invalid_file_names_are_reported(store: SessionStore, folder: Path) -> None:
    odd = os.fsdecode(os.fsencode(folder) + b"/bad\xff.jsonl")
    try:
        Path(odd).write_bytes(talk(name(1), 2))
    except OSError:
        pytest.skip("this file system takes no such names")
    assert "rename it" in synced(store, folder).failed[0]


def _with_subagent(tmp_path: Path) -> tuple[Path, Path, Path]:
    write_samples(tmp_path / "home")
    folder = tmp_path / "home" / ".claude"
    (agent,) = folder.rglob("agent-*.jsonl")
    parent = agent.parent.parent.with_suffix(".jsonl")
    for path in (*folder.rglob("*"),):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder, parent, agent


@pytest.mark.parametrize("named", [True, False])
def test_a_subagents_file_belongs_to_its_parent(store: SessionStore, tmp_path: Path, named: bool) -> None:
    folder, parent, agent = _with_subagent(tmp_path)
    files: list[tuple[str | None, Path]] = [(None, path) for path in sorted(folder.rglob("*.jsonl"))]
    if not named:
        files.remove((None, agent))
    reads: list[Path] = []

    def read(path: Path, **options: Any) -> list[Session]:
        reads.append(path)
        return read_all(path, **options)

    options = IngestOptions(read=read)
    sync_sources(store, files, options=options)
    assert agent not in reads
    (child,) = (facts for facts in store.find_sessions() if facts.subagent)
    (whole,) = (facts for facts in store.find_sessions() if facts.file == str(parent))
    assert child.root == whole.root == whole.id
    assert [one.id for one in store.session(whole.key).children] == [child.id]
    reads.clear()
    assert sync_sources(store, files, options=options)._replace(seconds=0) == SyncReport(unchanged=2)
    agent.write_bytes(
        agent.read_bytes().rstrip() + b"\n" + agent.read_bytes().splitlines()[-1].replace(b"a", b"b") + b"\n"
    )
    assert sync_sources(store, files, options=options).grown == 1
    assert reads == [parent]


def test_a_new_subagent_is_detected(store: SessionStore, tmp_path: Path) -> None:
    folder, _, agent = _with_subagent(tmp_path)
    files = [(None, path) for path in sorted(folder.rglob("*.jsonl")) if path != agent]
    sync_sources(store, files)
    other = agent.with_name("agent-feedbeef.jsonl")
    other.write_bytes(agent.read_bytes().replace(agent.stem.removeprefix("agent-").encode(), b"feedbeef"))
    sync_sources(store, files)
    assert {facts.id for facts in store.find_sessions() if facts.subagent} >= {"feedbeef"}


def test_a_subagent_stored_before_its_parent(store: SessionStore, tmp_path: Path) -> None:
    _, parent, agent = _with_subagent(tmp_path)
    sync_sources(store, [(None, agent)])
    sync_sources(store, [(None, agent), (None, parent)])
    assert len([facts for facts in store.find_sessions() if facts.file == str(agent)]) == 1
    assert len({facts.root for facts in store.find_sessions()}) == 1
    assert store.archive.sources()[str(agent)].whole == str(parent)


def test_a_subagent_outlives_its_parents_file(store: SessionStore, tmp_path: Path) -> None:
    folder, parent, agent = _with_subagent(tmp_path)
    files: list[tuple[str | None, Path]] = [(None, path) for path in sorted(folder.rglob("*.jsonl"))]
    sync_sources(store, files)
    (before,) = (facts for facts in store.find_sessions() if facts.subagent)
    whole = parent.read_bytes()
    parent.unlink()
    assert sync_sources(store, files).gone == 1
    agent.write_bytes(agent.read_bytes() + agent.read_bytes().splitlines()[-1].replace(b"a", b"b") + b"\n")
    assert sync_sources(store, files).new == 1
    (now,) = (facts for facts in store.find_sessions() if facts.subagent)
    assert (now.key, now.root, now.call, now.gone) == (before.key, before.root, before.call, False)
    parent.write_bytes(whole)
    sync_sources(store, files)
    assert [one.subagent for one in store.find_sessions() if one.gone] == []
    assert sync_sources(store, files).unchanged == 2


HOLD = """
import sys, time
from pathlib import Path
from thresher.memory.session_store import SessionStore
with SessionStore(Path(sys.argv[1])).write_lease():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(store: SessionStore) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLD, str(store.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_two_concurrent_syncs(store: SessionStore, folder: Path, holder: "subprocess.Popen[str]") -> None:
    _one(folder)
    files = [(None, folder / f"{name(1)}.jsonl")]
    assert sync_sources(store, files, wait=False)._replace(seconds=0) == SyncReport(busy=True)
    told = []

    def waiting() -> None:
        told.append("waiting")
        holder.kill()

    assert sync_sources(store, files, waiting=waiting).new == 1
    assert told == ["waiting"]


def test_many_concurrent_syncs_store_everything_once(store: SessionStore, folder: Path) -> None:
    for number in range(1, 13):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 70))
    code = (
        "import sys\nfrom pathlib import Path\nfrom thresher.memory.session_store import SessionStore\n"
        "from thresher.memory.ingest.sync import sync_sources\n"
        "files = [(None, path) for path in sorted(Path(sys.argv[2]).iterdir())]\n"
        "print(sync_sources(SessionStore(Path(sys.argv[1])), files).messages)\n"
    )
    command = [sys.executable, "-c", code, str(store.folder), str(folder)]
    three = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(process.communicate()[0]) for process in three) == 12 * 70
    assert places(store, "topic42") == sorted((name(number), 42) for number in range(1, 13))
    assert synced(store, folder) == SyncReport(unchanged=12)


@pytest.mark.parametrize("moment", range(0, 60, 7))
def test_a_sync_killed_at_any_moment_can_resume(store: SessionStore, folder: Path, moment: int) -> None:
    for number in range(1, 5):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 70))
    synced(store, folder)
    for number in range(1, 9):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 140))
    calls = 0
    traced = ("archive/sqlite.py", "placement.py", "session_store.py", "tantivy_index.py", "sync.py")

    def trace(frame: object, event: str, _value: object) -> object:
        nonlocal calls
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_filename.endswith(traced):
            calls += 1
            if calls == 5 + moment * 9:
                raise KeyboardInterrupt
        return None

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        synced(store, folder)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    again = SessionStore(store.folder)
    synced(again, folder)
    for word, place in (("topic69", 69), ("topic70", 70), ("topic139", 139)):
        assert places(again, word) == sorted((name(number), place) for number in range(1, 9))
    assert synced(again, folder) == SyncReport(unchanged=8)


def test_documents_and_line_files_are_distinguished(tmp_path: Path) -> None:
    file = tmp_path / "f"
    for body, offset in (
        (b'{"a": 1}\n{"b": 2}\n', 18),
        (b'{"a": 1}\n{"b": 2}', 17),
        (b'{"a": 1}\n{"b": ', 9),
        (b'{"a": 1}\n{"b": "' + b"x" * 200_000, 9),
        (b'{\n  "a": 1\n}', 12),
        (b"\x1f\x8b\x08rest", 7),
        (b"", 0),
    ):
        file.write_bytes(body)
        assert fingerprint_file(file, len(body)).offset == offset


def test_bytes_appended_during_a_read_are_read_by_the_next_sync(store: SessionStore, folder: Path) -> None:
    file = _one(folder)

    def read(path: Path, **options: Any) -> list[Session]:
        sessions = read_all(path, **options)
        with file.open("ab") as end:
            end.write(talk(name(1), 1, 70))
        return sessions

    assert synced(store, folder, IngestOptions(read=read)).messages == 70
    assert synced(store, folder) == SyncReport(grown=1, messages=1)


def test_progress_reports_the_amount_done(store: SessionStore, folder: Path) -> None:
    file = _one(folder)
    told: list[tuple[int, int]] = []
    sync_sources(store, [(None, file)], progress=lambda done, total: told.append((done, total)))
    size = file.stat().st_size
    assert told == [(size, size)]
