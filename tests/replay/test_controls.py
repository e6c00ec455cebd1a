"""Baselines: what they keep, what they drop, and when."""

from itertools import pairwise

import pytest
from small_traces import did, user

from thresher.model import History, Message, Text
from thresher.replay import Rates
from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.recording import Recording, build_recording
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy, replay_recording
from thresher.replay.strategies.baselines import (
    LOW_WATER_SHARE,
    full_history_strategy,
    newest_batched_strategy,
    random_strategy,
    recency_strategy,
)

BUDGET = 1000
BATCHED = [newest_batched_strategy(BUDGET), random_strategy(BUDGET, 1)]
ALL = [recency_strategy(BUDGET), *BATCHED]


def conversation(count: int, name: str = "small", *, words: int = 80) -> Recording:
    """Build a recording with a request and `count` reads of files that are never used."""
    rules = [Message("system", (Text("the rules"),))]
    reads = [did(f"c{n}", "Read", f"file {n} " + "pad " * words, file_path=f"place {n}") for n in range(count)]
    groups = (rules, user("the first request"), *reads, user("and now"))
    return build_recording(History(tuple(message for group in groups for message in group)), name)


def sent(recording: Recording, strategy: Strategy) -> list[list[RequestPiece]]:
    """Return every request of a strategy."""
    requests: list[list[RequestPiece]] = []

    def start(conversation: ReplayConversation, checker: ResidencyChecker) -> RequestBuilder:
        build_request = strategy.start(conversation, checker)

        def kept(at: float | None) -> list[RequestPiece]:
            requests.append(list(build_request(at)))
            return requests[-1]

        return kept

    replay_recording(recording, Strategy(strategy.name, start), Rates())
    return requests


def weight(pieces: list[RequestPiece]) -> int:
    return sum(piece.tokens for piece in pieces)


def files(pieces: list[RequestPiece]) -> list[int]:
    """Return the numbers of the results in a request."""
    return [int(piece.text.split()[1]) for piece in pieces if piece.text.startswith("file ")]


def asked(pieces: list[RequestPiece]) -> list[int]:
    """Return the numbers of the calls in a request."""
    return [int(piece.text.split()[-1]) for piece in pieces if piece.text.startswith("Read\n")]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return conversation(30)


def test_full_history_sends_everything(recording: Recording) -> None:
    assert [files(request) for request in sent(recording, full_history_strategy())] == [
        list(range(n)) for n in range(30)
    ]
    assert full_history_strategy().budget is None


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_head_and_new_messages_are_in_every_request(recording: Recording, strategy: Strategy) -> None:
    for number, request in enumerate(sent(recording, strategy)):
        assert [piece.text for piece in request[:2]] == ["the rules", "the first request"]
        assert not number or files(request)[-1] == number - 1


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_no_request_exceeds_the_budget_and_something_is_dropped(recording: Recording, strategy: Strategy) -> None:
    requests = sent(recording, strategy)
    assert max(map(weight, requests)) <= BUDGET
    assert strategy.budget == BUDGET
    assert len(files(requests[-1])) < 29


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_calls_keep_their_results_and_dropped_messages_stay_dropped(recording: Recording, strategy: Strategy) -> None:
    requests = sent(recording, strategy)
    assert all(files(request) == asked(request) for request in requests)
    for number, (before, after) in enumerate(pairwise(requests)):
        assert set(files(after)) <= {*files(before), number}


def test_recency_keeps_as_many_new_messages_as_fit(recording: Recording) -> None:
    whole = sent(recording, full_history_strategy())
    for request, everything in zip(sent(recording, recency_strategy(BUDGET)), whole, strict=True):
        held = files(request)
        assert held == files(everything)[-len(held) :] or not held
        if len(held) < len(files(everything)):
            one = weight(everything[-2:])
            assert weight(request) + one > BUDGET


@pytest.mark.parametrize("strategy", BATCHED, ids=lambda strategy: strategy.name)
def test_batched_request_extends_the_last_one_or_shrinks(recording: Recording, strategy: Strategy) -> None:
    falls = 0
    for before, after in pairwise(sent(recording, strategy)):
        if after[: len(before)] != before:
            falls += 1
            assert weight(after) <= BUDGET * LOW_WATER_SHARE
    assert 1 < falls < 10


def test_shrinking_keeps_the_newest_messages(recording: Recording) -> None:
    for request in sent(recording, newest_batched_strategy(BUDGET)):
        assert all(after == before + 1 for before, after in pairwise(files(request)))


def test_random_depends_only_on_seed_and_recording(recording: Recording) -> None:
    first, again, other = (sent(recording, random_strategy(BUDGET, seed)) for seed in (1, 1, 2))
    renamed = sent(conversation(30, "another"), random_strategy(BUDGET, 1))
    chosen, same, reseeded, moved = ([files(r) for r in requests] for requests in (first, again, other, renamed))
    assert chosen == same
    assert chosen != reseeded
    assert chosen != moved
    assert any(after != before + 1 for held in chosen for before, after in pairwise(held))


@pytest.mark.parametrize(
    "strategy",
    [recency_strategy(50), newest_batched_strategy(50), random_strategy(50, 1)],
    ids=lambda strategy: strategy.name,
)
def test_new_messages_are_sent_even_if_they_exceed_the_budget(strategy: Strategy) -> None:
    requests = sent(conversation(5), strategy)
    assert [files(request) for request in requests] == [[], [0], [1], [2], [3]]
    assert all(weight(request) > 50 for request in requests[1:])


@pytest.mark.parametrize(
    "strategy",
    [recency_strategy(50), newest_batched_strategy(50), random_strategy(50, 1)],
    ids=lambda strategy: strategy.name,
)
def test_new_user_message_keeps_the_results_before_it(strategy: Strategy) -> None:
    groups = (user("go"), did("c0", "Read", "file 0 " + "pad " * 80, path="a"), user("and now"), did("c1", "Read", "x"))
    of = build_recording(History(tuple(message for group in groups for message in group)))
    texts = [[piece.text for piece in request] for request in sent(of, strategy)]
    assert [text[:6] for text in texts[1]] == ["go", "Read\na", "file 0", "and no"]
