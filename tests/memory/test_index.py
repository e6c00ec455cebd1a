"""Tests of the index: tokenizer, fields and recovery."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from chats import chat, name, places, synced, talk
from tantivy import Query, Searcher

from thresher.memory.index.documents import DOCUMENT_VERSION, path_suffixes
from thresher.memory.index.tantivy_index import TantivyIndex
from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.ingest.extract import prepare_sessions
from thresher.memory.records import EXCLUSION_REASONS, FileStat, SourceRecord
from thresher.memory.search.query import Query as Asking
from thresher.memory.search.query import SearchField
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.memory.session_store import SessionStore
from thresher.model import History, Message, Session, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.store.errors import StoreError


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


def _recorded(store: SessionStore, *messages: Message, **more: str) -> None:
    session = Session("claude-code", "one", "/a", (History(messages),), **more)  # type: ignore[arg-type]
    with store.write_lease():
        store.record(SourceRecord("/a", FileStat(1, 2, 3, 4), prefix=b"x"), [*prepare_sessions([session], {})])
        store.refresh_index()


def _user(text: str) -> Message:
    return Message("user", (Text(text),))


def _model(*parts: object) -> Message:
    return Message("assistant", parts, "model")  # type: ignore[arg-type]


def _at(store: SessionStore, text: str, field: SearchField) -> list[int]:
    return [at for _, at in places(store, text, field)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("refreshToken refresh_token RefreshTokens", ["refresh", "token"] * 3),
        ("HTMLParser getURL2 sha256 v1.2", ["html", "parser", "get", "url2", "sha256", "v1", "2"]),
        ("running tests, don't", ["run", "test", "don", "t"]),
        ("東京タワー and 中文text", ["東", "京", "タ", "ワ", "ー", "and", "中", "文", "text"]),
        ("한국어 ไทย Ａ", ["한", "국", "어", "ไ", "ท", "ย", "a"]),
        ("naïve Größe привет", ["naïv", "größe", "привет"]),
        ("half \ud800 and " + "x" * 80, ["half", "and"]),
        ("at " + "0a1b2c3d" * 8 + " now", ["at", "0a1b2c3d" * 8, "now"]),
        ("", []),
    ],
)
def test_texts_become_index_words(text: str, told: list[str]) -> None:
    assert tokenize_words(text) == told


def test_each_field_has_its_own_words(store: SessionStore) -> None:
    arguments = json.dumps({"file_path": "/home/sam/shop/src/taxRate.py", "content": "alpha"})
    shell = json.dumps({"command": "pytest tests/unit -q", "description": "run the gamma tests"})
    result = ToolResult("c", (Text("output of beta " + "filler " * 2000 + " the omega end"),))
    _recorded(
        store,
        _user("please mend the delta thing"),
        _model(Thinking("thinking of epsilon here"), Text("speaking of zeta now"), ToolCall("c", "Write", arguments)),
        Message("tool", (result,), "tool"),
        _model(ToolCall("d", "Bash", shell)),
        Message("user", (Summary("a summary of theta so far"),)),
        title="The kappa title",
        git_branch="fix/lambda-rate",
    )
    told: dict[SearchField, tuple[str, int]] = {
        "human": ("delta", 0),
        "thinking": ("epsilon", 1),
        "agent": ("zeta", 1),
        "edits": ("alpha", 1),
    }
    for field, (word, place) in told.items():
        assert _at(store, word, field)[0] == place
    assert _at(store, "beta", "output") == _at(store, "omega", "output") == [2]
    assert _at(store, "theta", "summary") == [4]
    assert _at(store, "pytest", "commands") == [3]
    assert _at(store, "kappa", "title") == _at(store, "lambda", "title") == [-1]
    assert _at(store, "tax rate", "paths") == [1]
    assert _at(store, "tax rate", "input") == []


def test_a_file_is_found_by_any_suffix_of_its_path(store: SessionStore) -> None:
    _recorded(store, _model(ToolCall("c", "Read", '{"file_path": "/home/Sam/shop/tax.py"}'), Text("looking at it now")))
    index = store.open_index()
    assert index is not None
    for path in ("tax.py", "shop/tax.py", "home/sam/shop/tax.py"):
        assert len(index.search(Query.term_query(index.schema, "file", path), 9)) == 1
    assert index.search(Query.term_query(index.schema, "file", "ax.py"), 9) == []
    assert path_suffixes("./a\\B.py") == ["a/b.py", "b.py"]


@pytest.mark.parametrize("digits", [40, 64])
def test_a_digest_is_found_alone_and_in_a_phrase(store: SessionStore, digits: int) -> None:
    digest = "0a1b2c3d4e5f6789" * 4
    text = f"revert commit {digest[:digits]} on main"
    _recorded(store, _user(text), Message("tool", (ToolResult("c", (Text(text),)),), "tool"))
    index = store.open_index()
    assert index is not None
    assert _at(store, digest[:digits].upper(), "output") == [1]
    assert _at(store, digest[:digits], "human") == [0]
    phrase = Asking(phrases=(f"commit {digest[:digits]} on",), fields=("human",))
    assert [one.at for one in CompiledQuery(phrase, index).best_matches(9)] == [0]


class CountingIndex(TantivyIndex):
    """An index that counts its searcher requests."""

    requests = 0

    @property
    def searcher(self) -> Searcher:
        self.requests += 1
        return super().searcher


def test_a_query_uses_one_searcher(store: SessionStore) -> None:
    """Another process may rewrite the index between two reads, and addresses of one searcher are invalid in another."""
    _recorded(store, _user("the first of some okapis"), _user("a second okapi, and a third"))
    index = SessionStore(store.folder, index_type=CountingIndex).open_index()
    assert isinstance(index, CountingIndex)
    index.requests = 0
    assert len(index.search(Query.all_query(), 9)) == 3
    assert len(index.search_messages(Query.all_query(), 9)[1]) == 3
    assert index.requests == 2


def test_excluded_texts_are_indexed_with_their_reason(store: SessionStore) -> None:
    _recorded(store, _user("ok"), _user("[Request interrupted by user]"), _user("why does the build fail today?"))
    assert store.excluded_counts() == {"": 1, "short": 1, "interruption": 1}
    index = store.open_index()
    assert index is not None
    reasons = {
        found.at: EXCLUSION_REASONS[found.reason] for found in index.search(Query.all_query(), 9) if found.at >= 0
    }
    assert reasons == {0: "short", 1: "interruption", 2: ""}


def test_messages_repeated_by_a_compaction_are_indexed_once(store: SessionStore) -> None:
    said = Message("user", (Text("the one question of today"),), id="m")
    again = Message("user", (Text("the one question of today"),), id="m", carried=True)
    session = Session("claude-code", "one", "/a", (History((said,)), History((again, _user("and then some more")))))
    with store.write_lease():
        store.record(SourceRecord("/a", FileStat(1, 2, 3, 4)), [*prepare_sessions([session], {})])
        store.refresh_index()
    assert _at(store, "question", "human") == [0]
    assert _at(store, "more", "human") == [2]
    assert len(store.messages(1)) == 3


def test_secrets_are_not_in_the_index(store: SessionStore) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    _recorded(store, _user(f"the token is {token} for now"), title=f"use {token}")
    assert _at(store, "token", "human") == [0]
    for field in ("human", "title"):
        assert not set(_at(store, token, field)) - set(_at(store, "redacted github token", field))
    body = b"".join(path.read_bytes() for path in (store.folder / "index").iterdir())
    assert token[4:20].lower().encode() not in body
    assert token in store.messages(1)[0].text


def test_a_new_title_replaces_the_old_one(store: SessionStore) -> None:
    _recorded(store, _user("what this is about"), title="first name")
    _recorded(store, _user("what this is about"), title="second name")
    assert _at(store, "first", "title") == []
    assert _at(store, "second", "title") == [-1]
    assert _at(store, "name", "title") == [-1]


def _a_few(store: SessionStore, tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir(exist_ok=True)
    for number in (1, 2):
        (folder / f"{name(number)}.jsonl").write_bytes(talk(name(number), 70))
    synced(store, folder)
    assert places(store, "topic69") == [(name(1), 69), (name(2), 69)]
    return folder


def _lost(index: Path) -> None:
    shutil.rmtree(index)


def _garbage(index: Path) -> None:
    (index / "meta.json").write_bytes(b"\x00garbage\xff")


def _no_segment(index: Path) -> None:
    for path in index.glob("*.term"):
        path.unlink()


def _torn_segment(index: Path) -> None:
    for path in index.glob("*.idx"):
        path.write_bytes(path.read_bytes()[:10])


def _foreign(index: Path) -> None:
    (index / "thresher.state").write_text('{"name": "another archive 1"}')


@pytest.mark.parametrize("harm", [_lost, _garbage, _no_segment, _torn_segment, _foreign])
def test_an_unusable_index_is_rebuilt(store: SessionStore, tmp_path: Path, harm: object) -> None:
    folder = _a_few(store, tmp_path)
    harm(store.folder / "index")  # type: ignore[operator]
    again = SessionStore(store.folder)
    assert again.is_index_behind()
    assert synced(again, folder).unchanged == 2
    assert places(again, "topic69") == [(name(1), 69), (name(2), 69)]
    assert places(again, "speak", "title") == [(name(1), -1), (name(2), -1)]
    assert not again.is_index_behind()


def test_a_new_document_version_rebuilds_the_index(store: SessionStore, tmp_path: Path) -> None:
    folder = _a_few(store, tmp_path)
    again = SessionStore(store.folder, document_version=DOCUMENT_VERSION + 1)
    assert again.open_index() is None
    synced(again, folder)
    assert places(again, "topic69") == [(name(1), 69), (name(2), 69)]


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_kill_between_archive_and_index_commit(store: SessionStore, tmp_path: Path, moment: str) -> None:
    """Whether the archive or only the index missed the last commit, nothing is lost or duplicated."""
    folder = _a_few(store, tmp_path)
    grown = folder / f"{name(1)}.jsonl"
    grown.write_bytes(grown.read_bytes() + talk(name(1), 10, 70))

    class KilledIndex(TantivyIndex):
        def commit(self, last_tombstone: int) -> None:
            state = self.read_state()
            if moment != "before":
                super().commit(last_tombstone)
            if moment == "between":  # the documents are committed, but not the state
                self._write_state(state)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synced(SessionStore(store.folder, index_type=KilledIndex), folder)
    again = SessionStore(store.folder)
    assert again.find_sessions(id=name(1))[0].messages == 80
    assert again.is_index_behind() == (moment != "after")
    assert synced(again, folder).unchanged == 2
    assert not again.is_index_behind()
    for word, place in (("topic69", 69), ("topic3", 3)):
        assert places(again, word) == [(name(1), place), (name(2), place)]
    assert places(again, "topic79") == [(name(1), 79)]


def test_a_full_disk_is_reported_with_advice(store: SessionStore, tmp_path: Path) -> None:
    folder = _a_few(store, tmp_path)
    (folder / f"{name(3)}.jsonl").write_bytes(chat(name(3), ["one more session of topic69"]))

    class FullDiskWriter:
        def __getattr__(self, _name: str) -> object:
            raise OSError(28, "No space left on device")

    class FullDiskIndex(TantivyIndex):
        def begin_writing(self, size: int) -> None:
            super().begin_writing(size)
            self._writer = FullDiskWriter()  # type: ignore[assignment]

    with pytest.raises(StoreError, match="free disk space"):
        synced(SessionStore(store.folder, index_type=FullDiskIndex), folder)
    again = SessionStore(store.folder)
    assert synced(again, folder).messages == 1
    assert len(places(again, "topic69")) == 3


def test_counts_by_session(store: SessionStore, tmp_path: Path) -> None:
    _a_few(store, tmp_path)
    index = store.open_index()
    assert index is not None
    assert CompiledQuery(Asking(words="length", fields=("human",)), index).match_counts() == {1: 35, 2: 35}


def test_the_best_texts_of_each_session_follow_the_best_overall(store: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "loud.jsonl").write_bytes(chat(name(1), ["okapi okapi okapi"] * 9))
    (folder / "quiet.jsonl").write_bytes(chat(name(2), ["one okapi, among many other words of no matter"] * 9))
    synced(store, folder)
    index = store.open_index()
    assert index is not None
    asked = CompiledQuery(Asking(words="okapi"), index)
    keys = {facts.id: facts.key for facts in store.find_sessions()}
    loud, quiet = keys[name(1)], keys[name(2)]
    matches, texts = asked.message_matches([loud, quiet], best=5, each=3)
    assert matches == {loud: 9, quiet: 9}
    assert [one.session for one in texts] == [loud] * 5 + [quiet] * 3
    assert texts == [*asked.best_matches(5), *asked.best_matches(3, [quiet])]
    assert asked.message_matches([loud, quiet]) == (matches, [])


@pytest.mark.parametrize("words", ["okapi", "okapi giraffe", "x y okapi", "x y", "what is the okapi"])
def test_texts_that_match_only_by_adjacent_words_count(store: SessionStore, words: str) -> None:
    """A one-letter word counts only next to another one."""
    _recorded(store, _user("plot x y for me"), _user("an okapi giraffe"), _user("the giraffe is an okapi"))
    index = store.open_index()
    assert index is not None
    asked = CompiledQuery(Asking(words=words), index)
    assert asked.match_counts() == {1: len(asked.best_matches(99))}


def test_the_time_of_the_last_document(store: SessionStore) -> None:
    times = [datetime(2026, 3, day, tzinfo=UTC) for day in (5, 9, 7)]
    _recorded(store, *(Message("user", (Text("the okapi at noon"),), time=time) for time in times))
    index = store.open_index()
    assert index is not None
    assert index.times_by_session(Query.term_query(index.schema, "said", "okapi"), "max") == {
        1: int(times[1].timestamp())
    }
    _recorded(store, _user("a giraffe, and nobody knows when"))
    assert index.times_by_session(Query.term_query(index.schema, "said", "giraff"), "max") == {2: 0}
