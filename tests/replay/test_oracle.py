"""The oracle keeps one copy of everything that will be used and drops the rest."""

from itertools import pairwise

import pytest
from small_traces import agent, call, did, user

from thresher.model import History, Message
from thresher.replay import Rates, ResidencyChecker
from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.recording import Recording, build_recording
from thresher.replay.simulate import ReplayTotals, Strategy, replay_recording
from thresher.replay.strategies.baselines import LOW_WATER_SHARE, full_history_strategy, newest_batched_strategy
from thresher.replay.strategies.oracle import batched_oracle_strategy, oracle_strategy

PLENTY = 1_000_000


def line(name: str) -> str:
    return f"total_{name} = price_{name} * count"


def read(name: str, *, words: int = 60, copy: str = "") -> list[Message]:
    """Build a read of a file with one line that may be used."""
    return did(f"read {name}{copy}", "Read", f"{line(name)}\n" + "pad " * words, where=name)


def edit(name: str, id: str = "") -> list[Message]:
    """Build a call that uses that line, too short to be a copy of it."""
    return did(f"edit {name}{id}", "Edit", "done", old_string=line(name), new_string="gone")


def idle(number: int, words: int = 60) -> list[Message]:
    return did(f"idle {number}", "Bash", f"idle {number} " + "pad " * words, command="ls")


def spoken(*groups: list[Message]) -> Recording:
    whole = (user("go"), *groups, agent("done"))
    return build_recording(History(tuple(message for group in whole for message in group)), "small")


def run(recording: Recording, strategy: Strategy) -> tuple[ReplayTotals, list[list[RequestPiece]]]:
    """Return the totals of a recording and every request."""
    requests: list[list[RequestPiece]] = []

    def start(conversation: ReplayConversation, checker: ResidencyChecker) -> RequestBuilder:
        build_request = strategy.start(conversation, checker)

        def kept(at: float | None) -> list[RequestPiece]:
            requests.append(list(build_request(at)))
            return requests[-1]

        return kept

    return replay_recording(recording, Strategy(strategy.name, start), Rates()), requests


def held(requests: list[list[RequestPiece]], name: str) -> list[int]:
    """Return the requests that contain the file with a name."""
    return [n for n, sent in enumerate(requests) if any(p.text.startswith(line(name)) for p in sent)]


def weight(pieces: list[RequestPiece]) -> int:
    return sum(piece.tokens for piece in pieces)


def test_file_is_kept_until_its_last_use() -> None:
    totals, requests = run(spoken(read("a"), read("b"), idle(1), edit("a"), idle(2)), oracle_strategy(PLENTY))
    assert (totals.served, totals.calls_with_references) == (1, 1)
    assert held(requests, "a") == [1, 2, 3]
    assert held(requests, "b") == [2]


def test_older_copy_is_dropped_if_a_newer_one_precedes_the_use() -> None:
    of = spoken(read("a"), idle(1), read("a", copy=" again"), idle(2), edit("a"))
    totals, requests = run(of, oracle_strategy(PLENTY))
    assert totals.served == 1
    assert held(requests, "a") == [1, 3, 4]


def test_lighter_copy_is_kept() -> None:
    of = spoken(read("a", words=10), read("a", words=200, copy=" again"), idle(1), edit("a"))
    sizes = [[p.tokens for p in sent if p.text.startswith(line("a"))] for sent in run(of, oracle_strategy(PLENTY))[1]]
    assert [len(found) for found in sizes] == [0, 1, 2, 1, 0]
    assert sizes[3] == sizes[1]


def test_use_moves_to_a_lighter_copy_kept_for_another_use() -> None:
    light = did("both", "Read", f"{line('a')}\n{line('b')}", where="both")
    heavy = did("again", "Read", f"{line('a')}\n" + "pad " * 200, where="again")
    of = spoken(light, heavy, idle(1), edit("b"), edit("a"))
    totals, requests = run(of, oracle_strategy(PLENTY))
    assert (totals.served, totals.refetch_calls) == (2, 0)
    weights = [max((p.tokens for p in sent if p.text.startswith(line("a"))), default=0) for sent in requests]
    assert weights[2] > 200 > weights[3] == weights[4] > 0


