"""Requirements of the search over past sessions: what it covers, how it matches, ranks and shows."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from archived import Chat, archive, hit_texts, numbers, open_memory, session_id, talk

from command_line import run, run_json

QUINCE = "Where did we plant the quince tree?"


def _search(folder: Path, *arguments: str) -> str:
    """Search on the command line; the sessions of the folder are read first."""
    return run("search", "--no-discover", "--source", str(folder / "sessions"), *arguments).output


# --- which sessions ------------------------------------------------------------------------------------------


def test_sessions_of_all_projects_are_searched(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, QUINCE), talk(2, "Prune the quince, please.", project="/srv/orchard"))
    assert {session.project for session in memory.search("quince").sessions} == {"/home/sam/shop", "/srv/orchard"}


def test_a_session_that_a_recall_created_is_excluded(tmp_path: Path) -> None:
    asked = "Context: This summary will be shown in a list to help users and Claude choose which conversations to read."
    memory = archive(tmp_path, talk(1, QUINCE), talk(2, f"{asked}\n{QUINCE}", "The quince tree is by the wall."))
    assert numbers(memory.search("quince")) == [1]
    assert set(numbers(memory.search("quince", everything=True))) == {1, 2}


def test_a_queued_first_record_is_no_mark_of_a_fork(tmp_path: Path) -> None:
    """On purpose: ordinary sessions begin with such a record as well, so it excludes nothing."""
    queued = {"type": "queue-operation", "operation": "dequeue", "sessionId": session_id(1)}
    talk(1, QUINCE).write(tmp_path / "sessions", queued)
    assert numbers(open_memory(tmp_path).search("quince")) == [1]


def test_a_prompt_that_exists_only_in_the_queue_is_found(tmp_path: Path) -> None:
    chat = talk(1, "Please look at the garden plan.", "It has four beds and a wall.")
    shared = {"type": "queue-operation", "timestamp": "2026-03-01T09:10:00.000Z", "sessionId": chat.id}
    typed = {"operation": "enqueue", "content": "And remember the quince, too."}
    path = chat.write(tmp_path / "sessions")
    rows = (shared | row for row in (typed, {"operation": "remove"}))  # removed: the model received it during a turn
    path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in rows))
    assert hit_texts(open_memory(tmp_path).search("quince")) == ["And remember the quince, too."]


def test_a_fork_that_only_asked_is_behind_its_original(tmp_path: Path) -> None:
    original = talk(1, "Please plant a quince by the wall.").runs("dig --deep quince", "done").says("It is planted.")
    memory = archive(tmp_path, original, talk(2, "Did we plant a quince by the wall?", time="2026-03-09T09"))
    assert numbers(memory.search("did we plant a quince by the wall"))[0] == 1


def test_the_asking_session_is_excluded_when_it_asks_and_found_later(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, QUINCE), talk(2, "Water the quince tree today."))
    assert numbers(memory.search("quince", current=session_id(2))) == [1]
    assert set(numbers(memory.search("quince", current=session_id(1)))) == {2}
    assert set(numbers(memory.search("quince"))) == {1, 2}


def test_the_agent_names_the_asking_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path, talk(1, QUINCE), talk(2, "Water the quince tree today."))
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session_id(2))
    assert "1 in the current session" in _search(tmp_path, "quince")


def test_sub_agents_are_searched_unless_excluded(tmp_path: Path) -> None:
    chat = talk(1, "Please look at the garden plan.", "It has four beds.")
    helper = talk(1, "Count the quince trees in the plan.", isSidechain=True, agentId="a7")
    helper.write(tmp_path / "sessions" / chat.id / "subagents", name="agent-a7.jsonl")
    memory = archive(tmp_path, chat)
    (found,) = memory.search("quince").sessions
    assert (found.id, bool(found.subagent)) == (chat.id, True)
    assert memory.search("quince", subagents=False).found == 0


def test_a_deleted_session_stays_and_a_grown_one_is_read_again(tmp_path: Path) -> None:
    first, second = talk(1, QUINCE), talk(2, "Please look at the garden plan.")
    memory = archive(tmp_path, first, second)
    memory.sync()
    (tmp_path / "sessions" / f"{first.id}.jsonl").unlink()
    second.says("There is a quince in the plan.").write(tmp_path / "sessions")
    found = memory.search("quince")
    assert {session.id: session.gone for session in found.sessions} == {first.id: True, second.id: False}


# --- which messages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "is_found"), [("fig ok", False), ("fig trees", False), ("figs ripen!", True)])
def test_messages_under_ten_characters_are_excluded(tmp_path: Path, text: str, is_found: bool) -> None:
    """On purpose, 10 characters are enough: the limit names the shortest message that counts."""
    memory = archive(tmp_path, talk(1, "Look at the trees.", "Here is the implementation.", text))
    assert bool(memory.search("fig figs").found) == is_found


def test_a_short_message_excludes_only_itself(tmp_path: Path) -> None:
    said = ("Help me implement JWT", "ok", "Here is the JWT implementation.", "thanks", "Can you add JWT refresh?")
    chat = Chat(1)
    for text in said:
        chat.asks(text)
    memory = archive(tmp_path, chat)
    assert sorted(hit_texts(memory.search("jwt"))) == sorted((said[0], said[2], said[4]))
    assert memory.left_out()["short"] == 2


NOISE = {
    "calls written as text": '<function_calls><invoke name="Bash"><parameter name="command">quince</parameter></invoke>'
    "</function_calls>",
    "the end of a call": "quince --now</parameter></invoke>",
    "shell output": "<bash-stdout>quince quince quince</bash-stdout>",
    "numbered shell output": "<bash-123>quince quince</bash-123>",
    "an opened file": "<ide_opened_file>The user opened the file /w/quince.js in the IDE.</ide_opened_file>",
    "a selection": "<ide_selection>The user selected the lines 1 to 2 of /w/quince.js: quince</ide_selection>",
    "a caveat": "Caveat: The messages below were generated by the user while running local commands: quince",
}


@pytest.mark.parametrize("text", NOISE.values(), ids=NOISE)
def test_noise_is_excluded(tmp_path: Path, text: str) -> None:
    memory = archive(tmp_path, talk(1, "Please look at the garden plan.").asks(text))
    found = memory.search("quince")
    assert found.found == 0
    assert sum(found.excluded.values()) == 1
    assert memory.search("quince", everything=True).found == 1


@pytest.mark.parametrize(
    ("role", "text", "word"),
    [
        ("user", "[Request interrupted by user]", "interrupted"),
        ("user", "[Request interrupted by user for tool use]", "interrupted"),
        ("assistant", "API Error: Rate limit exceeded", "exceeded"),
        ("assistant", "Limit reached for model", "reached"),
        ("user", "New environment detected", "environment"),
    ],
)
def test_what_the_harness_reports_is_excluded(tmp_path: Path, role: str, text: str, word: str) -> None:
    content = text if role == "user" else [{"type": "text", "text": text}]
    more = {} if role == "user" else {"isApiErrorMessage": True}
    chat = talk(1, "Please look at the garden plan.").record(role, content, **more)
    assert archive(tmp_path, chat).search(word).found == 0


@pytest.mark.parametrize(
    "text",
    [
        "How should we handle an API Error from Stripe?",
        "Caveat: the JWT refresh needs a second token.",
        "Set up a New environment variable for the limit.",
        "What does `Limit reached` in this log mean?",
        "Why does it print <ide_selection> there?",
        "It said [Request interrupted by user], why?",
    ],
)
def test_a_person_who_mentions_noise_is_found(tmp_path: Path, text: str) -> None:
    """On purpose: a pattern counts where it is the whole message, because elsewhere it loses a person's words."""
    assert archive(tmp_path, talk(1, text)).search(text).found == 1


