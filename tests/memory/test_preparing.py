"""Preparing a file gives the same result in this process and in a worker, even if the worker dies."""

import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name, places, synced, talk
from tantivy import Query

from thresher.memory.archive.sqlite import SqliteArchive
from thresher.memory.ingest.change_detection import read_file_stat
from thresher.memory.ingest.extract import IngestJob, PreparedFile, prepare_file
from thresher.memory.ingest.sync import order_by_age
from thresher.memory.ingest.workers import (
    INGEST_OPTIONS,
    IngestOptions,
    prepare_files,
    start_worker_process,
    worker_count,
)
from thresher.memory.records import SourceRecord, SyncReport
from thresher.memory.session_store import IngestCounts, SessionStore
from thresher.model import Session
from thresher.samples import write_samples
from thresher.transcripts import read_all

LONG_AGO = 1_700_000_000


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


class Started(list["subprocess.Popen[bytes]"]):
    """Starts workers with a script of the test or their own, and records them."""

    script = ""

    def __call__(self, command: list[str]) -> "subprocess.Popen[bytes]":
        python, option, script, *rest = command
        self.append(start_worker_process([python, option, self.script or script, *rest]))
        return self[-1]


@pytest.fixture
def started() -> Started:
    return Started()


def _talks(folder: Path, count: int, length: int = 70) -> None:
    for number in range(1, count + 1):
        file = folder / f"{name(number)}.jsonl"
        file.write_bytes(talk(name(number), length))
        os.utime(file, (LONG_AGO + number, LONG_AGO + number))


def _job(file: Path, store: SessionStore | None = None) -> IngestJob:
    stat = read_file_stat(file)
    assert stat is not None
    if store is None:
        return IngestJob(file, "", stat, None, only_parts_changed=False)
    return IngestJob(
        file,
        "",
        stat,
        store.archive.sources()[str(file)],
        only_parts_changed=False,
        stored=store.stored_digests(str(file)),
    )


def _contents(store: SessionStore) -> tuple[object, ...]:
    """Return every archive row except the generation, and every index document."""
    tables = ("sources", "sessions", "blocks", "tombstones")
    with closing(sqlite3.connect(store.archive.name)) as connection:
        rows = [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables]
    index = store.open_index()
    assert index is not None
    return (rows, sorted(found[1:] for found in index.search(Query.all_query(), 100_000)))


def _two_rounds(store: SessionStore, folder: Path, options: IngestOptions = INGEST_OPTIONS) -> list[SyncReport]:
    """Write samples of all formats, a sub-agent, foreign, unreadable and copied files; later, extend some."""
    shutil.rmtree(folder)
    write_samples(folder / "home")
    _talks(folder, 5)
    (folder / "notes.jsonl").write_text("only notes\n")
    (folder / "chat-1.json").write_text('{"info": {}, "messages": 5}')
    (folder / "copy").mkdir()
    (folder / "copy" / f"{name(1)}.jsonl").write_bytes(talk(name(1), 90))
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    first = synced(store, folder, options)
    _talks(folder, 7, 140)
    return [first, synced(store, folder, options)]


def test_workers_do_not_change_the_result(store: SessionStore, folder: Path, tmp_path: Path, started: Started) -> None:
    alone = _two_rounds(store, folder)
    assert alone[0].new > 9
    assert alone[1].grown == 5
    other = SessionStore(tmp_path / "other")
    assert _two_rounds(other, folder, IngestOptions(workers=2, start_process=started)) == alone
    assert len(started) == 4
    mine, others = _contents(store), _contents(other)
    assert mine[1] == others[1]
    assert _without_inodes(mine[0]) == _without_inodes(others[0])


def _without_inodes(tables: Any) -> Any:
    sources, *others = tables
    return [row[:3] + row[5:] for row in sources], others


def test_a_prepared_file_contains_no_messages(folder: Path) -> None:
    _talks(folder, 1)
    found = prepare_file(_job(folder / f"{name(1)}.jsonl"))
    assert found.status == "new"
    assert [sorted(ready.documents) for ready in found.sessions] == [[0, 1]]
    told = pickle.dumps(found)
    assert b"thresher.model" not in told
    assert pickle.loads(told) == found


def test_only_new_blocks_of_a_grown_file_are_prepared(store: SessionStore, folder: Path) -> None:
    _talks(folder, 1, 140)
    synced(store, folder)
    file = folder / f"{name(1)}.jsonl"
    file.write_bytes(file.read_bytes() + talk(name(1), 1, 140))
    (ready,) = prepare_file(_job(file, store)).sessions
    assert sorted(ready.documents) == [2]
    assert [block.messages for block in ready.encoded.blocks] == [64, 64, 13]
    file.write_bytes(talk(name(1), 70) + chat(name(1), ["we took another way from here"], 70))
    (ready,) = prepare_file(_job(file, store)).sessions
    assert sorted(ready.documents) == [1]


def test_documents_of_a_removed_block_are_built_from_the_archive(store: SessionStore, folder: Path) -> None:
    _talks(folder, 1)
    found = prepare_file(_job(folder / f"{name(1)}.jsonl"))
    with store.write_lease():
        store.record(found.source, [ready._replace(documents={1: ready.documents[1]}) for ready in found.sessions])
        store.refresh_index()
    for number in (3, 69):
        assert places(store, f"topic{number}") == [(name(1), number)]


