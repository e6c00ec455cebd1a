"""Opening SQLite files: permissions, migrations and errors."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from thresher.errors import ThresherError
from thresher.memory import Memory
from thresher.model import Text
from thresher.store import SqliteContentStore, StoreError
from thresher.store.sqlite_file import SqliteFile, SqliteSchema
from thresher.window import Ledger, LedgerError

SCHEMA = SqliteSchema(
    3, ("CREATE TABLE notes (text TEXT, mark TEXT)",), {1: ("ALTER TABLE notes ADD COLUMN mark TEXT",), 2: ()}
)


def _put(path: Path) -> None:
    SqliteContentStore(path).put([Text("something that was removed")])


def _note(path: Path) -> None:
    Ledger(path).set_fact("name", 1)


def _sync(path: Path) -> None:
    Memory(home=path.parent.parent, discover=False).store.find_sessions()


FILES: dict[str, Callable[[Path], None]] = {
    "store.sqlite3": _put,
    "ledger.sqlite3": _note,
    "memory/archive.sqlite3": _sync,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_private_and_a_newer_version_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "home" / name
    FILES[name](path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ThresherError, match="newer version"):
        FILES[name](path)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_others_can_read_becomes_private(tmp_path: Path, name: str) -> None:
    path = tmp_path / "home" / name
    FILES[name](path)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    FILES[name](path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_reading_makes_a_store_private(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    _put(path)
    path.chmod(0o664)
    SqliteContentStore(path).has(["t1:01234567"])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_saved_ledger_is_private(tmp_path: Path) -> None:
    path = tmp_path / "saved.sqlite3"
    ledger = Ledger()
    ledger.set_fact("name", 1)
    ledger.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Ledger(path).get_fact("name") == 1


def test_an_older_file_is_upgraded_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('kept')")
        connection.execute("PRAGMA user_version = 1")
    found: list[object] = []

    def upgrade() -> None:
        with SqliteFile(path, SCHEMA).open() as connection:
            found.extend(connection.execute("SELECT text, mark FROM notes"))

    threads = [threading.Thread(target=upgrade) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("kept", None)] * 8


def test_reading_does_not_create_or_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "none" / "notes.sqlite3"
    with SqliteFile(path, SCHEMA).open_existing() as connection:
        assert connection is None
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    with SqliteFile(path, SCHEMA).open_existing() as connection:
        assert connection is None
    assert path.stat().st_size == 0


def test_the_error_for_a_damaged_file_says_so(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "notes.sqlite3", SCHEMA)
    with file.open() as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    data = (tmp_path / "notes.sqlite3").read_bytes()
    (tmp_path / "notes.sqlite3").write_bytes(data[:100] + bytes(len(data) - 100))
    with pytest.raises(StoreError, match="is damaged: restore a backup"), file.open() as connection:
        connection.execute("SELECT * FROM sqlite_master").fetchall()


def test_a_file_that_is_not_a_database_is_an_error_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"notes\.sqlite3: cannot be read or written .*THRESHER_HOME"):
        SqliteFile(path, SCHEMA).connect()
    with pytest.raises(LedgerError, match=r"cannot be read or written .*name another file"):
        SqliteFile(path, SCHEMA, error=LedgerError, advice="name another file").connect()