@pytest.mark.parametrize("header", ["[1/5] abc1234 • Dec 28", "[12/40]  0f3c9a1  • 2026-02-01"])
def test_the_output_of_an_earlier_recall_is_excluded(tmp_path: Path, header: str) -> None:
    memory = archive(tmp_path, talk(1, QUINCE), talk(2, f"{header}\nThis session discussed the quince."))
    assert numbers(memory.search("quince")) == [1]


def test_our_own_output_is_not_found_again(tmp_path: Path) -> None:
    archive(tmp_path, talk(1, QUINCE))
    printed = _search(tmp_path, "quince")
    talk(2, "Please look it up.").runs("thresher search quince", printed).write(tmp_path / "sessions")
    assert numbers(open_memory(tmp_path).search("quince", fields=("human", "output"))) == [1]


def test_what_tools_printed_is_searched_on_request(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, "Please list the garden.").runs("ls garden", "a quince and a medlar"))
    assert memory.search("medlar").found == 0
    assert memory.search("medlar", fields="output").found == 1


# --- matching ------------------------------------------------------------------------------------------------


def test_words_are_alternatives_in_any_case(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, "AUTHENTICATION is set up."), talk(2, "The Jwt is new."), talk(3, "Not this."))
    assert set(numbers(memory.search("authentication jwt"))) == {1, 2}