def _killed_at(word: str) -> str:
    return (
        "import os, sys; sys.path[:] = sys.argv[1:]\n"
        "from thresher.memory.ingest import workers\n"
        "inner = workers.prepare_file\n"
        f"workers.prepare_file = lambda job: os._exit(9) if {word!r} in str(job.path) else inner(job)\n"
        "workers.run_ingest_worker()\n"
    )


@pytest.mark.parametrize("code", [_killed_at(name(3)), "raise SystemExit(1)"])
def test_a_dead_worker_loses_nothing(store: SessionStore, folder: Path, started: Started, code: str) -> None:
    _talks(folder, 8)
    started.script = code
    assert synced(store, folder, IngestOptions(workers=2, start_process=started)) == SyncReport(new=8, messages=560)
    assert len(places(store, "topic42")) == 8


def test_a_large_file_that_killed_a_worker_is_not_retried(store: SessionStore, folder: Path, started: Started) -> None:
    _talks(folder, 4)
    started.script = _killed_at(name(3))
    report = synced(store, folder, IngestOptions(workers=2, start_process=started, ahead_bytes=1000))
    assert report.new == 3
    (problem,) = report.failed
    assert problem.startswith(str(folder / name(3)))
    assert "probably because of too little memory" in problem
    assert store.archive.sources()[str(folder / f"{name(3)}.jsonl")].state == "failed"
    assert synced(store, folder) == SyncReport(unchanged=4)


def test_workers_that_do_not_start(store: SessionStore, folder: Path) -> None:
    _talks(folder, 4)

    def start(command: list[str]) -> "subprocess.Popen[bytes]":
        return start_worker_process([str(folder / "nothing"), *command[1:]])

    assert synced(store, folder, IngestOptions(workers=2, start_process=start)) == SyncReport(new=4, messages=280)


def test_too_little_memory_is_reported_and_the_sync_continues(store: SessionStore, folder: Path) -> None:
    _talks(folder, 2)

    def read(path: Path, **options: Any) -> list[Session]:
        if name(2) in str(path):
            raise MemoryError
        return read_all(path, **options)

    report = synced(store, folder, IngestOptions(read=read))
    assert report.new == 1
    assert "not enough memory" in report.failed[0]


def test_a_file_deleted_during_the_sync_is_not_a_failure(folder: Path) -> None:
    _talks(folder, 1)
    job = _job(folder / f"{name(1)}.jsonl")
    job.path.unlink()
    assert prepare_file(job).status == "vanished"


def test_an_interruption_stops_all_workers_and_keeps_recorded_files(
    store: SessionStore, folder: Path, started: Started
) -> None:
    _talks(folder, 12)

    class Interrupted(SessionStore):
        def record(self, known: SourceRecord, *rest: Any, **more: Any) -> IngestCounts:
            if name(8) in known.path:
                raise KeyboardInterrupt
            return super().record(known, *rest, **more)

    archive = SqliteArchive(Path(store.archive.name), batch_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        synced(Interrupted(store.folder, archive), folder, IngestOptions(workers=2, start_process=started))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)
    again = SessionStore(store.folder)
    assert {facts.id for facts in again.find_sessions()} == {name(number) for number in (9, 10, 11, 12)}
    assert synced(again, folder) == SyncReport(new=8, unchanged=4, messages=560)
    assert len(places(again, "topic42")) == 12


def test_the_users_own_program_is_not_run_again(store: SessionStore, folder: Path, tmp_path: Path) -> None:
    _talks(folder, 4)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from thresher.memory.ingest.sync import sync_sources\n"
        "from thresher.memory.ingest.workers import IngestOptions\n"
        "from thresher.memory.session_store import SessionStore\n"
        "print('once')\n"
        "files = [(None, path) for path in Path(sys.argv[2]).iterdir()]\n"
        "print(sync_sources(SessionStore(sys.argv[1]), files, options=IngestOptions(workers=2)).new)\n"
    )
    command = [sys.executable, str(script), str(store.folder), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\n4\n", "")


def test_newest_files_are_read_first(store: SessionStore, folder: Path) -> None:
    _talks(folder, 4)
    synced(store, folder)
    assert [facts.id for facts in store.find_sessions()] == [name(number) for number in (4, 3, 2, 1)]


def test_files_in_a_folder_with_a_files_name_are_read_after_it(folder: Path) -> None:
    _talks(folder, 2)
    inside = folder / name(1) / "subagents" / "agent-1.jsonl"
    inside.parent.mkdir(parents=True)
    inside.touch()
    found = order_by_age([_job(path) for path in (inside, *folder.glob("*.jsonl"))])
    assert [job.path.stem for job in found] == [name(2), name(1), "agent-1"]


def test_workers_start_only_for_large_syncs() -> None:
    assert worker_count(100, 100_000_000, cores=2) == 2
    assert worker_count(100, 10_000_000, cores=2) == 0
    assert worker_count(100, 100_000_000, cores=64) == 4
    assert worker_count(2, 100_000_000, cores=64) == 2
    assert worker_count(100, 100_000_000, cores=1) == 1  # a worker can be stopped in the middle of a file


def test_the_queue_of_workers_is_limited(folder: Path) -> None:
    _talks(folder, 9)
    begun: list[IngestJob] = []

    def jobs() -> Any:
        for path in sorted(folder.iterdir()):
            begun.append(_job(path))
            yield begun[-1]

    every = prepare_files(jobs(), 2, IngestOptions(ahead_bytes=60_000))
    job, found = next(every)
    assert isinstance(found, PreparedFile)
    assert job is begun[0]
    assert sum(one.stat.size for one in begun[:-1]) <= 60_000
    assert [one for one, _ in every] == begun[1:]
