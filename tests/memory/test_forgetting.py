"""Forgetting: nothing of a session is left in the archive, the index or the content store, and relatives are named."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chats import chat, name

from thresher.memory import Memory
from thresher.model import Text, ToolCall
from thresher.store import NotStoredError, SqliteContentStore
from thresher.store.sqlite import content_store_in

WORDS = "the pelican keeps its plans under the third stone"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.jsonl").write_bytes(chat(name(1), [WORDS, "a plain answer"]))
    (tmp_path / "files" / "two.jsonl").write_bytes(chat(name(2), ["another conversation", "another answer"]))
    made = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False)
    made.sync()
    return made


def _id_of(text: str, store: SqliteContentStore) -> str:
    store.put([Text(text)])
    with closing(sqlite3.connect(store.path)) as connection:
        return str(connection.execute("SELECT id FROM kept ORDER BY rowid DESC").fetchone()[0])


def test_forget_deletes_what_the_content_store_holds_of_a_session(memory: Memory, tmp_path: Path) -> None:
    store = content_store_in(tmp_path / "home")
    forgotten, other = _id_of(WORDS, store), _id_of("another answer", store)
    store.put([], {"t1:" + "a" * 32: (forgotten, other)})
    memory.forget(ids=[name(1)])
    assert store.get(forgotten) is None
    assert store.get("t1:" + "a" * 32) is None
    assert store.text(other) == "another answer"
    assert not any(b"pelican" in path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())


def test_another_spelling_of_a_call_is_deleted_with_it(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    store.put([ToolCall("a", "read", '{"path": "x"}'), ToolCall("b", "read", '{"path": "y"}')])
    assert store.forget([ToolCall("c", "read", '{"path":"x"}')]) == 1
    assert store.forget([ToolCall("c", "read", '{"path":"x"}')]) == 0


def test_forks_with_the_same_words_are_named_and_can_be_forgotten(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    lines = chat(name(1), [WORDS, "a plain answer"])
    forks = [json.loads(line) | {"sessionId": name(2)} for line in lines.splitlines()]
    fork = [line | {"forkedFrom": {"sessionId": name(1), "messageUuid": line["uuid"]}} for line in forks]
    (tmp_path / "files" / f"{name(1)}.jsonl").write_bytes(lines)
    (tmp_path / "files" / f"{name(2)}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in fork))
    memory = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False)
    memory.sync()
    selected = memory.forget(ids=[name(1)], dry=True)
    assert [session.id for session in memory.find_relatives(selected)] == [name(2)]
    assert {session.id for session in memory.forget(ids=[name(1)], family=True)} == {name(1), name(2)}
    assert memory.search("pelican").sessions == ()


def test_a_forgotten_session_is_not_looked_for_in_the_search(memory: Memory) -> None:
    memory.forget(ids=[name(1)])
    with pytest.raises(NotStoredError, match="thresher forget") as error:
        memory.recall(name(1), "what about the pelican?")
    assert "search" not in str(error.value)


def test_prune_deletes_old_content_and_a_use_renews_it(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    old, used, new = (_id_of(text, store) for text in ("old", "used again", "new"))
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("UPDATE kept SET used = used - 864000 WHERE id != ?", (new,))
        connection.commit()
    store.put([Text("used again")])
    assert store.prune(datetime.now(UTC) - timedelta(days=5)) == 1
    assert store.has([old, used, new]) == {used, new}
    assert store.prune() == 2


def test_the_retention_covers_the_content_store(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = content_store_in(tmp_path / "home")
    id = _id_of("removed long ago", store)
    memory.sync()
    assert store.get(id) is not None
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("UPDATE kept SET used = used - 86400 * 800")
        connection.commit()
    monkeypatch.setenv("THRESHER_RETENTION", "700d")
    memory.sync()
    assert store.get(id) is None


def test_a_store_of_an_earlier_version_is_upgraded_before_it_is_pruned(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE kept (id TEXT PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL); PRAGMA user_version = 1;"
            "INSERT INTO kept VALUES ('t1:0123456789abcdef0123456789abcdef', 'fold', CAST('[]' AS BLOB))"
        )
    store = SqliteContentStore(path)
    store.put([Text("new")])
    assert store.prune(datetime.now(UTC) - timedelta(days=1)) == 0
    assert store.prune() == 2