FIVE = (
    "authentication setup",
    "implement jwt tokens",
    "testing the auth flow",
    "database configuration",
    "implement authentication service",
)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {0, 1, 4}),
        ({"require": "implement"}, {1, 4}),
        ({"exclude": "setup"}, {1, 4}),
        ({"require": ("implement", "jwt")}, {1}),
        ({"require": "implement", "exclude": "service"}, {1}),
        ({"exclude": ("jwt", "service")}, {0}),
    ],
)
def test_required_words_are_all_there_and_excluded_ones_are_not(
    tmp_path: Path, filters: dict[str, Any], found: set[int]
) -> None:
    chat = Chat(1)
    for text in FIVE:
        chat.asks(text)
    results = archive(tmp_path, chat).search("authentication jwt", **filters)
    assert set(hit_texts(results)) == {FIVE[place] for place in found}


def test_a_filter_is_about_one_message_and_not_its_session(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, "The quince is planted.", "The wall is built of stone."))
    assert memory.search("quince", require="wall").found == 0
    assert memory.search("quince", exclude="wall").found == 1


def test_words_match_text_and_neither_paths_nor_ids_nor_times(tmp_path: Path) -> None:
    """On purpose: a word in a project's path would exclude or find everything in that project."""
    memory = archive(tmp_path, talk(1, QUINCE, project="/srv/test"))
    assert memory.search("quince", exclude="test").found == 1
    for word in ("srv", session_id(1), "2026-03-01"):
        assert memory.search(word).found == 0


def test_identical_records_are_one_hit(tmp_path: Path) -> None:
    chat = talk(1, QUINCE)
    path = chat.write(tmp_path / "sessions")
    path.write_text(path.read_text() * 3)
    (session,) = open_memory(tmp_path).search("quince").sessions
    assert (session.matches, len(session.hits)) == (1, 1)


@pytest.mark.parametrize(
    "query",
    [
        "$(touch owned)",
        "`touch owned`",
        "; touch owned #",
        '"; touch owned',
        ".*",
        "(a|b",
        "[",
        "a AND -b",
        "\\",
        "'''",
    ],
)
def test_a_query_is_never_a_program_or_a_pattern(tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive(tmp_path, talk(1, QUINCE)).search(query)
    assert _search(tmp_path, "--", query)
    assert not (tmp_path / "owned").exists()


def test_filters_narrow_by_project_and_time(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, QUINCE), talk(2, "A quince again.", project="/srv/b", time="2026-05-01T09"))
    assert numbers(memory.search("quince", project="/srv")) == [2]
    assert numbers(memory.search("quince", until="2026-04-01")) == [1]


# --- cutting off at a recall ---------------------------------------------------------------------------------

ANNOUNCEMENTS = (
    "I'll search memory for previous work",
    "Let me run memory search for that",
    "Did you remember we talked about this?",
    "Let me go back to a memory of that",
    "I'll use memory recall to check",
)


