"""A search returns the session that did the work, and no recalled text.

The data: ten sources with two queries each; twenty-four kinds of echoes, each between other work; sessions that
memory tools created; and messages that only resemble an echo.
"""

from pathlib import Path

import pytest
from chats import chat, name
from echoes import (
    CHORES,
    ECHOES,
    HONEST,
    MADE,
    TOPICS,
    Rollout,
    Talk,
    Topic,
    after_of,
    before_of,
    echo,
    honest,
    own_block,
    paraphrased,
    some_topics,
    source,
    write_set,
)

from thresher.memory import Memory
from thresher.memory.results import SearchResults, SessionHit
from thresher.memory.search.query import SEARCH_FIELDS, Query
from thresher.render.memory import recall_lines, search_result_lines, wrap_lines_in_tags

QUESTIONS = [(place, question) for place, topic in enumerate(TOPICS) for question in topic.questions]
WHOLE = 100_000


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Return a memory with all sources, echoes and honest messages."""
    folder = tmp_path_factory.mktemp("echoes")
    write_set(folder / "sessions")
    for number, (role, text) in enumerate(HONEST):
        honest(number, role, text).write(folder / "sessions")
    memory = Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)
    memory.sync()
    return memory


def remembered(folder: Path) -> Memory:
    return Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)


def ids(answer: SearchResults) -> list[str]:
    return [session.id for session in answer.sessions]


def flat(text: str) -> str:
    return " ".join(text.split())


def quotes(session: SessionHit, topic: Topic) -> bool:
    """Return whether a hit shows recalled text on a topic: request and answer together."""
    seam = flat(f"{topic.asked[-25:]} {topic.told[:25]}")
    return any(seam in flat(hit.text) for hit in session.hits)


# Sources and their echoes.


@pytest.mark.parametrize(("place", "question"), QUESTIONS)
def test_the_source_ranks_first_without_echoes_in_the_first_five(memory: Memory, place: int, question: str) -> None:
    answer = memory.search(question, sync=False, sessions=5, messages=100, context=WHOLE)
    assert ids(answer)[0] == name(100 + place)
    assert not any(quotes(session, topic) for session in answer.sessions for topic in TOPICS)
    assert not {name(300 + number) for number in range(len(MADE))}.intersection(ids(answer))
    assert answer.excluded["recall"] >= len(ECHOES) // 4


@pytest.mark.parametrize(("place", "question"), QUESTIONS[::3])
def test_echoes_are_included_on_request(memory: Memory, place: int, question: str) -> None:
    answer = memory.search(
        question, sync=False, sessions=60, messages=100, context=WHOLE, everything=True, fields=SEARCH_FIELDS
    )
    assert sum(quotes(session, TOPICS[place]) for session in answer.sessions) >= len(ECHOES) // 3
    assert answer.excluded == {}
    every = memory.search(question, sync=False, fields=SEARCH_FIELDS)
    assert answer.found > every.found


@pytest.mark.parametrize("question", [question for _, question in QUESTIONS])
def test_a_paraphrase_ranks_below_its_source(memory: Memory, question: str) -> None:
    order = ids(memory.search(question, sync=False, sessions=60))
    place = next(place for place, asked in QUESTIONS if asked == question)
    told = [name(200 + at) for at, way in enumerate(ECHOES) if "paraphrase" in way and TOPICS[place] in some_topics(at)]
    assert told
    assert all(order.index(name(100 + place)) < order.index(one) for one in told if one in order)


@pytest.mark.parametrize(("place", "question"), QUESTIONS)
@pytest.mark.parametrize("asked", ["the question", "something else"])
def test_a_short_paraphrase_ranks_below_its_source_too(tmp_path: Path, place: int, question: str, asked: str) -> None:
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(tmp_path / "sessions")
    told = paraphrased(TOPICS[place])
    for number in range(3):
        talk = Talk(1 + number, day=20 + number).user(
            question if asked == "the question" else "What do we know of this?"
        )
        talk.does("mcp__thresher__search", own_block([TOPICS[place]]), query=question).says(told)
        talk.write(tmp_path / "sessions")
    order = ids(remembered(tmp_path).search(question))
    assert order[0] == name(100 + place)


@pytest.mark.parametrize("place", range(len(TOPICS)))
def test_recalled_words_rank_below_original_words(tmp_path: Path, place: int) -> None:
    told = TOPICS[place].told
    Talk(1).user("What was it in the end?").says(told).write(tmp_path / "sessions")
    talk = Talk(2, day=20).user("What was it in the end?").does("mcp__deja__deja", told, query="end").says(told)
    talk.write(tmp_path / "sessions")
    assert ids(remembered(tmp_path).search(told)) == [name(1), name(2)]


def test_a_paraphrase_is_found_without_its_source(tmp_path: Path) -> None:
    talk = Talk(1).user("How did we fix the refresh?").does("mcp__thresher__search", own_block(TOPICS[:1]), query="x")
    talk.says(paraphrased(TOPICS[0])).write(tmp_path / "sessions")
    answer = remembered(tmp_path).search("rotated refresh token grace period")
    assert ids(answer) == [name(1)]
    assert answer.sessions[0].hits[0].text == paraphrased(TOPICS[0])


@pytest.mark.parametrize(
    ("number", "way", "chore"), [(n, *both) for n, both in enumerate(zip(ECHOES, CHORES, strict=True))]
)
def test_work_before_and_after_an_echo_is_found(memory: Memory, number: int, way: str, chore: str) -> None:
    for said in (before_of(chore), after_of(chore)):
        best = memory.search(said, sync=False).sessions[0]
        assert best.id == name(200 + number), way
        assert said in [hit.text for hit in best.hits]


@pytest.mark.parametrize("number", range(len(HONEST)))
def test_messages_that_resemble_echoes_are_found(memory: Memory, number: int) -> None:
    text = HONEST[number][1]
    best = memory.search(Query(words=text), sync=False, context=WHOLE).sessions[0]
    assert best.id == name(400 + number)
    assert flat(text) in [hit.text for hit in best.hits]


# Thresher's own output.


@pytest.mark.parametrize(("place", "question"), QUESTIONS[::4])
def test_output_of_thresher_is_recognized(tmp_path: Path, place: int, question: str) -> None:
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(tmp_path / "sessions")
    memory = remembered(tmp_path)
    answer = memory.search(question)
    recalled = memory.recall(answer.sessions[0].id, question)
    printed = "\n".join(line.text for line in wrap_lines_in_tags(search_result_lines(answer), ids(answer)))
    excerpts = "\n".join(line.text for line in wrap_lines_in_tags(recall_lines(recalled), [recalled.session.id]))
    assert TOPICS[place].told[:40] in printed + excerpts
    for number, output in enumerate((printed, excerpts)):
        talk = Talk(1 + number).user("What do the others say?").runs("sh look.sh", f"2 files\n{output}\n3 files")
        talk.says("I pass it on.").user(f"Look at this:\n{output}\n").says("Seen.").write(tmp_path / "sessions")
        Rollout(10 + number, (("user", "What else?"), ("runs", "sh look.sh", output))).write(tmp_path / "sessions")
    after = memory.search(question)
    assert ids(after) == ids(answer)
    assert after.excluded["recall"] >= 2
    for output in (question, TOPICS[place].told):
        printed_too = memory.search(output, fields=("output",))
        assert not {name(1), name(2), name(10), name(11)}.intersection(ids(printed_too))


# Sessions that only asked.


@pytest.mark.parametrize(("place", "question"), QUESTIONS)
@pytest.mark.parametrize("looks", [False, True])
def test_a_session_that_only_asked_ranks_behind_the_answer(
    tmp_path: Path, place: int, question: str, looks: bool
) -> None:
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(tmp_path / "sessions")
    for number in range(3):
        talk = Talk(1 + number, day=20 + number).user(question)
        if looks:
            talk.does("mcp__thresher__search", own_block([TOPICS[place]]), query=question).says("That is all I find.")
        else:
            talk.says("I do not know: nothing in this folder speaks of that.")
        talk.write(tmp_path / "sessions")
    answer = remembered(tmp_path).search(question)
    assert ids(answer)[0] == name(100 + place)
    assert not any(quotes(session, TOPICS[place]) for session in answer.sessions)


def test_a_session_that_asked_and_acted_keeps_its_rank(tmp_path: Path) -> None:
    order = "Move the parcel labels to the new printer queue"
    talk = Talk(1).user(order).does("Edit", "updated", file_path="/home/sam/shop/ops/cups.conf", new_string="lp0")
    talk.says("It is done.").write(tmp_path / "sessions")
    Talk(2, day=9).user("The printer is loud today.").says("Put the parcel on it.").write(tmp_path / "sessions")
    assert ids(remembered(tmp_path).search(order))[0] == name(1)


def test_a_question_without_an_answer_is_still_found(tmp_path: Path) -> None:
    Talk(1).user("Which carrier takes pianos to Iceland?").says("I do not know.").write(tmp_path / "sessions")
    assert ids(remembered(tmp_path).search("which carrier takes pianos to iceland?")) == [name(1)]


# Families.


def _family(folder: Path) -> None:
    """A source, a resumed copy that continued, and another source."""
    first = source(0, TOPICS[0])
    first.write(folder)
    first.write_copy(folder, Talk(1, day=12).user("Now log how often the grace period is used.").says("It is counted."))
    source(1, TOPICS[1]).write(folder)


def test_a_resumed_copy_is_one_hit_with_its_source(tmp_path: Path) -> None:
    _family(tmp_path / "sessions")
    memory = remembered(tmp_path)
    answer = memory.search("refresh token rotated by two tabs")
    assert answer.found == len(answer.sessions) == 1
    best = answer.sessions[0]
    assert {best.id, *best.family} == {name(100), name(1)}
    newest = memory.search("how often is the grace period used").sessions[0]
    assert newest.id == name(1)


def test_a_fork_that_names_its_parent_is_one_hit_with_it(tmp_path: Path) -> None:
    source(0, TOPICS[0]).write(tmp_path / "sessions")
    fork = Talk(1, day=12).user(TOPICS[0].asked, forkedFrom={"sessionId": name(100), "messageUuid": "x"})
    fork.says(TOPICS[0].told).write(tmp_path / "sessions")
    answer = remembered(tmp_path).search(TOPICS[0].questions[0])
    assert answer.found == 1
    assert {answer.sessions[0].id, *answer.sessions[0].family} == {name(100), name(1)}


def test_a_compaction_adds_no_hit_and_its_summary_does_not_outrank_the_source(tmp_path: Path) -> None:
    talk = source(0, TOPICS[0])
    talk.compacts(f"Summary: {TOPICS[0].told}").user("Go on with the login page.").says("The login page is next.")
    talk.write(tmp_path / "sessions")
    source(1, TOPICS[1]).write(tmp_path / "sessions")
    answer = remembered(tmp_path).search("refresh token rotated by two tabs at the same moment")
    assert ids(answer) == [name(100)]
    assert answer.sessions[0].hits[0].text == TOPICS[0].told


# The current session.


def test_the_current_session_and_its_family_are_excluded(tmp_path: Path) -> None:
    _family(tmp_path / "sessions")
    memory = remembered(tmp_path)
    for current in (name(100), name(1)):
        answer = memory.search("grace period of the refresh token", current=current)
        assert not {name(100), name(1)}.intersection(ids(answer))
        assert answer.excluded["current session"] > 0
    assert ids(memory.search("grace period of the refresh token"))[0] in (name(100), name(1))
    assert ids(memory.search("grace period of the refresh token", current=name(100), everything=True))[0] != name(101)


def test_an_unknown_current_session_is_reported(tmp_path: Path) -> None:
    _family(tmp_path / "sessions")
    answer = remembered(tmp_path).search("grace period", current=name(999))
    assert ids(answer)
    assert any(name(999) in note for note in answer.notes)


def test_the_session_of_a_sub_agent_is_found_by_its_words(tmp_path: Path) -> None:
    talk = source(0, TOPICS[0]).does("Agent", "Found it.", description="Find floats", prompt="Find all floats.")
    talk.write(tmp_path / "sessions")
    below = Talk(100, day=3).user("Find all floats in the voucher arithmetic.").says("The voucher arithmetic has four.")
    records = b"".join(below.lines()).replace(
        b'"type": "user"', b'"isSidechain": true, "agentId": "a1b2c3", "type": "user"'
    )
    path = tmp_path / "sessions" / name(100) / "subagents" / "agent-a1b2c3.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        records.replace(b'"type": "assistant"', b'"isSidechain": true, "agentId": "a1b2c3", "type": "assistant"')
    )
    source(1, TOPICS[1]).write(tmp_path / "sessions")
    memory = remembered(tmp_path)
    shown = memory.search("floats in voucher arithmetic").sessions[0]
    assert shown.hits[0].text.startswith(("Find all floats", "The voucher"))
    assert (shown.id, shown.subagent, shown.cited_id, shown.parent) == (name(100), "a1b2c3", "a1b2c3", "")
    assert shown.file == str(path)
    assert shown.resume.endswith(f"claude --resume {name(100)}")
    assert name(100) not in shown.family
    cited = memory.session(shown.cited_id).messages()
    assert [message.text for message in cited][shown.hits[0].at] == shown.hits[0].text
    [line] = [
        line
        for line in "".join(one.text + "\n" for one in search_result_lines(SearchResults("", (shown,), 1))).splitlines()
        if "in sub-agent a1b2c3" in line
    ]
    assert line.startswith("/home")
    by_regex = memory.search("", regex="voucher arithmetic has").sessions[0]
    assert (by_regex.id, by_regex.subagent) == (name(100), "a1b2c3")
    answer = memory.search("floats in voucher arithmetic", subagents=False)
    assert not any("voucher" in hit.text for session in answer.sessions for hit in session.hits)
    assert answer.excluded == {"sub-agent": 2}


def test_a_sub_agent_whose_session_is_not_archived_names_its_parent(tmp_path: Path) -> None:
    below = Talk(100, day=3).user("Find all floats in the voucher arithmetic.").says("The voucher arithmetic has four.")
    records = b"".join(below.lines()).replace(b'"type": "', b'"isSidechain": true, "agentId": "a1b2c3", "type": "')
    path = tmp_path / "sessions" / name(100) / "subagents" / "agent-a1b2c3.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(records)
    shown = remembered(tmp_path).search("floats in voucher arithmetic").sessions[0]
    assert (shown.id, shown.subagent, shown.parent, shown.resume) == ("a1b2c3", "", name(100), "")


# The cut-off.


def test_the_cut_off_loses_original_work(tmp_path: Path) -> None:
    """The cut-off is for comparison: it excludes text before a recall and keeps text after it."""
    echo(0, ECHOES["our MCP tool"], some_topics(0), CHORES[0]).write(tmp_path / "sessions")
    memory = remembered(tmp_path)
    assert ids(memory.search(before_of(CHORES[0])))
    cut = memory.search(before_of(CHORES[0]), cutoff=True)
    assert not any(before_of(CHORES[0]) in hit.text for session in cut.sessions for hit in session.hits)
    assert cut.excluded["before a recall"] >= 1
    assert ids(memory.search("regression test guards it", cutoff=True)) == [name(200)]


ANNOUNCEMENTS = (
    "I'll search for the earlier sessions on this.",
    "Let me run memory search.",
    "Did you remember that we talked about this?",
    "Let me go back to a memory of that.",
    "I'll use memory recall to check.",
)


@pytest.mark.parametrize("words", ANNOUNCEMENTS)
@pytest.mark.parametrize("is_human", [True, False])
def test_the_cut_off_knows_announced_recalls(tmp_path: Path, words: str, *, is_human: bool) -> None:
    (tmp_path / "sessions").mkdir()
    texts = ["The lilac parcel is on the cart.", "It is there.", "Fine, thank you so much.", "You are welcome here."]
    texts[2 if is_human else 3] = words
    texts += ["The lilac parcel is at the gate.", "So be it."]
    (tmp_path / "sessions" / f"{name(1)}.jsonl").write_bytes(chat(name(1), texts))
    memory = remembered(tmp_path)
    assert [hit.at for hit in memory.search("lilac parcel").sessions[0].hits] == [0, 4]
    results = memory.search("lilac parcel", cutoff=True)
    assert [hit.at for hit in results.sessions[0].hits] == [4]
    assert results.excluded == {"before a recall": 1}
