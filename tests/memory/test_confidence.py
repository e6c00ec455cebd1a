"""Tests of the confidence in the best session."""

import pytest
from echoes import TOPICS, Talk, source

from thresher.memory import Memory
from thresher.memory.search.confidence import DOUBTFUL, compute_confidence, measure_information
from thresher.render.memory_values import search_result_value


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    folder = tmp_path_factory.mktemp("confidence")
    for number, topic in enumerate(TOPICS):
        source(number, topic).write(folder / "sessions")
    for number in range(50, 80):
        Talk(number).user(f"Please sort the list of paper number {number}.").says("Sorted.").write(folder / "sessions")
    memory = Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)
    memory.sync()
    return memory


@pytest.mark.parametrize("place", range(len(TOPICS)))
def test_a_question_with_an_answer_is_not_doubted(memory: Memory, place: int) -> None:
    answer = memory.search(TOPICS[place].told, sync=False)
    assert answer.confidence is not None
    assert answer.confidence >= DOUBTFUL
    assert not [note for note in answer.notes if "probably not" in note]


@pytest.mark.parametrize(
    "question", ["helm chart of the paper dashboard", "why did we replace nestjs by fastify in the sorted list?"]
)
def test_a_question_without_an_answer_is_doubted(memory: Memory, question: str) -> None:
    answer = memory.search(question, sync=False)
    assert answer.sessions
    assert answer.confidence is not None
    assert answer.confidence < DOUBTFUL
    assert "the best result is probably not what you look for" in answer.notes[0]
    assert search_result_value(answer)["confidence"] == round(answer.confidence, 3)


def test_a_short_query_with_all_its_words_is_not_doubted(memory: Memory) -> None:
    answer = memory.search("sorted", sync=False)
    assert answer.confidence == DOUBTFUL
    assert not answer.notes


def test_filters_for_messages_have_no_confidence(memory: Memory) -> None:
    assert memory.search("helm chart of the paper", role="user", sync=False).confidence is None
    assert memory.search("helm chart of the paper", rank="matches", sync=False).confidence is None


def test_more_and_rarer_words_mean_more_confidence() -> None:
    some = [measure_information(dict.fromkeys("abcd"[:count], 3), 1000) for count in (0, 1, 2, 4)]
    assert some == sorted(set(some))
    assert measure_information({"rare": 1}, 1000) > measure_information({"frequent": 500}, 1000)
    assert [*map(compute_confidence, some)] == sorted(map(compute_confidence, some))