@pytest.mark.parametrize("announcement", ANNOUNCEMENTS)
def test_a_cutoff_excludes_everything_up_to_the_announced_recall(tmp_path: Path, announcement: str) -> None:
    chat = talk(1, "How to implement the JWT?", "Here is the JWT implementation.", "Go on with the JWT.", announcement)
    chat.asks("Now about that JWT refresh token")
    memory = archive(tmp_path, chat, talk(2, "Another JWT question is here."))
    cut = memory.search("jwt", cutoff=True)
    assert set(hit_texts(cut)) == {"Now about that JWT refresh token", "Another JWT question is here."}


def test_without_a_cutoff_the_work_before_a_recall_is_found(tmp_path: Path) -> None:
    """On purpose: a cutoff loses honest work, so only the recalled text itself is excluded by default."""
    chat = talk(1, "How to implement the JWT?", ANNOUNCEMENTS[0], "Now about that JWT refresh token")
    assert len(hit_texts(archive(tmp_path, chat).search("jwt"))) == 2


# --- ranking and limits --------------------------------------------------------------------------------------


def _matches(number: int, count: int, time: str) -> Chat:
    chat = Chat(number, time=time)
    for place in range(count):
        chat.asks(f"The quince number {place} of garden {number} is planted.")
    return chat


def test_sessions_can_be_ranked_by_matches_and_then_by_time(tmp_path: Path) -> None:
    memory = archive(
        tmp_path,
        _matches(1, 5, "2026-03-01T09"),
        _matches(2, 8, "2026-02-01T09"),
        _matches(3, 8, "2026-02-02T09"),
        _matches(4, 3, "2026-04-01T09"),
    )
    assert numbers(memory.search("quince", rank="matches")) == [3, 2, 1, 4]


def test_by_default_the_best_messages_decide(tmp_path: Path) -> None:
    """On purpose: many weak matches are rarely the session that a person looks for."""
    memory = archive(
        tmp_path, _matches(1, 9, "2026-03-01T09"), talk(2, "Go on, please.", "The quince is grafted on a hawthorn.")
    )
    assert numbers(memory.search("quince grafted hawthorn"))[0] == 2


def test_a_session_that_matches_by_its_title_alone_is_the_last_one(tmp_path: Path) -> None:
    named = talk(1, "Look at the garden.", "I look at it.")
    named.records.append({"type": "ai-title", "sessionId": named.id, "aiTitle": "The quince by the wall"})
    memory = archive(tmp_path, named, _matches(2, 1, "2026-01-01T09"))
    assert [(UUID(one.id).int, one.matches) for one in memory.search("quince").sessions] == [(2, 1), (1, 0)]


def test_what_a_search_excluded_is_counted(tmp_path: Path) -> None:
    chat = talk(1, QUINCE, "The quince is by the wall.").asks("<bash-stdout>quince</bash-stdout>").asks("[quince]")
    memory = archive(tmp_path, chat)
    assert dict(memory.search("quince").excluded) == {"command": 1, "short": 1}
    assert "excluded: 1 too short, 1 in commands; use --all to include them" in _search(tmp_path, "quince")
    assert memory.search("quince", everything=True).sessions[0].matches == 4


def test_ten_sessions_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    memory = archive(tmp_path, *(_matches(number, 1, f"2026-03-{number:02}T09") for number in range(1, 13)))
    found = memory.search("quince")
    assert (len(found.sessions), found.found, found.more) == (10, 12, True)
    assert len(memory.search("quince", sessions=3).sessions) == 3


def test_five_messages_of_a_session_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    memory = archive(tmp_path, _matches(1, 10, "2026-03-01T09"))
    (session,) = memory.search("quince").sessions
    assert (len(session.hits), session.matches) == (5, 10)
    assert "... and 5 more matches" in _search(tmp_path, "quince")
    assert "... and 8 more matches" in _search(tmp_path, "quince", "--messages", "2")


