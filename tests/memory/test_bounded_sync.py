"""A sync that stops early indexes the newest sessions, says which share it has, and resumes."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chats import name, places, synced, talk

from thresher import Memory, OptionError
from thresher.memory.background_sync import BackgroundSync
from thresher.memory.index.commit_pace import CommitPace, CommitSizes
from thresher.memory.index.documents import DOCUMENT_VERSION
from thresher.memory.index.share import SHARE_FILE
from thresher.memory.ingest.stored_blocks import BLOCKS_PER_STEP
from thresher.memory.ingest.sync import order_by_age, plan_sync, sync_sources
from thresher.memory.ingest.workers import IngestOptions, start_worker_process
from thresher.memory.records import SyncReport, never_stop
from thresher.memory.session_store import SessionStore

LONG_AGO = 1_700_000_000


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "home" / "memory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with eight sessions of the same size; the one with the highest number is the newest."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(1, 9):
        file = folder / f"{name(number)}.jsonl"
        file.write_bytes(talk(name(number), 70))
        os.utime(file, (LONG_AGO + number, LONG_AGO + number))
    return folder


class StopAfter:
    """Stops at a call, counted from 1."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


def _sync(store: SessionStore, folder: Path, stop: Callable[[], bool], **options: Any) -> SyncReport:
    files = [(None, path) for path in folder.iterdir()]
    return sync_sources(store, files, stop=stop, options=IngestOptions(**options))._replace(seconds=0)


def _found(memory: Memory) -> tuple[int, float]:
    """Return the number of sessions with a word that all have, and the share of the index."""
    results = memory.search("topic42", sync=False)
    return sum(1 + len(session.family) for session in results.sessions), results.indexed


def _memory(folder: Path) -> Memory:
    return Memory(home=folder.parent / "home", sources=[folder], discover=False)


def test_a_stopped_sync_keeps_the_newest_sessions_and_the_next_reads_the_rest(
    store: SessionStore, folder: Path
) -> None:
    report = _sync(store, folder, StopAfter(4))
    assert report == SyncReport(new=3, messages=210, indexed=0.375)
    assert [facts.id for facts in store.find_sessions()] == [name(8), name(7), name(6)]
    assert len(places(store, "topic42")) == 3
    again = SessionStore(store.folder)
    assert again.indexed_share() == 0.375
    assert _sync(again, folder, never_stop) == SyncReport(new=5, unchanged=3, messages=350)
    assert len(places(again, "topic42")) == 8
    assert again.indexed_share() == 1
    assert not (store.index_folder / SHARE_FILE).exists()
    assert synced(again, folder) == SyncReport(unchanged=8)


def test_a_sync_that_stops_at_once_changes_nothing(store: SessionStore, folder: Path) -> None:
    assert _sync(store, folder, lambda: True) == SyncReport(indexed=0)
    assert synced(store, folder) == SyncReport(new=8, messages=560)


def test_many_short_syncs_are_as_good_as_one(store: SessionStore, folder: Path) -> None:
    shares = [_sync(store, folder, StopAfter(3)).indexed for _ in range(5)]
    assert shares == [0.25, 0.5, 0.75, 1, 1]
    assert len(places(store, "topic42")) == 8
    assert [facts.id for facts in store.find_sessions()] == [name(number) for number in range(8, 0, -1)]


def test_a_worker_is_stopped_in_the_middle_of_a_file(store: SessionStore, folder: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start_endless_worker(_command: list[str]) -> "subprocess.Popen[bytes]":
        started.append(start_worker_process([sys.executable, "-c", "import sys; sys.stdin.read()"]))
        return started[-1]

    report = _sync(store, folder, StopAfter(4), workers=2, start_process=start_endless_worker)
    assert report == SyncReport(indexed=0)
    assert all(process.poll() is not None for process in started)
    assert synced(store, folder) == SyncReport(new=8, messages=560)


def test_a_bounded_sync_reads_very_large_files_last(store: SessionStore, folder: Path) -> None:
    jobs = plan_sync(store.archive.sources(), {str(path): "" for path in folder.iterdir()}).jobs
    large = next(job for job in jobs if name(8) in str(job.path))
    jobs[jobs.index(large)] = large._replace(stat=large.stat._replace(size=1_000_000_000))
    assert order_by_age(jobs)[0].path == large.path
    assert order_by_age(jobs, postpone_large=True)[-1].path == large.path


def test_a_rebuild_of_the_index_can_stop_and_resume(store: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 64 * BLOCKS_PER_STEP))
    synced(store, folder)
    upgraded = SessionStore(store.folder, document_version=DOCUMENT_VERSION + 1)
    assert upgraded.indexed_share() == 0
    assert _sync(upgraded, folder, StopAfter(2)).indexed == pytest.approx(1 / 3, abs=0.001)
    assert len(places(upgraded, "topic69")) == 1
    resumed = SessionStore(store.folder, document_version=DOCUMENT_VERSION + 1)
    steps: list[int] = []
    sync_sources(resumed, [(None, path) for path in folder.iterdir()], progress=lambda done, _: steps.append(done))
    assert steps == [BLOCKS_PER_STEP, 2 * BLOCKS_PER_STEP]  # the first third is not read again
    assert len(places(resumed, "topic69")) == 3
    assert resumed.indexed_share() == 1


