"""Tests of multi-session sources: a sync reads only changed sessions of a database, and changed files of a folder."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from chats import places, synced

import thresher as th
from fixture_files import FIXTURES, ready
from thresher.memory.archive.sqlite import SCHEMA
from thresher.memory.ingest.sync import plan_sync
from thresher.memory.ingest.workers import IngestOptions
from thresher.memory.records import SyncReport
from thresher.memory.session_store import SessionStore
from thresher.transcripts import read_all


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return ready(FIXTURES / "opencode.store.sql", folder)


class Reads(list[list[str]]):
    """Return the sessions of each read; a sync stops after `most` reads."""

    most = 99

    def __call__(self, path: Path, **options: Any) -> list[th.Session]:
        if len(self) == self.most:
            raise KeyboardInterrupt
        sessions = read_all(path, **options)
        self.append([session.id for session in sessions])
        return sessions


@pytest.fixture
def reads() -> Reads:
    return Reads()


def change(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


SAY = """INSERT INTO part VALUES ('prt_99', 'msg_s04', 'ses_s2CHILD', 9, 1777100009999,
    '{"type":"text","text":"And count the hearthstones."}')"""


def test_only_changed_sessions_are_read(store: SessionStore, database: Path, reads: Reads) -> None:
    assert synced(store, database.parent, IngestOptions(reads)).new == 1
    change(database, SAY)
    assert synced(store, database.parent, IngestOptions(reads)).rewritten == 1
    assert reads == [["ses_s1MAIN", "ses_s2CHILD", "ses_s3NEWER"], ["ses_s2CHILD"]]
    assert places(store, "hearthstones") == [("ses_s2CHILD", 0)]
    assert not any(facts.gone for facts in store.find_sessions())


def test_many_sessions_are_read_in_batches(store: SessionStore, database: Path, reads: Reads) -> None:
    options = IngestOptions(reads, sessions_per_read=1)
    assert synced(store, database.parent, options) == SyncReport(new=1, messages=17)
    assert reads == [["ses_s1MAIN"], ["ses_s2CHILD"], ["ses_s3NEWER"]]
    assert synced(store, database.parent, options) == SyncReport(unchanged=1)
    change(database, SAY)
    assert synced(store, database.parent, options).rewritten == 1
    assert reads[3:] == [["ses_s2CHILD"]]
    assert not any(facts.gone for facts in store.find_sessions())


def test_forgotten_sessions_are_not_read_repeatedly(store: SessionStore, database: Path, reads: Reads) -> None:
    options = IngestOptions(reads, sessions_per_read=1)
    synced(store, database.parent, options)
    with store.write_lease():
        store.forget([facts.key for facts in store.find_sessions() if facts.id != "ses_s2CHILD"])
    change(database, SAY)
    assert synced(store, database.parent, options).forgotten_again == 2
    assert sorted(one for some in reads[3:] for one in some) == ["ses_s1MAIN", "ses_s2CHILD", "ses_s3NEWER"]
    assert [facts.id for facts in store.find_sessions()] == ["ses_s2CHILD"]


def test_an_interrupted_sync_continues_with_the_rest(store: SessionStore, database: Path, reads: Reads) -> None:
    options, reads.most = IngestOptions(reads, sessions_per_read=1), 1
    with pytest.raises(KeyboardInterrupt):
        synced(store, database.parent, options)
    reads.most = 99
    assert {facts.id for facts in store.find_sessions()} == {"ses_s1MAIN"}
    synced(store, database.parent, options)
    assert reads == [["ses_s1MAIN"], ["ses_s2CHILD"], ["ses_s3NEWER"]]
    assert len(store.find_sessions()) == 3


def test_a_database_in_use_is_read_in_its_current_state(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(SAY)
        writer.commit()
        synced(store, database.parent)
        assert places(store, "hearthstones") == [("ses_s2CHILD", 0)]
        writer.execute("BEGIN")
        writer.execute("DELETE FROM part")  # not committed yet, so no other process can see it
        synced(store, database.parent)
        assert places(store, "hearthstones") == [("ses_s2CHILD", 0)]


def test_the_journal_of_a_linked_database_is_checked(store: SessionStore, database: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "link.db").symlink_to(database)
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        synced(store, links)
        writer.execute(SAY)
        writer.commit()
        synced(store, links)
        assert places(store, "hearthstones") == [("ses_s2CHILD", 0)]


def test_an_unchanged_database_is_not_opened(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    plan = plan_sync(store.archive.sources(), {str(database): ""})
    assert (plan.jobs, plan.unchanged) == ([], 1)


def test_a_touched_database_is_not_read(store: SessionStore, database: Path, reads: Reads) -> None:
    synced(store, database.parent, IngestOptions(reads))
    change(database, "CREATE TABLE another (x)")
    assert synced(store, database.parent, IngestOptions(reads)).unchanged == 1
    assert len(reads) == 1


def test_deleted_sessions_stay_and_restored_ones_are_current(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    copy = database.read_bytes()
    change(database, "DELETE FROM session_message", "DELETE FROM session WHERE id = 'ses_s3NEWER'")
    synced(store, database.parent)
    assert {facts.id for facts in store.find_sessions() if facts.gone} == {"ses_s3NEWER"}
    assert places(store, "oven off turned") != []
    database.write_bytes(copy)
    synced(store, database.parent)
    assert not any(facts.gone for facts in store.find_sessions())


def test_database_sessions_have_families(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    facts = {one.id: one for one in store.find_sessions()}
    assert len({one.root for one in facts.values()}) == 1
    assert {id for id, one in facts.items() if one.subagent} == {"ses_s2CHILD"}
    assert facts["ses_s2CHILD"].call == "toolu_1"


def in_folders(place: Path) -> Path:
    """Write a session as older OpenCode versions do: one file per session, message and part."""
    storage = place / "storage"
    document = json.loads((FIXTURES / "opencode.json").read_text(encoding="utf-8"))
    files: dict[str, Any] = {f"session/p1/{document['info']['id']}.json": document["info"]}
    for number, row in enumerate(document["messages"]):
        message = f"msg_{number:02}"
        files[f"message/{document['info']['id']}/{message}.json"] = row["info"]
        files |= {f"part/{message}/prt_{place:02}.json": part for place, part in enumerate(row["parts"])}
    for name, value in files.items():
        path = storage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
    return next(storage.glob("session/p1/*.json"))


def test_a_folder_store_equals_an_export(tmp_path: Path) -> None:
    export, folders = (th.read(path) for path in (FIXTURES / "opencode.json", in_folders(tmp_path)))
    assert isinstance(export, th.Session)
    assert isinstance(folders, th.Session)
    assert [message.parts for message in folders.messages(branches=True)] == [
        message.parts for message in export.messages(branches=True)
    ]
    assert {message.source.file for message in folders.messages() if message.source} <= set(folders.files)


def test_a_changed_part_file_is_detected(store: SessionStore, tmp_path: Path) -> None:
    facts = in_folders(tmp_path / "files")
    assert synced(store, tmp_path / "files").new == 1
    part = facts.parents[2] / "part" / "msg_00" / "prt_00.json"
    part.write_text(json.dumps({"type": "text", "text": "Is the damper shut?"}), encoding="utf-8")
    synced(store, tmp_path / "files")
    assert [place for _, place in places(store, "damper")] == [0]
    more = facts.parents[2] / "part" / "msg_00" / "prt_77.json"
    more.write_text(json.dumps({"type": "text", "text": "And the flue?"}), encoding="utf-8")
    synced(store, tmp_path / "files")
    assert [place for _, place in places(store, "flue")] == [0]


def test_an_archive_of_the_first_version_is_migrated(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    truth = store.archive.name
    with closing(sqlite3.connect(truth)) as connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN mark")
        connection.execute("DROP TABLE tombstones")
        connection.execute("CREATE TABLE tombstones (block INTEGER PRIMARY KEY)")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    change(database, SAY)
    again = SessionStore(store.folder)
    synced(again, database.parent)
    assert places(again, "hearthstones") == [("ses_s2CHILD", 0)]
    with closing(sqlite3.connect(truth)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA.version


def test_a_damaged_database_is_reported_and_its_sessions_stay(store: SessionStore, database: Path) -> None:
    synced(store, database.parent)
    data = bytearray(database.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    database.write_bytes(bytes(data))
    report = synced(store, database.parent)
    assert report.failed or report.foreign
    assert places(store, "two ovens on") != []
