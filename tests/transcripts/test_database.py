"""Another program's database is read in any state, and stays unchanged."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from thresher.errors import ReadError
from thresher.transcripts.sqlite_source import open_read_only, read_table_columns

WRITER = """
import os, sqlite3, sys
path, mode, *steps = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
connection.execute(f"PRAGMA journal_mode={mode}")
connection.execute("PRAGMA cache_size=1")
connection.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, words TEXT)")
for step in steps:
    if step == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    elif step == "die":
        os._exit(0)
    elif step == "much":
        for number in range(2000):
            connection.execute("INSERT INTO notes (words) VALUES (hex(randomblob(200)))")
    else:
        connection.execute(step)
connection.close()
"""
ADD = "INSERT INTO notes (words) VALUES ('one')"
Bytes = dict[str, bytes]


@contextmanager
def writing(path: Path, mode: str, *steps: str) -> Iterator["subprocess.Popen[str]"]:
    """Run another process up to its first `wait`. Each line of input continues it to the next."""
    command = [sys.executable, "-c", WRITER, str(path), mode, *steps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate("\n" * steps.count("wait"), timeout=30)


def written(path: Path, mode: str, *steps: str) -> Path:
    """Create a database in another process, and return its path."""
    subprocess.run([sys.executable, "-c", WRITER, str(path), mode, *steps], check=True, timeout=30)
    return path


def words(connection: sqlite3.Connection) -> list[str]:
    return [row["words"] for row in connection.execute("SELECT words FROM notes ORDER BY id")]


def contents(folder: Path, *, but: str = "") -> Bytes:
    return {path.name: b"" if path.name == but else path.read_bytes() for path in sorted(folder.iterdir())}


@contextmanager
def unchanged(folder: Path, *, but: str = "") -> Iterator[None]:
    before = contents(folder, but=but)
    yield
    assert contents(folder, but=but) == before


def test_committed_rows_are_visible_during_a_write(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with writing(path, "wal", ADD, "BEGIN", ADD, "wait", "COMMIT", "wait"):
        assert (tmp_path / "a.db-wal").stat().st_size
        # A reader registers its lock in shared memory; nothing else changes.
        with unchanged(tmp_path, but="a.db-shm"), open_read_only(path) as connection:
            assert words(connection) == ["one"]


def test_a_reader_sees_one_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with writing(path, "wal", ADD, "wait", ADD, "wait") as process, open_read_only(path) as connection:
        assert words(connection) == ["one"]
        assert process.stdin
        assert process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        assert words(connection) == ["one"]
        with open_read_only(path) as later:
            assert words(later) == ["one", "one"]


def test_with_an_empty_journal_no_file_is_created_or_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with writing(path, "wal", ADD, "PRAGMA wal_checkpoint(TRUNCATE)", "wait"):
        assert (tmp_path / "a.db-wal").stat().st_size == 0
        with unchanged(tmp_path, but="a.db-shm"), open_read_only(path) as connection:
            assert words(connection) == ["one"]


def test_a_closed_database_is_read_without_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", ADD)
    with unchanged(tmp_path), open_read_only(path) as connection:
        assert words(connection) == ["one"]
    assert [*contents(tmp_path)] == ["a.db"]


def test_committed_rows_of_a_killed_program_are_visible(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", ADD, "BEGIN", ADD, "die")
    assert [*contents(tmp_path)] == ["a.db", "a.db-shm", "a.db-wal"]
    with unchanged(tmp_path, but="a.db-shm"), open_read_only(path) as connection:
        assert words(connection) == ["one"]


def test_a_journal_without_shared_memory_is_read_from_a_copy(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", ADD, "die")
    (tmp_path / "a.db-shm").unlink()
    with unchanged(tmp_path), open_read_only(path) as connection:
        assert words(connection) == ["one"]
        copy = Path(connection.execute("PRAGMA database_list").fetchone()["file"])
        assert copy.is_file()
        assert copy.parent != path.parent
    assert not copy.parent.exists()


def test_an_empty_leftover_journal_is_ignored(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", ADD)
    (tmp_path / "a.db-wal").touch()
    with unchanged(tmp_path), open_read_only(path) as connection:
        assert words(connection) == ["one"]


def test_an_unrelated_journal_causes_no_write(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "delete", ADD)
    for stray in (b"", b"stray" * 1000):
        (tmp_path / "a.db-wal").write_bytes(stray)
        with unchanged(tmp_path), open_read_only(path) as connection:
            assert words(connection) == ["one"]


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist"])
def test_a_database_without_a_journal_of_its_own_is_read_in_place(tmp_path: Path, mode: str) -> None:
    path = written(tmp_path / "a.db", mode, ADD)
    with unchanged(tmp_path), open_read_only(path) as connection:
        assert words(connection) == ["one"]


def test_an_interrupted_transaction_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "delete", ADD, "BEGIN", "much", "die")
    assert (tmp_path / "a.db-journal").stat().st_size
    with unchanged(tmp_path), open_read_only(path) as connection:
        assert words(connection) == ["one"]


def test_a_reader_waits_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    locked = pytest.raises(ReadError, match="locked; try again")
    steps = (ADD, "BEGIN EXCLUSIVE", ADD, "wait", "COMMIT")
    with writing(path, "delete", *steps), locked, open_read_only(path, lock_timeout=0.05):
        pass
    with open_read_only(path) as connection:
        assert words(connection) == ["one", "one"]


def test_nothing_can_be_written(tmp_path: Path) -> None:
    for mode in ("wal", "delete"):
        path = written(tmp_path / f"{mode}.db", mode, ADD)
        with unchanged(tmp_path), pytest.raises(ReadError, match="readonly"), open_read_only(path) as connection:
            connection.execute(ADD)


@pytest.mark.parametrize("name", ["what?.db", "no#1.db", "100%41.db", "two words.db", "ä&b=c.db", "file:x.db"])
@pytest.mark.parametrize("how", ["closed", "killed", "without shared memory"])
def test_special_characters_in_a_name_are_quoted(tmp_path: Path, name: str, how: str) -> None:
    if sys.platform == "win32" and set(name) & set("?:"):
        pytest.skip("invalid file name on Windows")
    folder = tmp_path / "odd % folder?mode=rw#"
    folder.mkdir()
    path = written(folder / name, "wal", ADD, *([] if how == "closed" else ["die"]))
    if how == "without shared memory":
        path.with_name(f"{name}-shm").unlink()
    with unchanged(folder, but=f"{name}-shm"), open_read_only(path) as connection:
        assert words(connection) == ["one"]


def test_a_link_uses_the_journal_of_its_target(tmp_path: Path) -> None:
    store, links = tmp_path / "store", tmp_path / "links"
    store.mkdir()
    links.mkdir()
    (links / "b.db").symlink_to(store / "a.db")
    (links / "loop.db").symlink_to(links / "loop.db")
    with writing(store / "a.db", "wal", ADD, "wait"):
        assert (store / "a.db-wal").stat().st_size
        with open_read_only(links / "b.db") as connection:
            assert words(connection) == ["one"]
    assert sorted(path.name for path in links.iterdir()) == ["b.db", "loop.db"]
    with pytest.raises(ReadError, match="cannot be read"), open_read_only(links / "loop.db"):
        pass


def test_a_change_during_an_unlocked_read_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", ADD)
    with pytest.raises(ReadError, match="changed during the read; try again"), open_read_only(path):
        written(path, "wal", "much")
    with open_read_only(path) as connection:
        assert len(words(connection)) == 2001


def test_a_change_during_a_copy_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.db", "wal", ADD, "die")
    (tmp_path / "a.db-shm").unlink()
    copy = shutil.copyfile

    def overtaken(one: Path, other: Path) -> None:
        copy(one, other)
        with (tmp_path / "a.db-wal").open("ab") as journal:
            journal.write(b"more")

    monkeypatch.setattr(shutil, "copyfile", overtaken)
    with pytest.raises(ReadError, match="changed during the read; try again"), open_read_only(path):
        pass


def test_a_relative_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "a.db", "wal", ADD)
    monkeypatch.chdir(tmp_path)
    with open_read_only(Path("a.db")) as connection:
        assert words(connection) == ["one"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can write to any folder")
@pytest.mark.parametrize("steps", [(ADD,), (ADD, "die")], ids=["closed", "killed"])
def test_a_read_only_folder_is_read(tmp_path: Path, steps: tuple[str, ...]) -> None:
    path = written(tmp_path / "a.db", "wal", *steps)
    tmp_path.chmod(0o500)
    try:
        with open_read_only(path) as connection:
            assert words(connection) == ["one"]
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_is_not_a_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Milk, flour, eggs." * 100)
    torn = written(tmp_path / "torn.db", "wal", "much")
    torn.write_bytes(torn.read_bytes()[:5000] + b"\0" * 60_000)
    for path, said in (
        (tmp_path / "notes.txt", "file is not a database"),
        (tmp_path / "none.db", "No such file"),
        (tmp_path, "Is a directory|Permission"),
        (torn, "malformed"),
    ):
        with pytest.raises(ReadError, match=said) as caught, open_read_only(path) as connection:
            words(connection)
        assert str(path) in str(caught.value)


def test_columns_are_listed_by_table(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "wal", "INSERT INTO notes (words) VALUES (CAST(x'63ff' AS TEXT))")
    with open_read_only(path) as connection:
        assert connection.execute("SELECT words FROM notes").fetchone()["words"] == "c\ufffd"
        assert read_table_columns(connection) == {"notes": {"id", "words"}}


def test_an_empty_file_has_no_tables(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with unchanged(tmp_path), open_read_only(tmp_path / "empty.db") as connection:
        assert read_table_columns(connection) == {}


def test_a_writer_continues_undisturbed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with writing(path, "wal", ADD, "wait", ADD, "PRAGMA wal_checkpoint(TRUNCATE)"), open_read_only(path) as connection:
        assert words(connection) == ["one"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (2,)
    assert [*contents(tmp_path)] == ["a.db"]