def test_latest_use_is_dropped_first() -> None:
    of = spoken(read("a"), read("b"), idle(1), idle(2), edit("b"), idle(3), edit("a"))
    one = weight([p for p in run(of, full_history_strategy())[1][-1] if p.text.startswith(line("a"))])
    news = weight(run(of, oracle_strategy(0))[1][3])
    totals, requests = run(of, oracle_strategy(news + one))
    assert held(requests, "b") == [2, 3, 4]
    assert 3 not in held(requests, "a")
    assert (totals.served, totals.calls_with_references) == (1, 2)


def test_refetched_text_is_kept_for_its_next_use() -> None:
    two = did("two", "Read", f"{line('a')}\n{line('z')}\n" + "pad " * 60, where="two")
    of = spoken(two, read("b", words=400), edit("a"), idle(1), idle(2), edit("z"), idle(3))
    tight = run(of, oracle_strategy(0))[0]
    assert (tight.served, tight.refetch_calls) == (0, 2)
    # The heavy file leaves no room for the other, which is used first.
    totals, requests = run(of, oracle_strategy(300))
    assert (totals.served, totals.refetch_calls) == (1, 1)
    assert held(requests, "a") == [1, 3, 4, 5]


@pytest.mark.parametrize(
    "strategy", [oracle_strategy(0), batched_oracle_strategy(0)], ids=lambda strategy: strategy.name
)
def test_new_text_is_sent_even_if_nothing_fits(strategy: Strategy) -> None:
    of = spoken(read("a"), read("b"), idle(1))
    requests = run(of, strategy)[1]
    assert held(requests, "a") == [1]
    assert held(requests, "b") == [2]


def test_batched_oracle_drops_nothing_below_the_budget() -> None:
    of = spoken(read("a"), *(idle(n) for n in range(30)), edit("a"), idle(31))
    totals, requests = run(of, batched_oracle_strategy(1000))
    falls = [(before, after) for before, after in pairwise(requests) if after[: len(before)] != before]
    assert 1 <= len(falls) < 6
    assert all(weight(after) <= 1000 * LOW_WATER_SHARE for _, after in falls)
    assert max(map(weight, requests)) <= 1000
    assert (totals.served, totals.calls_with_references) == (1, 1)
    assert run(of, newest_batched_strategy(1000))[0].served == 0


def test_oracle_serves_everything_used_at_lower_cost() -> None:
    names = "abcdefgh"
    of = spoken(*map(read, names), *map(edit, names), *(edit(name, " too") for name in reversed(names)))
    best, most = run(of, oracle_strategy(PLENTY))[0], run(of, full_history_strategy())[0]
    assert best.served == most.served == best.calls_with_references
    assert best.tokens < most.tokens / 1.5


def test_later_equal_text_is_not_the_refetched_block() -> None:
    """The refetched block has an equal one that appears later; both are kept."""
    twin = read("a", words=5), read("a", words=5, copy=" again")
    of = spoken(twin[0], idle(1), edit("a"), idle(2), twin[1], idle(3), edit("a", " too"))
    totals, _ = run(of, oracle_strategy(0))
    assert totals.refetch_calls == 2
    assert run(of, oracle_strategy(PLENTY))[0].served == 2


def test_call_may_be_dropped_without_its_result() -> None:
    of = spoken(read("a"), idle(1), edit("a"))
    texts = [piece.text for piece in run(of, oracle_strategy(PLENTY))[1][2]]
    assert texts[0].startswith(line("a"))
    assert not any(text.startswith("Read") for text in texts)
    assert call("Bash").name in texts[1]
