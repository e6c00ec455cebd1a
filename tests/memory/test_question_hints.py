"""Tests of time and project words in questions, and of the repair of misspelled words."""

from datetime import UTC, datetime

import pytest
from echoes import Talk

from thresher.memory import Memory
from thresher.memory.search.query import Query, parse_query
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.search.spelling import find_repairs
from thresher.memory.search.time_words import find_periods

NOW = datetime(2026, 8, 19, 15, 30, tzinfo=UTC)  # a Wednesday
STARTS = {
    "cipher-box": "2025-12-24",
    "cli": "2026-04-10",
    "pi-mono": "2026-08-18",
    "agentv": "2026-06-15",
    "nimbus": "2026-02-03",
    "shop": "2025-10-31",
}
"""One session in each project, all with the same words."""


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    folder = tmp_path_factory.mktemp("hints")
    (folder / "sessions").mkdir()
    for number, (project, date) in enumerate(STARTS.items(), 1):
        talk = Talk(number, project=f"/home/sam/{project}").user("Please go on with the lantern.")
        talk.says("The lantern flickers when the harbor is dark.")
        lines = b"".join(talk.lines()).replace(b"2026-02-01", date.encode())
        (folder / "sessions" / f"{project}.jsonl").write_bytes(lines)
    memory = Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)
    memory.sync()
    return memory


@pytest.mark.parametrize(
    ("question", "project", "words"),
    [
        ("why did the lantern flicker yesterday?", "pi-mono", "yesterday"),
        ("the lantern that flickered last spring", "cli", "last spring"),
        ("lantern flickers, christmas eve", "cipher-box", "christmas eve"),
        ("in the cli repo, the lantern flickers", "cli", "project cli"),
        ("lantern flickers in cipherbox", "cipher-box", "project cipher-box"),
        ("the cipher box project: lantern flickers", "cipher-box", "project cipher-box"),
        ("lantern flickers, mid june", "agentv", "mid june"),
        ("the lantern flickered in early february 2026", "nimbus", "early february 2026"),
        ("lantern flickering, late december", "cipher-box", "late december"),
        ("two months ago the lantern flickered", "agentv", "two months ago"),
        ("lantern flickers on 2026-04-10", "cli", "2026-04-10"),
        ("which lantern flickered a day ago?", "pi-mono", "a day ago"),
        ("what flickered last tuesday, the lantern?", "pi-mono", "last tuesday"),
        ("the lantern flickered at halloween", "shop", "halloween"),
        ("Laterne lantern flickers, letzten Herbst", "shop", "letzten Herbst"),
        ("lantern flickers, en febrero", "nimbus", "en febrero"),
        ("this week the lantern flickers", "pi-mono", "this week"),
        ("nimbus monorepo lantern flickers", "nimbus", "project nimbus"),
        ("lantern flickers in april", "cli", "in april"),
        ("agentv: a lantern flickers", "agentv", "project agentv"),
    ],
)
def test_words_for_a_time_or_a_project_shift_the_order(memory: Memory, question: str, project: str, words: str) -> None:
    answer = search_archive(memory.store, parse_query(question), SearchView(now=NOW))
    assert answer.sessions[0].project.endswith(project)
    assert len(answer.sessions) == len(STARTS)  # never a filter
    assert sum(words in note and "rank higher" in note for note in answer.notes) == 1


@pytest.mark.parametrize(
    "question",
    [
        "the lantern may flicker",
        "lantern flickers in the spring framework of version 4",
        "march through the harbor with a lantern",
        "the second lantern of the harbor",
        "lantern of the year 20263",
        "lantern in september 2027",
    ],
)
def test_ordinary_words_are_no_times(memory: Memory, question: str) -> None:
    answer = search_archive(memory.store, parse_query(question), SearchView(now=NOW))
    assert not [note for note in answer.notes if "rank higher" in note and "spring" not in note]


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("yesterday", "2026-08-18", "2026-08-19"),
        ("in late august", "2026-08-19", "2026-09-01"),
        ("last august", "2025-08-01", "2025-09-01"),
        ("last december", "2025-12-01", "2026-01-01"),
        ("summer 2024", "2024-06-01", "2024-09-01"),
        ("last month", "2026-07-01", "2026-08-01"),
        ("a week ago", "2026-08-09", "2026-08-16"),
        ("in 2025", "2025-01-01", "2026-01-01"),
        ("2026-03", "2026-03-01", "2026-04-01"),
        ("new year's eve", "2025-12-31", "2026-01-01"),
    ],
)
def test_periods_are_the_most_recent_ones(question: str, start: str, end: str) -> None:
    [period] = find_periods(f"the lantern, {question}", NOW)
    assert (f"{period.start:%Y-%m-%d}", f"{period.end:%Y-%m-%d}") == (start, end)


@pytest.mark.parametrize("question", ["2026-02-31", "2026-13-01", "999 years ago", "the year 0001-01-01 in 2099"])
def test_impossible_times_are_no_times(question: str) -> None:
    assert [period for period in find_periods(question, NOW) if period.end.year < 1900] == []


def test_a_misspelled_word_is_repaired(memory: Memory) -> None:
    for wrong in ("lantren", "lantrn", "lanternn", "Lamtern"):
        answer = search_archive(memory.store, parse_query(f"why does the {wrong} flicker"), SearchView(now=NOW))
        is_rare = wrong in ("lanternn", "Lamtern")  # a replaced letter needs more evidence
        assert any("searched for `lantern`" in note for note in answer.notes) == (not is_rare)
    answer = search_archive(memory.store, parse_query("lantren"), SearchView(now=NOW))
    assert len(answer.sessions) == len(STARTS)


@pytest.mark.parametrize(
    ("words", "repairs"),
    [
        ("coverge of the api", {"coverge": "coverage"}),
        ("colour of the api", {"colour": "color"}),
        ("covr of the api", {}),  # too short
        ("Abdeckung schlägt im Ordner fehl", {}),  # another language
        ("coverge2 covErge_x the api", {}),  # identifiers
        ("", {}),
    ],
)
def test_repairs(words: str, repairs: dict[str, str]) -> None:
    known = {"coverag": 9, "color": 30, "cover": 3, "api": 9, "the": 99, "of": 99, "order": 50}
    assert find_repairs(words.split(), lambda stem: known.get(stem, 0)) == repairs


def test_words_in_tool_output_are_not_repaired(memory: Memory) -> None:
    query = Query(words="lantren", fields=("output",))
    assert search_archive(memory.store, query, SearchView(now=NOW)).sessions == ()