def test_the_best_messages_are_shown_and_not_the_oldest(tmp_path: Path) -> None:
    """On purpose: the oldest matches of a long session are rarely those that a person looks for."""
    chat = _matches(1, 8, "2026-03-01T09").asks("The quince is grafted on a hawthorn.")
    (session,) = archive(tmp_path, chat).search("quince hawthorn", messages=1).sessions
    assert session.hits[0].text == "The quince is grafted on a hawthorn."


LONG = f"{'The garden has many beds. ' * 20}Here the quince is planted. {'Water it often, please. ' * 20}"


@pytest.mark.parametrize("context", [100, 300, 600])
def test_a_long_message_is_shown_around_its_match(tmp_path: Path, context: int) -> None:
    (text,) = hit_texts(archive(tmp_path, talk(1, LONG)).search("quince", context=context))
    assert "quince" in text
    assert text in LONG
    assert context / 2 <= len(text) <= context
    assert text.index("quince") <= len(text) / 2, "more follows the match than precedes it"


def test_a_snippet_has_300_characters_unless_told_and_a_short_message_is_whole(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, LONG, QUINCE))
    assert sorted(map(len, hit_texts(memory.search("quince"))))[0] == len(QUINCE)
    assert 250 <= max(map(len, hit_texts(memory.search("quince")))) <= 300


def test_a_session_is_shown_with_its_facts_and_messages(tmp_path: Path) -> None:
    archive(tmp_path, talk(1, QUINCE, "The quince is by the wall."))
    lines = _search(tmp_path, "quince").splitlines()
    assert lines[1].startswith("/home/sam/shop | 00000000 | 2 matches | 2026-03-01 ")
    assert "  [user] Where did we plant the quince tree?  #0" in lines
    assert "  [asst] The quince is by the wall.  #1" in lines
    assert "Found matches in 1 session" in lines


def test_each_hit_has_its_session_time_author_text_and_place(tmp_path: Path) -> None:
    archive(tmp_path, talk(1, QUINCE))
    value = run_json("search", "quince", "--no-discover", "--source", str(tmp_path / "sessions"))
    (session,) = value["sessions"]
    (hit,) = session["hits"]
    assert (session["id"], session["project"]) == (session_id(1), "/home/sam/shop")
    assert (hit["role"], hit["author"], hit["text"], hit["line"]) == ("user", "human", QUINCE, 1)
    assert hit["time"].startswith("2026-03-01T09:00:00")


def test_a_search_without_results_says_what_to_try(tmp_path: Path) -> None:
    archive(tmp_path, talk(1, QUINCE))
    result = run("search", "zebra", "--no-discover", "--source", str(tmp_path / "sessions"))
    assert result.exit_code == 1
    assert "other words" in result.output


# --- asking one session --------------------------------------------------------------------------------------


def test_a_session_answers_a_question_by_the_start_of_its_id(tmp_path: Path) -> None:
    memory = archive(tmp_path, Chat(0xABC << 100).asks(QUINCE).says("The quince tree is planted by the wall."))
    memory.sync()
    recalled = memory.recall(session_id(0xABC << 100)[:12], "where is the quince tree planted?")
    assert recalled.found
    assert "by the wall" in " ".join(excerpt.text for excerpt in recalled.excerpts)


def test_a_session_without_an_answer_says_so(tmp_path: Path) -> None:
    memory = archive(tmp_path, talk(1, QUINCE))
    memory.sync()
    assert not memory.recall(session_id(1), "which compiler flags does the kernel need?").found


def test_a_question_does_not_change_the_session(tmp_path: Path) -> None:
    """On purpose: nothing is asked inside the old session, so it does not gain the question and its answer."""
    memory = archive(tmp_path, talk(1, QUINCE))
    path = tmp_path / "sessions" / f"{session_id(1)}.jsonl"
    memory.sync()
    before = path.read_bytes()
    memory.recall(session_id(1), "where is the quince tree?")
    assert path.read_bytes() == before
    assert memory.facts(session_id(1)).messages == 1
