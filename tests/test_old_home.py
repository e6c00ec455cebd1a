"""Upgrade a data folder of an earlier version without losing content."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.memory import Memory
from thresher.memory.archive.sqlite import SqliteArchive
from thresher.store import StoreError

FIXTURE = Path(__file__).parent / "fixtures" / "old_home"
MESSAGES = [(4, False), (4, False), (47, False), (8, True)]
"""For each session, its number of messages and whether it is a sub-agent's."""
PARENT = "e923391d-4e06-42be-bb3b-8649c50d3f76"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(FIXTURE / "home", tmp_path / "home")
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _expected() -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))
    return expected


def _titles(memory: Memory, words: str) -> list[str]:
    return [one.title for one in memory.search(words, sync=False).sessions]


def test_the_archive_is_renamed_without_losses(home: Path) -> None:
    memory = Memory(discover=False)
    before = {path.name for path in (home / "memory").iterdir()}
    assert "truth.sqlite3" in before
    assert memory.store.exists()
    sessions = memory.store.find_sessions()
    assert {path.name for path in (home / "memory").iterdir()} == {"archive.sqlite3", "index", "sync.lock"}
    assert [(one.messages, one.subagent) for one in sessions] == MESSAGES
    with closing(sqlite3.connect(home / "memory" / "archive.sqlite3")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert memory.store.is_index_behind()
    memory.sync()
    assert not memory.store.is_index_behind()
    assert _titles(memory, "spare barrel of lamp oil")[0].startswith("How do we light the lighthouse")
    assert _titles(memory, "ferry in winter")[0].startswith("When does the last ferry leave")
    assert _titles(memory, "xylophone") == []
    parent = memory.session(PARENT)
    assert [child.parent for child in parent.children] == [PARENT]


def test_forgotten_sessions_stay_forgotten(home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home / "memory" / "truth.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM forgotten").fetchone() == (1,)
    id = "00000000-0000-0000-0000-000000000003"
    row = {
        "type": "user",
        "uuid": "f4f0b9a1-7f3c-5b57-9d8b-0c6f2f4b8a11",
        "parentUuid": None,
        "sessionId": id,
        "timestamp": "2026-03-03T10:00:00.000Z",
        "cwd": "/home/sam/shop",
        "message": {"role": "user", "content": "The xylophone in the attic is out of tune."},
    }
    (tmp_path / f"{id}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    memory = Memory(sources=[tmp_path / f"{id}.jsonl"], discover=False)
    assert memory.sync().forgotten_again == 1
    assert _titles(memory, "xylophone") == []


def test_renaming_includes_the_content_of_the_log(home: Path) -> None:
    """A process of the earlier version was killed, so its latest changes are in the log."""
    truth = home / "memory" / "truth.sqlite3"
    with closing(sqlite3.connect(truth, isolation_level=None)) as connection:
        connection.execute("UPDATE sessions SET title = 'a title in the log' WHERE subagent")
        assert truth.with_name("truth.sqlite3-wal").stat().st_size
        copies = {path.name: path.read_bytes() for path in truth.parent.glob("truth.sqlite3*")}
    for name, data in copies.items():
        truth.with_name(name).write_bytes(data)
    assert "a title in the log" in {one.title for one in Memory().store.find_sessions()}
    assert not [*truth.parent.glob("truth*")]


def test_concurrent_processes_rename_once(home: Path) -> None:
    code = "import thresher; print(len(thresher.Memory(discover=False).store.find_sessions()))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[0].strip() for process in running] == [str(len(MESSAGES))] * 6
    assert not [*(home / "memory").glob("truth*")]


def test_an_archive_that_another_process_uses_is_not_renamed(home: Path) -> None:
    truth = home / "memory" / "truth.sqlite3"
    memory = Memory(archive=SqliteArchive(truth.with_name("archive.sqlite3"), timeout=0.2))
    with closing(sqlite3.connect(truth)) as connection:
        connection.execute("SELECT count(*) FROM sessions").fetchone()
        with pytest.raises(StoreError, match="stop all other Thresher processes"):
            memory.store.find_sessions()
        assert truth.exists()
    assert len(memory.store.find_sessions()) == len(MESSAGES)


def test_a_window_resumes_from_the_ledger(home: Path) -> None:
    expected = _expected()
    window = th.Window(budget=expected["budget"], ledger=home / "ledger.sqlite3", model="claude-sonnet-4-6")
    assert window.fit(expected["messages"], at=expected["at"]) == expected["sent"]
    assert not window.events
    with closing(sqlite3.connect(home / "ledger.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM epochs").fetchone()[0] == 3


def test_the_content_store_restores_every_byte(home: Path) -> None:
    restored = _expected()["restored"]
    assert restored
    for id, text in restored.items():
        assert th.restore(id) == text
    th.fit([{"role": "user", "content": "word " * 5000}, *_expected()["messages"]], policy="smart", budget=2500)
    with closing(sqlite3.connect(home / "store.sqlite3")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert {id: th.restore(id) for id in restored} == restored
