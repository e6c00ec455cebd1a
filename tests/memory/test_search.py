"""Tests of search, from the typed query to the results."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name
from echoes import SHOP, TOPICS, Rollout, Talk, source
from in_memory_archive import InMemoryArchive

import thresher as th
from thresher.errors import OptionError
from thresher.memory import Memory
from thresher.memory.results import SearchResults
from thresher.memory.search.query import SEARCH_FIELDS, Query, parse_date_or_age
from thresher.model import History, Message, Text
from thresher.store.errors import AmbiguousIdError, NotStoredError, StoreError

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sessions").mkdir()
    return tmp_path / "sessions"


def remembered(folder: Path) -> Memory:
    return Memory(home=folder.parent / "home", sources=[folder], discover=False)


def said(folder: Path, *sessions: str | tuple[str, ...], **facts: Any) -> Memory:
    """Return a memory of sessions with these messages; a single string is one model answer."""
    for number, texts in enumerate(sessions, 1):
        talk = Talk(number, day=number, **facts).user("Please go on with the next point.")
        for text in [texts] if isinstance(texts, str) else texts:
            talk.says(text)
        talk.write(folder)
    return remembered(folder)


def ids(answer: SearchResults) -> list[str]:
    return [session.id for session in answer.sessions]


def numbers(answer: SearchResults) -> list[int]:
    return [int(one.replace("-", ""), 16) for one in ids(answer)]


def texts(answer: SearchResults) -> list[str]:
    return [hit.text for session in answer.sessions for hit in session.hits]


# Words.


def test_words_are_alternatives_and_more_of_them_rank_higher(folder: Path) -> None:
    memory = said(
        folder, "The parser reads a token.", "The parser refreshes a token before it expires.", "Nothing of this."
    )
    assert numbers(memory.search("token refresh expires unicorn")) == [2, 1]


@pytest.mark.parametrize(
    "question",
    [
        "how on earth did we ever manage to make the jwt refresh work again?",
        "what was it that we did about customers who were logged out?",
        "do you know why half pennies got lost, and where?",
    ],
)
def test_a_query_in_plain_language_has_results(folder: Path, question: str) -> None:
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(folder)
    assert ids(remembered(folder).search(question))


def test_rare_words_have_a_higher_weight(folder: Path) -> None:
    common = ["The order was changed and the order was saved."] * 6
    memory = said(folder, *common, "The quaxbolt was changed.")
    assert numbers(memory.search("order quaxbolt"))[0] == 7


def test_unknown_words_match_nothing(folder: Path) -> None:
    answer = said(folder, "The parser reads a token.").search("zebra")
    assert (answer.sessions, answer.found) == ((), 0)


def test_an_empty_archive_returns_no_results(tmp_path: Path) -> None:
    answer = Memory(home=tmp_path / "home", discover=False).search("anything")
    assert answer.found == 0


@pytest.mark.parametrize("asked", ["refreshToken", "refresh_token", "refresh token", "RefreshToken", "REFRESH_TOKENS"])
@pytest.mark.parametrize(
    "text", ["We store the refreshToken.", "We store the refresh_token.", "We store the refresh token."]
)
def test_identifiers_are_split_into_words(folder: Path, asked: str, text: str) -> None:
    memory = said(folder, "The token is new.", text)
    assert numbers(memory.search(asked))[0] == 2


@pytest.mark.parametrize("asked", ["migrations", "migrating", "migrated", "migration", "migrate", "MIGRATE"])
def test_words_are_stemmed(folder: Path, asked: str) -> None:
    assert numbers(said(folder, "The migration of orders is done.").search(asked)) == [1]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("我们修复了登录页面的刷新令牌问题。", "刷新令牌"),
        ("我们修复了登录页面的刷新令牌问题。", "登录 页面"),
        ("ログイン画面のトークン更新を修正しました。", "トークン更新"),
        ("로그인 화면의 토큰 갱신을 고쳤습니다.", "토큰 갱신"),
        ("The 刷新令牌 rotates after 30 seconds in OAuth2服务.", "OAuth2 刷新令牌"),
        ("Die Müllabfuhr heißt jetzt Straßenreinigung.", "straßenreinigung"),
        ("Исправили обновление токена входа.", "обновление токена"),
    ],
)
def test_every_script_is_searched(folder: Path, text: str, asked: str) -> None:
    memory = said(folder, "The page is blue and all is well.", text, "页面是蓝色的，一切都很好。")
    answer = memory.search(asked)
    assert numbers(answer)[0] == 2
    assert answer.sessions[0].hits[0].text == text
    assert answer.sessions[0].hits[0].marks


def test_character_order_matters_without_spaces(folder: Path) -> None:
    assert numbers(said(folder, "蜜蜂在花园里飞来飞去。", "我们蜂蜜很多，都卖出去了。").search("蜂蜜")) == [2]


# Required and excluded text.


def test_a_phrase_matches_adjacent_words(folder: Path) -> None:
    memory = said(folder, "The reset of a connection.", "We saw a connection reset by peer.")
    assert numbers(memory.search('"connection reset"')) == [2]
    assert numbers(memory.search("connection reset")) == [2, 1]
    assert ids(memory.search('"reset peer"')) == []


def test_required_and_excluded_words(folder: Path) -> None:
    """`authentication jwt` with `implement` required and `test` excluded matches two messages, not three."""
    memory = said(
        folder,
        (
            "authentication setup",
            "implement jwt tokens",
            "testing the auth flow",
            "database configuration",
            "implement authentication service",
        ),
        project="/home/sam/test-shop",
    )
    answer = memory.search("authentication jwt", require="implement", exclude="test")
    assert sorted(texts(answer)) == ["implement authentication service", "implement jwt tokens"]
    assert answer.sessions[0].matches == 2


def test_require_and_exclude_take_several_words_and_phrases(folder: Path) -> None:
    memory = said(folder, "red apples and green pears", "red apples and yellow pears", "red apples alone")
    assert numbers(memory.search("apples", require=("red", "pears"), exclude=("green",))) == [2]
    assert sorted(numbers(memory.search("apples", exclude="yellow pears"))) == [1, 3]
    assert numbers(memory.search("", require="alone")) == [3]


def test_a_prefix_matches_words(folder: Path) -> None:
    memory = said(folder, "The authentication works.", "The author works.", "The aubergine works.")
    assert sorted(numbers(memory.search("auth*"))) == [1, 2]
    assert numbers(memory.search("authent* works")) == [1]


def test_search_by_regex(folder: Path) -> None:
    pytest.importorskip("regex")
    memory = said(folder, "It fails with E1042 in line 7.", "It fails with E7.", "All is well.")
    answer = memory.search("", regex=r"E\d{4}")
    assert numbers(answer) == [1]
    hit = answer.sessions[0].hits[0]
    assert [hit.text[start:stop] for start, stop in hit.marks] == ["E1042"]
    assert sorted(numbers(memory.search("", regex="fails"))) == [1, 2]
    assert ids(memory.search("", regex="unheard of")) == []


def test_a_regex_search_has_the_same_exclusions(folder: Path) -> None:
    pytest.importorskip("regex")
    talk = Talk(1).user("Look it up.").does("mcp__thresher__search", "E1042 again", query="E1042")
    talk.write(folder)
    memory = remembered(folder)
    assert ids(memory.search("", regex="E1042", fields=SEARCH_FIELDS)) == []
    assert ids(memory.search("", regex="E1042", fields=SEARCH_FIELDS, everything=True)) == [name(1)]


# Fields and filters.


def _fields(folder: Path) -> Memory:
    talk = Talk(1, branch="feature/lilac").user("Human mentions humanword in a prompt.")
    talk.thinks("Thinking mentions thinkword here.").says("Agent mentions agentword here.")
    talk.runs("echo commandword", "output mentions outputword")
    talk.does("Edit", "updated", file_path=f"{SHOP}/src/pathword/cart.py", old_string="a", new_string="editword = 1")
    talk.does("WebSearch", "nothing", query="inputword")
    talk.write(folder)
    return remembered(folder)


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("humanword", "human"),
        ("thinkword", "thinking"),
        ("agentword", "agent"),
        ("commandword", "commands"),
        ("inputword", "input"),
        ("editword", "edits"),
        ("outputword", "output"),
        ("pathword", "paths"),
        ("lilac", "title"),
    ],
)
def test_each_field_can_be_searched_alone(folder: Path, word: str, field: Any) -> None:
    memory = _fields(folder)
    assert ids(memory.search(word, fields=field)) == [name(1)]
    others = [
        one for one in SEARCH_FIELDS if one != field and (one, field) not in {("input", "commands"), ("title", "human")}
    ]
    assert ids(memory.search(word, fields=[one for one in others if one != "title"])) == []


@pytest.mark.parametrize("word", ["outputword", "pathword", name(1), name(1)[:8], "claude-code", "jsonl"])
def test_output_paths_and_ids_are_searched_only_on_request(folder: Path, word: str) -> None:
    assert ids(_fields(folder).search(word)) == []


@pytest.mark.parametrize("word", ["humanword", "thinkword", "agentword", "commandword", "inputword"])
def test_other_fields_are_searched_by_default(folder: Path, word: str) -> None:
    assert ids(_fields(folder).search(word)) == [name(1)]


def test_an_unknown_field_is_reported(folder: Path) -> None:
    with pytest.raises(OptionError, match="human"):
        remembered(folder).search("x", fields="headline")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="require"):
        remembered(folder).search("x", colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("path", [f"{SHOP}/src/pathword/cart.py", "pathword/cart.py", "cart.py", "CART.py"])
def test_sessions_that_touched_a_file(folder: Path, path: str) -> None:
    memory = _fields(folder)
    Talk(2).user("Tell me about cart.py, please.").says("cart.py holds the cart.").write(folder)
    assert ids(memory.search("", file=path)) == [name(1)]
    assert ids(memory.search("inputword", file=path)) == [name(1)]
    assert ids(memory.search("", file="art.py")) == []


def test_roles(folder: Path) -> None:
    Talk(1).user("Paint the parcel lilac, please.").says("Which shade?").write(folder)
    Talk(2).user("Choose a colour for me.").says("Lilac suits the parcel.").write(folder)
    memory = remembered(folder)
    assert ids(memory.search("lilac parcel", role="user")) == [name(1)]
    assert ids(memory.search("lilac parcel", role="assistant")) == [name(2)]


def test_times(folder: Path) -> None:
    memory = said(folder, *["The parcel is lilac."] * 9)
    assert sorted(numbers(memory.search("lilac", since="2026-02-04", until="2026-02-06"))) == [4, 5, 6]
    assert sorted(numbers(memory.search("lilac", since=datetime(2026, 2, 9, tzinfo=UTC)))) == [9]
    assert ids(memory.search("lilac", until="2020-01-01")) == []
    with pytest.raises(OptionError):
        memory.search("lilac", since="some day")


def test_projects_agents_and_branches(folder: Path) -> None:
    Talk(1, project="/home/sam/shop").user("The parcel is lilac.").write(folder)
    Talk(2, project="/home/sam/shop-admin", branch="lilac-parcels").user("The parcel is lilac.").write(folder)
    Rollout(3, (("user", "The parcel is lilac."),)).write(folder)
    memory = remembered(folder)
    assert sorted(numbers(memory.search("lilac", project="shop"))) == [1, 2, 3]
    assert numbers(memory.search("lilac", project="Shop-Admin")) == [2]
    assert numbers(memory.search("lilac", branch="lilac-parcels")) == [2]
    assert numbers(memory.search("lilac", agent="codex")) == [3]
    assert ids(memory.search("lilac", project="/nowhere")) == []


# Order.


def test_a_long_session_ranks_behind_words_in_one_message(folder: Path) -> None:
    scattered = [
        f"While the {('token', 'refresh', 'grace', 'seconds')[at // 250]} of order {at} is moved, nothing else happens."
        for at in range(1000)
    ]
    folder.joinpath(f"{name(1)}.jsonl").write_bytes(chat(name(1), scattered))
    Talk(2).user("Please look.").says("The refresh token has a grace period of ten seconds now.").write(folder)
    answer = remembered(folder).search("refresh token grace seconds")
    assert ids(answer) == [name(2), name(1)]
    assert answer.sessions[1].matches == 1000
    assert ids(remembered(folder).search("refresh token grace seconds", rank="matches")) == [name(1), name(2)]


def test_time_only_decides_between_equals(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.", "The parcel is lilac.", "The parcel is big and its ribbon is lilac.")
    assert numbers(memory.search("parcel is lilac"))[:2] == [2, 1]


def test_order_by_number_of_matches(folder: Path) -> None:
    memory = said(
        folder, ("lilac parcels everywhere",), ("lilac ink runs", "lilac again here"), ("lilac ink and lilac parcels",)
    )
    assert numbers(memory.search("lilac", rank="matches")) == [2, 3, 1]


def test_pages_continue_without_gaps(folder: Path) -> None:
    memory = said(folder, *[f"The parcel number {number} is lilac." for number in range(25)])
    pages = [memory.search("lilac parcel", sessions=10, page=page) for page in (1, 2, 3, 4)]
    assert [len(page.sessions) for page in pages] == [10, 10, 5, 0]
    assert len({one for page in pages for one in ids(page)}) == 25
    assert {page.found for page in pages} == {25}
    assert [page.page for page in pages] == [1, 2, 3, 4]


@pytest.mark.parametrize("option", ["sessions", "messages", "page"])
def test_numbers_below_one_are_refused(folder: Path, option: str) -> None:
    with pytest.raises(OptionError, match=option):
        remembered(folder).search("x", **{option: 0})  # type: ignore[arg-type]


# Results.


def test_a_hit_has_its_position(folder: Path) -> None:
    source(0, TOPICS[0]).write(folder)
    best = remembered(folder).search("grace period of 30 seconds").sessions[0]
    assert (best.agent, best.project, best.branch) == ("claude-code", SHOP, "main")
    assert best.file == str(folder / f"{name(100)}.jsonl")
    assert best.resume == f"cd {SHOP} && claude --resume {name(100)}"
    hit = best.hits[0]
    assert TOPICS[0].told[:60] in folder.joinpath(f"{name(100)}.jsonl").read_text().splitlines()[hit.line - 1]
    assert best.line == hit.line
    memory = remembered(folder)
    assert memory.store.messages(memory.facts(best.id).key, hit.at, hit.at + 1)[0].text == TOPICS[0].told
    assert {hit.text[start:stop].lower() for start, stop in hit.marks} >= {"grace", "period", "30", "seconds"}


def test_a_snippet_is_placed_around_its_match(folder: Path) -> None:
    text = f"{'before ' * 300}lilac parcel {'after ' * 300}"
    hit = said(folder, text).search("lilac parcel", context=300).sessions[0].hits[0]
    assert len(hit.text) <= 300
    assert hit.cut == (True, True)
    assert 60 <= hit.text.index("lilac") <= 110


def test_messages_are_limited_and_all_matches_counted(folder: Path) -> None:
    memory = said(folder, tuple(f"Lilac parcel number {number} is packed." for number in range(12)))
    best = memory.search("lilac parcel", messages=5).sessions[0]
    assert (len(best.hits), best.matches) == (5, 12)
    assert len({hit.at for hit in best.hits}) == 5


def test_secrets_are_redacted_by_default(folder: Path) -> None:
    Talk(1).user(f"Use the key {SECRET} for the lilac parcel.").says(f"I use {SECRET} for it.").write(folder)
    memory = remembered(folder)
    hidden = memory.search("lilac parcel key")
    assert "lilac parcel" in hidden.sessions[0].title
    assert SECRET not in repr(hidden)
    shown = memory.search("lilac parcel key", reveal=True)
    assert SECRET not in shown.sessions[0].title  # a truncated secret could not be recognized
    assert any(SECRET in text for text in texts(shown))
    assert ids(memory.search(SECRET)) == []
    assert SECRET not in repr(memory.recall(name(1), "lilac parcel key"))
    assert SECRET in repr(memory.recall(name(1), "lilac parcel key", reveal=True))


def test_a_deleted_file_is_found_in_the_archive(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.")
    memory.sync()
    folder.joinpath(f"{name(1)}.jsonl").unlink()
    best = memory.search("lilac").sessions[0]
    assert (best.gone, best.resume) == (True, "")
    assert memory.session(name(1)).id == name(1)


def test_new_turns_are_read_before_a_search(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.")
    assert memory.search("crimson").found == 0
    said(folder, ("The parcel is lilac.", "The ribbon is crimson."))
    assert memory.search("crimson", sync=False).found == 0
    assert memory.search("crimson").found == 1


# Hostile queries.

HOSTILE = [
    '"',
    '"""',
    "'",
    "((((",
    "a AND OR NOT b",
    "field:value human:[* TO *]",
    "+lilac -parcel ^2 ~1",
    "lilac*parcel **** *",
    "'; DROP TABLE sessions; --",
    "%_%",
    "\0",
    "lilac\0parcel",
    "\ud800\udfff lilac",
    "…!?.,;:—",
    "   ",
    "",
    "\u202elilac\u202c",
    "é" * 5000,
    "lilac " * 20_000,
    "x" * 100_000,
    '"' + "parcel " * 10_000 + '"',
    "a* b* c* d* e* f* g* h*",
    "刷" * 10_000,
    "../../etc/passwd",
    "{{7*7}} ${HOME} `id`",
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_every_query_is_answered(folder: Path, query: str) -> None:
    memory = said(folder, "The parcel is lilac.")
    for options in ({}, {"fields": SEARCH_FIELDS, "everything": True}):
        with suppress(OptionError):  # nothing remains to search for
            assert memory.search(query, **options).found in (0, 1)  # type: ignore[arg-type]
    for name_of in ("require", "exclude", "project", "branch", "file", "current"):
        memory.search("lilac", sync=False, **{name_of: query})  # type: ignore[arg-type]