def test_an_unreadable_rest_does_not_leave_the_index_incomplete(store: SessionStore, folder: Path) -> None:
    assert _sync(store, folder, StopAfter(8)).indexed < 1
    (folder / f"{name(1)}.jsonl").unlink()
    assert synced(store, folder) == SyncReport(unchanged=7)
    assert store.indexed_share() == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from thresher.memory.ingest.sync import sync_sources
from thresher.memory.ingest.workers import IngestOptions
from thresher.memory.index.commit_pace import CommitSizes
from thresher.memory.session_store import SessionStore

def progress(done, total):
    if done * 8 >= int(sys.argv[3]) * total:
        os.kill(os.getpid(), signal.SIGKILL)

store = SessionStore(sys.argv[1], commit_sizes=CommitSizes(1, 1))
files = [(None, path) for path in Path(sys.argv[2]).iterdir()]
sync_sources(store, files, progress=progress, options=IngestOptions(workers=2))
"""


@pytest.mark.parametrize("files", [1, 5])
def test_a_killed_build_resumes(store: SessionStore, folder: Path, files: int) -> None:
    command = [sys.executable, "-c", KILLED, str(store.folder), str(folder), str(files)]
    assert subprocess.run(command, check=False).returncode == -9
    assert store.indexed_share() < 1
    report = synced(store, folder)
    assert report.new + report.unchanged == 8
    assert sorted(facts.id for facts in store.find_sessions()) == [name(number) for number in range(1, 9)]
    for word, place in (("topic0", 0), ("topic63", 63), ("topic69", 69)):
        assert places(store, word) == [(name(number), place) for number in range(1, 9)]
    assert synced(store, folder) == SyncReport(unchanged=8)


def test_a_search_reports_the_share_of_an_incomplete_index(folder: Path) -> None:
    memory = _memory(folder)
    assert memory.search("topic42", sync=False).indexed == 1  # nothing is archived yet
    assert memory.refresh(stop=StopAfter(3)).report.indexed == 0.25
    assert _found(memory) == (2, 0.25)
    memory.sync()
    assert _found(memory) == (8, 1)


def test_vectors_wait_until_the_index_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = _memory(folder)
    found: list[int] = []
    monkeypatch.setattr(memory, "build_vectors", lambda **_: found.append(len(places(memory.store, "topic42"))))
    memory.sync(stop=StopAfter(3))
    assert found == []
    memory.sync()
    assert found == [8]
    memory.sync()  # without changes, too: the vectors may not be complete
    assert found == [8, 8]


def test_the_number_of_characters_between_commits_grows_up_to_a_limit() -> None:
    pace = CommitPace(CommitSizes(10, 100))
    limits = []
    for _ in range(4):
        count = 0
        while not pace.is_due:
            pace.add(1)
            count += 1
        limits.append(count - 1)
        pace.record_commit()
    assert limits == [10, 40, 100, 100]


class SteppedMemory(Memory):
    """Reads two files in each slice, and waits for permission before each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.permits = threading.Semaphore(0)
        self.is_reading = threading.Event()
        self.slices = 0

    def refresh(self, **_: Any) -> Any:
        self.permits.acquire()
        self.is_reading.set()
        self.slices += 1
        return super().refresh(stop=StopAfter(3))


def test_a_background_sync_continues_after_the_wait(folder: Path) -> None:
    memory = SteppedMemory(home=folder.parent / "home", sources=[folder], discover=False)
    background = BackgroundSync(memory)
    assert not background.refresh(0)
    memory.permits.release(4)
    assert background.refresh(60)
    assert _found(_memory(folder)) == (8, 1)
    assert 4 <= memory.slices <= 5


def test_a_closed_background_sync_keeps_what_it_has_read(folder: Path) -> None:
    memory = SteppedMemory(home=folder.parent / "home", sources=[folder], discover=False)
    background = BackgroundSync(memory)
    background.refresh(0)
    memory.permits.release()
    assert memory.is_reading.wait(60)
    background.close()
    assert not background.refresh(60)
    assert _found(_memory(folder)) == (2, 0.25)
    memory.sync()
    assert _found(memory) == (8, 1)


def test_an_error_of_a_background_sync_is_raised(folder: Path) -> None:
    memory = Memory(home=folder.parent / "home", sources=[folder], discover=False, retention="1h")
    background = BackgroundSync(memory)
    for _ in range(2):
        with pytest.raises(OptionError, match="retention"):
            background.refresh(60)
