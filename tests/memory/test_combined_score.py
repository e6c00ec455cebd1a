"""Tests of the combined score of a session: by its best messages, by all its words, and by meaning."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from echoes import Talk

from thresher.memory import Memory
from thresher.memory.results import SearchResults
from thresher.memory.search.combined_score import MEANING_CANDIDATES, MeaningScorer
from thresher.memory.search.query import Query
from thresher.memory.search.query_compiler import compile_query


def remembered(folder: Path, *sessions: Sequence[str], meaning: MeaningScorer | None = None) -> Memory:
    for number, texts in enumerate(sessions, 1):
        talk = Talk(number, day=number).user("Please go on with the next point.")
        for text in texts:
            talk.says(text)
        talk.write(folder / "sessions")
    memory = Memory(home=folder / "home", sources=[folder / "sessions"], discover=False, meaning=meaning)
    memory.sync()
    return memory


def numbers(answer: SearchResults) -> list[int]:
    return [int(session.id.replace("-", ""), 16) for session in answer.sessions]


SPREAD = (
    ["The invoice has another layout now.", "Half pennies are gone."],
    [f"The {word} of it needs more care, as we saw." for word in ("layout", "rounding", "currency", "invoice", "total")]
    + ["The invoice layout is next."],
    *([f"Number {number} speaks of the layout of the page."] for number in range(20)),
)


def test_words_that_are_spread_over_a_session_count(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *SPREAD)
    assert numbers(memory.search("rounding of the currency total in the invoice layout"))[0] == 2


def test_a_message_with_all_words_outweighs_words_that_are_spread(tmp_path: Path) -> None:
    whole = ["Rounding the currency total in the invoice layout is what broke."]
    memory = remembered(tmp_path, *SPREAD, whole)
    assert numbers(memory.search("rounding of the currency total in the invoice layout"))[0] == len(SPREAD) + 1


def test_lengths_of_sessions_are_counted_once_until_the_index_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remembered(tmp_path, *SPREAD)
    index = memory.store.open_index()
    assert index is not None
    counted = Mock(wraps=index.count_by_field)
    monkeypatch.setattr(index, "count_by_field", counted)

    def lengths(query: Query) -> dict[int, int]:
        compiled = compile_query(memory.store, query)
        assert compiled is not None
        return compiled.conversation_lengths([one.key for one in memory.store.find_sessions()])

    first = lengths(Query(words="layout"))
    assert sum(first.values()) > len(first)
    assert lengths(Query(words="invoice")) == first
    assert counted.call_count == 1
    assert sum(lengths(Query(words="layout", role="user")).values()) < sum(first.values())
    grown = Talk(1, day=1).user("Please go on with the next point.")
    for text in (*SPREAD[0], "The page has a new layout."):
        grown.says(text)
    grown.write(tmp_path / "sessions")
    memory.sync()
    assert sum(lengths(Query(words="layout")).values()) == sum(first.values()) + 1


def test_a_search_reads_each_session_once_to_rank_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = remembered(tmp_path, *SPREAD)
    read = Mock(wraps=memory.store.find_sessions)
    monkeypatch.setattr(memory.store, "find_sessions", read)
    assert memory.search("layout of the invoice", sync=False).sessions
    keys = [key for call in read.call_args_list if call.args for key in call.args[0]]
    assert len(keys) == len(set(keys)) == len(SPREAD)


def test_a_command_is_found_by_its_message(tmp_path: Path) -> None:
    command = "python -m pytest tests/memory -k recall_spans -x"
    about = ["We run python and pytest.", "The memory tests are slow.", "Recall spans are tested."]
    memory = remembered(tmp_path, [f"I run {command}"], *([*about, f"Case {number}."] for number in range(3)))
    assert numbers(memory.search(command))[0] == 1


class Preferring:
    """Scores one session highest and knows nothing about another."""

    def __init__(self, best: int, *, unknown: int = 0, near: Sequence[int] = ()) -> None:
        self.best, self.unknown, self.near = best, unknown, near
        self.calls: list[tuple[str, list[int]]] = []

    def score_sessions(self, question: str, sessions: Sequence[int]) -> Mapping[int, float]:
        self.calls.append((question, [*sessions]))
        return {key: 0.9 if key == self.best else 0.1 for key in sessions if key != self.unknown}

    def find_sessions(self, question: str) -> Sequence[int]:
        return self.near if question else ()


SIMILAR = (["The lantern flickers."], ["The lantern of the harbor flickers."], ["A lantern flickers there at night."])


def test_a_scorer_by_meaning_changes_the_order(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *SIMILAR)
    before = numbers(memory.search("flickers lantern"))
    last = next(one.key for one in memory.store.find_sessions() if int(one.id.replace("-", ""), 16) == before[-1])
    scorer = Preferring(last)
    memory = Memory(home=tmp_path / "home", discover=False, meaning=scorer)
    after = numbers(memory.search("flickers lantern?", sync=False))
    assert after[0] == before[-1]
    assert sorted(after) == sorted(before)
    assert [question for question, _ in scorer.calls] == ["flickers lantern?"]


def test_a_session_without_vectors_counts_as_an_average_one(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *(["The lantern flickers."] for _ in range(4)))
    keys = {int(one.id.replace("-", ""), 16): one.key for one in memory.store.find_sessions()}
    scorer = Preferring(keys[2], unknown=keys[1])
    memory = Memory(home=tmp_path / "home", discover=False, meaning=scorer)
    assert numbers(memory.search("lantern", sync=False))[:2] == [2, 1]


def test_a_scorer_by_meaning_gets_the_best_sessions_only(tmp_path: Path) -> None:
    scorer = Preferring(0)
    many = [["The lantern flickers."], *(["A lantern."] for _ in range(MEANING_CANDIDATES + 5))]
    remembered(tmp_path, *many, meaning=scorer).search("lantern flickers")
    [(_, keys)] = scorer.calls
    assert len(keys) == len(set(keys)) == MEANING_CANDIDATES


@pytest.mark.parametrize("query", [Query(words="lantern", rank="matches"), Query(words="unicorn")])
def test_a_scorer_by_meaning_is_not_needed(tmp_path: Path, query: Query) -> None:
    scorer = Preferring(0)
    remembered(tmp_path, *SIMILAR, meaning=scorer).search(query)
    assert not [keys for _, keys in scorer.calls if keys]


def test_a_scorer_can_add_sessions_without_the_words_within_the_filters(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *SIMILAR, ["Nothing of the kind is here."])
    keys = {int(one.id.replace("-", ""), 16): one.key for one in memory.store.find_sessions()}
    scorer = Preferring(keys[4], near=[keys[4]])
    memory = Memory(home=tmp_path / "home", discover=False, meaning=scorer)
    assert numbers(memory.search("la lanterne flickers", sync=False))[0] == 4
    assert 4 not in numbers(memory.search("la lanterne flickers", sync=False, project="elsewhere"))
    assert 4 not in numbers(memory.search("la lanterne flickers", sync=False, require="lantern"))
    assert 4 not in numbers(memory.search("la lanterne flickers", sync=False, current=str(uuid.UUID(int=4))))