def test_the_current_session_may_be_a_prefix_of_its_id(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.", "The lilac parcel is lost.")
    memory.sync()
    first, second = (facts.id for facts in memory.store.find_sessions())
    length = next(at for at, pair in enumerate(zip(first, second, strict=True)) if len(set(pair)) > 1)
    results = memory.search("lilac", current=first[: length + 1])
    assert ids(results) == [second]
    assert not results.notes
    with pytest.raises(AmbiguousIdError, match="give more characters"):
        memory.search("lilac", current=first[:length])
    assert any("not archived yet" in note for note in memory.search("lilac", current="zzz").notes)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(", "[z-a]", r"(?<n>a)(?<n", "a{99999999999}", "(?:a|a)*b" * 50, "\ud800"]
)
def test_every_regex_is_answered_or_refused(folder: Path, pattern: str) -> None:
    pytest.importorskip("regex")
    memory = said(folder, "a" * 5000 + "!")
    with suppress(OptionError):
        assert memory.search("", regex=pattern).found in (0, 1)


@pytest.mark.parametrize("pattern", ["a{10000}", "(?R)", "a" * 20_000, "(", r"\p{Nope}"])
def test_a_slow_regex_is_refused(folder: Path, pattern: str) -> None:
    pytest.importorskip("regex")
    with pytest.raises(OptionError):
        said(folder, "a" * 5000 + "!").search("", regex=pattern)


def test_a_regex_combines_with_other_conditions(folder: Path) -> None:
    pytest.importorskip("regex")
    memory = said(folder, "The parcel is lilac.", "The ribbon is lilac and silky.", "A lilac hat, nothing else here.")
    every = {"sync": False, "regex": "l.lac"}
    assert sorted(numbers(memory.search("", regex="l.lac"))) == [1, 2, 3]
    assert numbers(memory.search("", require="ribbon", **every)) == [2]  # type: ignore[arg-type]
    assert sorted(numbers(memory.search("", exclude="ribbon", **every))) == [1, 3]  # type: ignore[arg-type]
    assert numbers(memory.search('"lilac hat"', **every)) == [3]  # type: ignore[arg-type]
    assert numbers(memory.search("silk*", **every)) == [2]  # type: ignore[arg-type]
    assert numbers(memory.search("", file="no/such.py", **every)) == []  # type: ignore[arg-type]
    first = memory.search("", sessions=2, **every)  # type: ignore[arg-type]
    assert (len(first.sessions), first.more) == (2, True)
    second = memory.search("", sessions=2, page=2, **every)  # type: ignore[arg-type]
    assert (len(second.sessions), second.more) == (1, False)
    with pytest.raises(OptionError, match="remove these"):
        memory.search("", fields=("paths",), **every)  # type: ignore[arg-type]


def test_an_unknown_query_word_is_reported(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.")
    assert "no archived text except tool output contains `parcle`" in memory.search("lilac parcle").notes
    assert memory.search("lilac parcels").notes == ()


@pytest.mark.parametrize(
    "wrong", [{"role": "tool"}, {"rank": "age"}, {"context": 0}, {"fields": "body"}, {"colour": 1}]
)
def test_invalid_options_are_reported_with_valid_values(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        said(folder, "The parcel is lilac.").search("lilac", **wrong)


def test_matches_are_counted_by_message(folder: Path) -> None:
    talk = Talk(1).user("Please paint it.")
    for _ in range(3):
        talk.does("Bash", "done", command="paint --lilac", description="lilac, lilac")
    talk.write(folder)
    Talk(2).user("Paint it lilac.").says("Is it lilac?").user("More lilac!").says("it is lilac now").write(folder)
    answer = remembered(folder).search("lilac", rank="matches")
    assert [session.matches for session in answer.sessions] == [4, 3]


def test_dates_use_the_local_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = datetime(2026, 11, 16, 12, tzinfo=UTC).astimezone()
        assert parse_date_or_age("2026-07-01", winter) == datetime(2026, 6, 30, 22, tzinfo=UTC)
        assert parse_date_or_age("2026-12-01", winter) == datetime(2026, 11, 30, 23, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


# Recall, and related sessions.


def test_recall_returns_relevant_excerpts(folder: Path) -> None:
    source(0, TOPICS[0]).write(folder)
    memory = remembered(folder)
    memory.sync()
    recalled = memory.recall(name(100), "why were customers logged out?")
    assert recalled.found
    assert any("grace period of 30 seconds" in excerpt.text for excerpt in recalled.excerpts)
    assert [one.at for one in recalled.excerpts] == sorted(one.at for one in recalled.excerpts)
    assert recalled.tokens == sum(one.tokens for one in recalled.excerpts) <= 2000
    assert all(one.line for one in recalled.excerpts)
    assert recalled.session.id == name(100)
    assert not memory.recall(name(100), "which piano carrier serves iceland?").found
    short = memory.recall(name(100), "why were customers logged out?", budget=60)
    assert short.found
    assert 0 < short.tokens <= 60
    with pytest.raises(OptionError):
        memory.recall(name(100), "  ")


def test_recall_searches_commands(folder: Path) -> None:
    Talk(1).user("Please test it.").does("Bash", "ok", command="go test ./lilac -run Ribbon").says("Done.").write(
        folder
    )
    memory = remembered(folder)
    memory.sync()
    told = memory.recall(name(1), "which go test was run?")
    assert any("go test ./lilac" in one.text for one in told.excerpts)


def test_recall_excludes_recalled_text(folder: Path) -> None:
    talk = (
        Talk(1)
        .user("Tie a ribbon around the parcel.")
        .does("mcp__deja__deja", "lilac ribbons sold out", query="ribbon")
    )
    talk.does("Edit", "updated", file_path="a.py", new_string="tie()").says("The ribbon is tied.").write(folder)
    memory = remembered(folder)
    memory.sync()
    recalled = memory.recall(name(1), "what about the ribbon?")
    assert recalled.found
    assert not any("sold out" in one.text for one in recalled.excerpts)


def test_unambiguous_id_prefixes_are_accepted(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.", "The ribbon is crimson.")
    memory.sync()
    assert memory.facts(name(1)).id == name(1)
    with pytest.raises(AmbiguousIdError, match="give more"):
        memory.facts(name(1)[:8])
    for unknown in ("", "ffff", "%", "'"):
        with pytest.raises(NotStoredError):
            memory.facts(unknown)


def test_related_sessions_of_a_new_conversation(folder: Path) -> None:
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(folder)
    memory = remembered(folder)
    memory.sync()
    prompt = "Some customers are logged out again while the refresh token is rotated. Look into it, please."
    starts = History((Message("user", (Text(prompt),), "human"),))
    assert ids(memory.related(starts))[0] == name(100)
    Talk(1).user(prompt).says("I look.").write(folder)
    current = th.read(folder / f"{name(1)}.jsonl")
    assert isinstance(current, th.Session)
    related = memory.related(current, sessions=3)
    assert name(1) not in ids(related)
    assert ids(related)[0] == name(100)
    assert len(related.sessions) <= 3


def test_related_needs_a_prompt(folder: Path) -> None:
    source(0, TOPICS[0]).write(folder)
    caveat = "Caveat: The messages below were generated by the user while running local commands."
    starts = History((Message("user", (Text(caveat),), "harness"),))
    assert remembered(folder).related(starts).sessions == ()


def test_forgotten_sessions_never_return(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.", "The ribbon is lilac.")
    memory.sync()
    assert [one.id for one in memory.forget(ids=[name(1)], dry=True)] == [name(1)]
    assert sorted(numbers(memory.search("lilac"))) == [1, 2]
    memory.forget(ids=[name(1)])
    assert numbers(memory.search("lilac")) == [2]
    assert numbers(memory.search("parcel", everything=True)) == []
    kept = b"".join(path.read_bytes() for path in (folder.parent / "home").rglob("*") if path.is_file())
    assert b"parcel" not in kept
    with pytest.raises(NotStoredError):
        memory.session(name(1))
    with pytest.raises(OptionError):
        memory.forget()


def test_copies_are_forgotten_too(folder: Path) -> None:
    memory = said(folder, "The parcel is lilac.")
    copy = folder / "elsewhere"
    copy.mkdir()
    for path in folder.glob("*.jsonl"):
        (copy / path.name).write_bytes(path.read_bytes())
    memory.sync()
    assert len(memory.forget(ids=[name(1)])) == 2
    assert memory.search("lilac", everything=True).sessions == ()


def test_forget_by_project_and_time(folder: Path) -> None:
    memory = said(folder, *["The parcel is lilac."] * 4)
    Talk(9, project="/home/sam/secret").user("The parcel is lilac.").write(folder)
    memory.sync()
    memory.forget(project="secret")
    assert sorted(numbers(memory.search("lilac"))) == [1, 2, 3, 4]
    memory.forget(before=datetime(2026, 2, 3, tzinfo=UTC))
    assert sorted(numbers(memory.search("lilac"))) == [3, 4]


def test_a_query_object_has_no_syntax(folder: Path) -> None:
    memory = said(folder, 'They call it "lilac parcel" here.', "A parcel of lilac colour.")
    assert sorted(numbers(memory.search(Query(words='"lilac parcel"')))) == [1, 2]
    assert re.search("lilac", memory.search(Query(words="lilac")).query)


SENTENCES = {
    "khmer": ("ខ្ញុំចង់ទិញសៀវភៅថ្មីនៅផ្សារ", "សៀវភៅ"),
    "lao": ("ຂ້ອຍຢາກຊື້ປຶ້ມໃໝ່ຢູ່ຕະຫຼາດ", "ປຶ້ມ"),
    "burmese": ("ကျွန်တော်ဈေးမှာစာအုပ်အသစ်ဝယ်ချင်တယ်", "စာအုပ်"),
    "thai": ("ฉันอยากซื้อหนังสือใหม่ที่ตลาด", "หนังสือ"),
    "chinese": ("我想在市场买一本新书", "新书"),
    "japanese": ("市場で新しい本を買いたい", "新しい本"),
    "japanese in half width": ("新しいテストを書く", "ﾃｽﾄ"),
    "korean": ("시장에서새책을사고싶어요", "새책을"),
    "chinese, rare": ("這個字是\U00020bb7野家", "\U00020bb7野"),
}


@pytest.mark.parametrize("script", SENTENCES)
def test_a_word_inside_a_sentence_without_spaces_is_found(tmp_path: Path, script: str) -> None:
    """A text with separated characters does not match."""
    sentence, word = SENTENCES[script]
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"{name(1)}.jsonl").write_bytes(chat(name(1), [f"{sentence} {sentence}", "all right, I see to that"]))
    (folder / f"{name(2)}.jsonl").write_bytes(chat(name(2), [" and then ".join(word), "all right, I see"]))
    memory = Memory(home=tmp_path / "home", sources=[folder], discover=False)
    answer = memory.search(word)
    assert [one.id for one in answer.sessions] == [name(1)]
    assert memory.search(f'"{word}"', sync=False).sessions[0].id == name(1)
    if script != "japanese in half width":
        hit = answer.sessions[0].hits[0]
        assert any(hit.text[start:stop] in word for start, stop in hit.marks)


class BrokenArchive(InMemoryArchive):
    """A store that is no longer writable."""

    is_broken = False

    @contextmanager
    def lease(self, *, wait: bool = True, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
        if self.is_broken:
            raise StoreError("the disk is full")
        with super().lease(wait=wait, on_wait=on_wait) as held:
            yield held


def test_a_search_works_without_the_sync_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"{name(1)}.jsonl").write_bytes(chat(name(1), ["we speak of pelicans at length", "indeed we do so"]))
    archive = BrokenArchive()
    memory = Memory(home=tmp_path / "home", archive=archive, sources=[folder], discover=False)
    assert memory.search("pelicans").notes == ()
    (folder / f"{name(2)}.jsonl").write_bytes(chat(name(2), ["more of the pelicans", "of course we do"]))
    with archive.lease():
        busy = memory.search("pelicans")
    assert busy.notes == ("another sync is running; the newest turns may be missing",)
    archive.is_broken = True
    broken = memory.search("pelicans")
    assert broken.notes == ("the disk is full; the search covers only sessions archived earlier",)
    assert [one.id for one in busy.sessions] == [one.id for one in broken.sessions] == [name(1)]
    archive.is_broken = False
    assert memory.related(memory.session(name(1))).notes == ()
    assert len(memory.store.find_sessions()) == 2


def test_a_recall_prefers_conclusions_to_tool_output_and_repairs_words(folder: Path) -> None:
    output = "lantern harbor flicker " * 30
    talk = Talk(1).user("Please go on with the next point.").runs("sh look.sh", output)
    talk.says("In the end, the lantern of the harbor flickers because of a loose cable.").write(folder)
    Talk(2).user("Please go on.").says("The lantern of the harbor flickers at night.").write(folder)
    memory = remembered(folder)
    memory.sync()
    for question in ("why does the lantern of the harbor flicker?", "why does the lantren of the harbor flicker?"):
        recalled = memory.recall(name(1), question, budget=70)
        assert "loose cable" in recalled.excerpts[0].text
        assert [one.kind for one in recalled.excerpts] == ["agent"]
        assert recalled.excerpts[0].at == 3
