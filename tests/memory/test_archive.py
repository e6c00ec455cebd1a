"""Tests of the archive: sessions round-trip, and only changed blocks are written."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from chats import chat, name, places, synced, talk
from msgspec import structs
from tantivy import Query

from thresher.memory.archive.block_codec import compress, decode_messages, encode_value
from thresher.memory.ingest.extract import prepare_sessions
from thresher.memory.records import FileStat, SourceRecord
from thresher.memory.session_store import SessionStore
from thresher.model import AbandonedBranch, History, Message, Session, Text, ToolCall
from thresher.samples import write_samples
from thresher.store.errors import NotStoredError, StoreError
from thresher.transcripts import read_all


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


def _bare(session: Session) -> Session:
    """Return the session without raw records, as the archive restores it."""

    def bare(history: History) -> History:
        return structs.replace(history, messages=tuple(structs.replace(one, records=()) for one in history))

    return structs.replace(
        session,
        segments=tuple(map(bare, session.segments)),
        branches=tuple(AbandonedBranch(bare(branch.history), branch.after_message_id) for branch in session.branches),
        children=tuple(map(_bare, session.children)),
    )


def _record(store: SessionStore, *sessions: Session, file: str = "/a") -> int:
    with store.write_lease():
        added = store.record(SourceRecord(file, FileStat(1, 2, 3, 4), prefix=b"x"), [*prepare_sessions(sessions, {})])
        store.refresh_index()
    return added.new_messages


def _said(*texts: str, id: str = "one", **more: object) -> Session:
    messages = tuple(Message("user", (Text(text),)) for text in texts)
    return Session("claude-code", id, "/a", (History(messages),), **more)  # type: ignore[arg-type]


def test_samples_round_trip(store: SessionStore, tmp_path: Path) -> None:
    files = [path for path in write_samples(tmp_path / "home") if "subagents" not in str(path)]
    synced(store, tmp_path / "home")
    for file in files:
        for session in read_all(file):
            (facts,) = store.find_sessions(id=session.id)
            assert store.session(facts.key) == _bare(session)
            assert (facts.title, facts.project, facts.started) == (session.title, session.project, session.started)


def test_every_format_round_trips(store: SessionStore, shared_data: Path, tmp_path: Path) -> None:
    for folder in ("claude_code", "codex", "pi", "mini_swe", "opencode", "openai_tools"):
        file = min((shared_data / folder).iterdir(), key=lambda path: (path.stat().st_size, path.name))
        (tmp_path / "data").mkdir(exist_ok=True)
        copy = tmp_path / "data" / f"{folder}-{file.name}"
        copy.write_bytes(file.read_bytes())
        synced(store, tmp_path / "data")
        for session in read_all(copy):
            found = [one for one in store.find_sessions(id=session.id) if one.file == str(copy)]
            assert _bare(session) in [store.session(one.key) for one in found]


def test_unpaired_surrogates_round_trip(store: SessionStore) -> None:
    odd = Message("user", (Text("half \ud800 of it, and \U0001f600"),))
    assert decode_messages(compress(encode_value([odd]))) == [odd]
    _record(store, _said("half \ud800 a pair of words", title="a \udc00 title", project="/\ud800"))
    assert [part.text for part in store.messages(1)[0].parts] == ["half \ud800 a pair of words"]  # type: ignore[union-attr]
    assert places(store, "pair") == [("one", 0)]
    assert store.find_sessions()[0].title == "a ? title"


def test_messages_by_index(store: SessionStore) -> None:
    _record(store, _said(*map(str, range(200))))
    for start, stop in ((0, 1), (63, 65), (64, 128), (130, 200), (199, 900), (500, 501), (5, 5)):
        assert [one.text for one in store.messages(1, start, stop)] == [str(n) for n in range(200)][start:stop]
    assert len(store.messages(1, 100)) == 100


def test_growth_rewrites_only_the_last_block(store: SessionStore) -> None:
    texts = [f"word{number} and some more" for number in range(150)]
    assert _record(store, _said(*texts)) == 150
    assert [row[:3] for row in store.archive.find_blocks()] == [(1, 0, 1), (1, 1, 2), (1, 2, 3)]
    assert _record(store, _said(*texts, "and word150 at the end")) == 1
    assert [row[:3] for row in store.archive.find_blocks()] == [(1, 0, 1), (1, 1, 2), (1, 2, 4)]
    assert places(store, "word150", "human") == [("one", 150)]
    assert places(store, "word149", "human") == [("one", 149)]


def test_lost_messages_stay_in_an_old_version_until_they_return(store: SessionStore) -> None:
    texts = [f"word{number} and some more" for number in range(150)]
    _record(store, _said(*texts))
    assert _record(store, _said(*texts[:70], "something else was said")) == 1
    assert [row[:2] for row in store.archive.find_blocks()] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    assert places(store, "word149", "human") == [("one", 149)]
    assert [(one.messages, one.gone, one.root) for one in store.find_sessions()] == [
        (150, True, "one"),
        (71, False, "one"),
    ]
    _record(store, _said(*texts[:70], "something else was said", *texts[70:]))
    assert [(one.messages, one.gone) for one in store.find_sessions()] == [(151, False)]
    assert places(store, "word149", "human") == [("one", 150)]


def test_an_emptied_file_removes_nothing(store: SessionStore) -> None:
    _record(store, _said("we speak of pelicans"))
    assert _record(store, _said()) == 0
    assert [(one.messages, one.gone) for one in store.find_sessions()] == [(1, True)]
    assert places(store, "pelicans") == [("one", 0)]


def test_an_incomplete_message_is_not_lost(store: SessionStore) -> None:
    def turn(said: str, arguments: str) -> Session:
        parts = (Text(said), ToolCall("call-1", "Bash", arguments))
        return Session("opencode", "one", "/a", (History((Message("assistant", parts, "model", id="message-1"),)),))

    _record(store, turn("I run", "{}"))
    _record(store, turn("I run the tests", '{"command": "make test"}'))
    assert [(one.messages, one.gone) for one in store.find_sessions()] == [(1, False)]


def _derived(store: SessionStore) -> list[int]:
    index = store.open_index()
    assert index is not None
    return [one.at for one in index.search(Query.all_query(), 1000) if one.derived]


def test_a_later_recall_reindexes_an_earlier_block(store: SessionStore) -> None:
    """The prompt before a recall is derived, and the recall may be in the next block."""
    texts = tuple(Message("user", (Text(f"say what was said of topic{number}"),)) for number in range(64))
    asked = (*texts, Message("assistant", (ToolCall("c", "mcp__thresher__search", '{"query": "topics"}'),), "model"))
    _record(store, Session("claude-code", "one", "/a", (History(texts),)))
    assert _derived(store) == []
    _record(store, Session("claude-code", "one", "/a", (History(asked),)))
    assert _derived(store) == [63]
    assert [row[1:3] for row in store.archive.find_blocks()] == [(0, 2), (1, 3)]


def test_sessions_are_found_by_their_fields(store: SessionStore) -> None:
    day = datetime(2026, 3, 1, tzinfo=UTC)
    session = _said(
        "hello to all of you", id="abc", project="/home/sam/Shop", git_branch="fix/tax", started=day, ended=day
    )
    _record(store, session, _said("another session it is", id="abd"))
    assert [one.id for one in store.find_sessions()] == ["abc", "abd"]
    for given in ({"id": "abc"}, {"project": "shop"}, {"branch": "fix/tax"}, {"keys": [1]}):
        assert [one.id for one in store.find_sessions(**given)] == ["abc"]
    assert [one.id for one in store.find_sessions([2], agent="claude-code")] == ["abd"]
    assert store.find_sessions([]) == store.find_sessions(agent="codex") == store.find_sessions(id="ab%") == []
    with pytest.raises(NotStoredError, match="no session has the key 9"):
        store.session(9)


def test_sessions_that_a_file_lost_are_marked_and_stay(store: SessionStore) -> None:
    _record(store, _said("the first one is here", id="a"), _said("the second one is here", id="b"))
    _record(store, _said("the second one is here", id="b"))
    assert [(one.id, one.gone) for one in store.find_sessions()] == [("a", True), ("b", False)]
    assert places(store, "first", "human") == [("a", 0)]


def test_sessions_with_the_same_name_in_one_file_stay_separate(store: SessionStore) -> None:
    _record(store, _said("the first one is here"), _said("the second one is here"))
    _record(store, _said("the first one is here"), _said("the second one is here"))
    assert [one.id for one in store.find_sessions()] == ["one", "one"]
    assert len({one.root for one in store.find_sessions()}) == 2


def test_forgetting_removes_every_byte(store: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    secret, other = folder / f"{name(1)}.jsonl", folder / f"{name(2)}.jsonl"
    secret.write_bytes(chat(name(1), ["the xylophonist lives at platypusville", "understood, the xylophonist"] * 50))
    other.write_bytes(chat(name(2), ["nothing of that is in here", "indeed it is not"]))
    synced(store, folder)
    assert _holds(store.folder, b"xylophonist")
    (facts,) = store.find_sessions(id=name(1))
    bodies = store.archive.read_blocks(facts.key)
    assert all(_holds(store.folder, body[:200]) for body in bodies)
    assert _terms(store, "xylophon")
    with store.write_lease():
        assert store.forget([facts.key]) == 1
    assert not any(_holds(store.folder, body[:200]) for body in bodies)
    assert not _terms(store, "xylophon")
    assert not any(_holds(store.folder, word) for word in (b"xylophonist", b"platypusvill", name(1).encode()))
    assert [one.id for one in store.find_sessions()] == [name(2)]
    assert places(store, "nothing") == [(name(2), 0)]
    assert synced(store, folder).unchanged == 2
    secret.write_bytes(secret.read_bytes() + chat(name(1), ["more of the xylophonist"], 100))
    assert synced(store, folder).messages == 0
    assert not _holds(store.folder, b"xylophonist")
    assert synced(store, folder).unchanged == 2


def _terms(store: SessionStore, prefix: str) -> list[str]:
    """Return the words that the index contains, with or without documents."""
    index = store.open_index()
    assert index is not None
    return index.terms_with_prefix("said", prefix, 9)


def _holds(folder: Path, word: bytes) -> bool:
    """Return whether a word is in a file of the folder or in a block of the archive."""
    store = SessionStore(folder)
    kept = any(word in one.text.encode() for facts in store.find_sessions() for one in store.messages(facts.key))
    return kept or any(word in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_only_the_user_can_read_the_files(store: SessionStore, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / f"{name(1)}.jsonl").write_bytes(talk(name(1), 4))
    synced(store, tmp_path / "files")
    assert {oct(path.stat().st_mode & 0o777) for path in store.folder.rglob("*") if path.is_file()} == {"0o600"}
    assert store.folder.stat().st_mode & 0o777 == (store.folder / "index").stat().st_mode & 0o777 == 0o700


def test_a_newer_archive_is_refused(store: SessionStore) -> None:
    store.find_sessions()
    with closing(sqlite3.connect(store.archive.name)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer version"):
        store.find_sessions()


def test_a_file_that_is_not_an_archive_is_reported(store: SessionStore) -> None:
    store.folder.mkdir()
    Path(store.archive.name).write_bytes(b"this is no database at all, but it is long enough to be one" * 100)
    with pytest.raises(StoreError, match="cannot be read or written"):
        store.find_sessions()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0)])
def test_a_family_has_one_root_in_any_order_of_arrival(store: SessionStore, order: tuple[int, ...]) -> None:
    line = [
        _said("the very first of them", id="a"),
        _said("the second goes on", id="b", parent="a"),
        _said("the third as well", id="c", parent="b"),
    ]
    for place in order:
        _record(store, line[place], file=f"/{place}")
    assert {one.root for one in store.find_sessions()} == {"a"}
    assert len(store.find_sessions(root="a")) == 3


def test_copies_and_shared_beginnings_form_a_family(store: SessionStore) -> None:
    first = Message("user", (Text("how it all began"),), id="5e57daf2-9555-4394-81fa-b87fdd5461311")
    original = Session("claude-code", "a", "/a", (History((first,)),))
    resumed = Session("claude-code", "b", "/b", (History((first, Message("assistant", (Text("and went on"),)))),))
    _record(store, original, file="/a")
    _record(store, resumed, file="/b")
    _record(store, structs.replace(original, file="/copy"), file="/copy")
    assert {one.root for one in store.find_sessions()} == {"a"}


def test_equal_names_alone_form_no_family(store: SessionStore) -> None:
    _record(store, structs.replace(_said("what one person asked"), file="/x/chat.json"), file="/x/chat.json")
    _record(store, structs.replace(_said("what another one asked"), file="/y/chat.json"), file="/y/chat.json")
    assert len({one.root for one in store.find_sessions()}) == 2
