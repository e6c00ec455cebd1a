"""The upper bound: calculated by hand, and compared with every strategy that it holds for."""

import json
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from small_traces import agent, did, user

from thresher.model import History, Message, Text, ToolResult
from thresher.replay import Rates, ResidencyChecker
from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.recording import Recording, build_recording
from thresher.replay.simulate import ReplayTotals, Strategy, replay_recording
from thresher.replay.strategies.baselines import (
    full_history_strategy,
    newest_batched_strategy,
    random_strategy,
    recency_strategy,
)
from thresher.replay.strategies.oracle import batched_oracle_strategy, oracle_strategy
from thresher.replay.strategies.upper_bound import MinimumCost, compute_minimum_cost, least_tokens, most_served
from thresher.replay.trace import block_text

MODELS = ["", "claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro"]


def spoken(*groups: list[Message], model: str = "", tools: str = "", name: str = "small") -> Recording:
    messages = [message for group in (user("go"), *groups, agent("done")) for message in group]
    whole = [structs.replace(one, model=model) if one.role == "assistant" else one for one in messages]
    return build_recording(History(tuple(whole), tools=tools), name)


def line(number: int) -> str:
    return f"total_{number} = price_{number} * count"


def read(id: str, *lines: int, words: int = 20) -> list[Message]:
    return did(id, "Read", "\n".join([*map(line, lines), "pad " * words]), where=id)


def edit(id: str, *lines: int) -> list[Message]:
    return did(id, "Edit", "ok", old_string="\n".join(map(line, lines)), new_string="gone")


def idle(id: str, words: int = 20) -> list[Message]:
    return did(id, "Bash", "pad " * words, command="ls")


def floor_of(recording: Recording) -> MinimumCost:
    return compute_minimum_cost(recording, ResidencyChecker(recording.trace))


def weights(recording: Recording) -> list[int]:
    """Return the token count of each recorded block."""
    return [recording.token_weights.part(recording.trace.history.part(block.place)) for block in recording.trace.blocks]


def again(recording: Recording, block: int) -> int:
    """Return the token count of a block when it is refetched."""
    text = block_text(recording.trace.history.part(recording.trace.blocks[block].place))
    return recording.token_weights.part(ToolResult("", (Text(text),)))


# By hand


def test_use_costs_the_text_in_every_request_since_it_appeared() -> None:
    of = spoken(read("r", 1), idle("i"), idle("j"), edit("e", 1))
    found = floor_of(of)
    assert found.costs == (2 * weights(of)[2],)
    assert (found.calls, found.calls_with_references) == (5, 1)
    assert found.arrivals == sum(weights(of)[:-1])


def test_use_of_a_new_text_is_free() -> None:
    assert floor_of(spoken(read("r", 1), edit("e", 1))).costs == (0,)


def test_second_use_costs_from_the_first_on() -> None:
    of = spoken(read("r", 1, 2, 3), idle("i"), edit("e", 1, 2), idle("j"), idle("k"), edit("f", 3))
    result = weights(of)[2]
    assert floor_of(of).costs == (result, 3 * result)


def test_cheapest_source_counts() -> None:
    of = spoken(read("r", 1, words=200), read("s", 1, words=3), idle("i"), edit("e", 1))
    assert floor_of(of).costs == (weights(of)[4],)


def test_references_to_different_texts_add_up() -> None:
    of = spoken(read("r", 1, 2), read("s", 3), idle("i"), edit("e", 1, 2, 3))
    assert floor_of(of).costs == (2 * weights(of)[2] + weights(of)[4],)


def test_text_weighs_at_most_its_refetched_copy() -> None:
    quoted = "\n".join(f'say "{line(n)}" and "\\\\" \t' for n in range(9))
    of = spoken(did("w", "Write", "ok", content=quoted), idle("i"), edit("e", 3), model="claude-sonnet-4-5")
    assert weights(of)[1] > again(of, 1)
    assert floor_of(of).costs == (again(of, 1),)


def test_references_to_tool_definitions_are_free_and_tools_are_in_every_call() -> None:
    about = {"name": "total_1", "description": "counts", "parameters": {"type": "object", "properties": {}}}
    of = spoken(
        user("use total_1 twice"),
        idle("i"),
        did("e", "Bash", "ok", command="run total_1"),
        tools=json.dumps([{"type": "function", "function": about}]),
    )
    bare = spoken(user("use total_1 twice"), idle("i"), did("e", "Bash", "ok", command="run total_1"))
    assert floor_of(bare).costs[0] > 0
    assert floor_of(of).costs == (0,)
    tools = of.token_weights.tools(of.trace.history.tools)
    assert tools > 0
    assert floor_of(of).arrivals == floor_of(bare).arrivals + tools * len(of.trace.calls)


def test_references_that_only_a_refetch_contains_are_free() -> None:
    """A user's text keeps its arrows and a result loses them, so the refetched text contains another phrase."""
    numbered = "1→alpha bravo charlie delta echo\n2→foxtrot golf hotel india juliet\n3→total_1"
    row = "alpha bravo charlie delta echo foxtrot golf hotel india juliet"
    told = (user(numbered), did("q", "Bash", row, command="ls"), idle("i"), agent(row), user("well"))
    unused, used = spoken(*told), spoken(*told, did("u", "Bash", "ok", command="run total_1"))
    assert [reference.kind for references in ResidencyChecker(unused.trace).references for reference in references] == [
        "G"
    ]
    assert floor_of(unused).costs == (weights(unused)[3],)
    assert floor_of(used).costs[0] == 0


# Several recordings


def test_cheapest_calls_of_all_recordings_come_first() -> None:
    minimum_costs = [MinimumCost(10, 100, (0, 30, 500)), MinimumCost(10, 100, (10, 60))]
    assert [most_served(minimum_costs, mean) for mean in (9, 10, 10.5, 12, 15, 30)] == [0.0, 0.2, 0.4, 0.6, 0.8, 0.8]
    assert most_served(minimum_costs, 40) == 1.0
    assert [least_tokens(minimum_costs, share) for share in (0, 0.2, 0.4, 0.5, 0.8, 1)] == [10, 10, 10.5, 12, 15, 40]


def test_everything_is_served_without_references() -> None:
    assert most_served([], 0) == most_served([MinimumCost(3, 10, ())], 5) == 1.0
    assert least_tokens([], 0.95) == 0.0
    assert least_tokens([MinimumCost(2, 10, ())], 0.95) == 5.0


costs = st.lists(st.integers(0, 50)).map(lambda found: tuple(sorted(found)))


@given(
    st.lists(st.builds(MinimumCost, st.integers(1, 9), st.integers(0, 99), costs), min_size=1),
    st.floats(0, 1),
)
def test_most_served_and_least_tokens_are_inverse(minimum_costs: list[MinimumCost], share: float) -> None:
    assert most_served(minimum_costs, least_tokens(minimum_costs, share)) >= share - 1e-6


# Against strategies


def forgetful(share: float, seed: int) -> Strategy:
    """Drop each old part with some probability before each call."""

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        chance = Random(seed)
        held: list[RequestPiece] = []
        come = 0

        def build_request(_: float | None) -> list[RequestPiece]:
            nonlocal come
            held[:] = [piece for piece in held if chance.random() >= share]
            held.extend(
                piece for message in conversation.messages[come:] for piece in conversation.make_message_pieces(message)
            )
            come = len(conversation.messages)
            return [*conversation.tool_pieces, *held]

        return build_request

    return Strategy("forgetful", start)


def lazy() -> Strategy:
    """Keep only refetched text."""

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        recorded = set(map(id, conversation.recording.trace.history.messages))
        held: list[RequestPiece] = []
        come = 0

        def build_request(_: float | None) -> list[RequestPiece]:
            nonlocal come
            new, come = conversation.messages[come:], len(conversation.messages)
            news = [piece for message in new for piece in conversation.make_message_pieces(message)]
            sent = [*conversation.tool_pieces, *held, *news]
            held.extend(
                p
                for message in new
                if id(message) not in recorded
                for p in conversation.make_message_pieces(message)[-1:]
            )
            return sent

        return build_request

    return Strategy("lazy", start)


WAYS: list[Callable[[int, int], Strategy]] = [
    lambda _, __: full_history_strategy(),
    lambda budget, _: recency_strategy(budget),
    lambda budget, _: newest_batched_strategy(budget),
    random_strategy,
    lambda budget, _: oracle_strategy(budget),
    lambda budget, _: batched_oracle_strategy(budget),
    lambda _, seed: forgetful((seed % 11) / 10, seed),
    lambda _, __: lazy(),
]

numbers = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.lists(numbers, min_size=1, max_size=4), st.sampled_from([0, 40, 400])),
        st.tuples(st.just("edit"), st.lists(numbers, min_size=1, max_size=3), st.just(0)),
        st.tuples(st.just("write"), st.lists(numbers, min_size=1, max_size=3), st.just(0)),
        st.tuples(st.sampled_from(["run", "tell"]), st.lists(numbers, min_size=1, max_size=2), st.just(0)),
        st.tuples(st.just("idle"), st.just([0]), st.sampled_from([1, 30])),
    ),
    min_size=3,
    max_size=16,
)


def step(id: str, kind: str, lines: list[int], words: int) -> list[Message]:
    match kind:
        case "read":
            return read(id, *lines, words=words)
        case "edit":
            return edit(id, *lines)
        case "write":
            return did(id, "Write", "ok", content="\n".join(f'"{line(n)}"\t' for n in lines))
        case "run":
            return did(id, "Bash", f"price_{lines[0]}", command=f"grep total_{lines[-1]}")
        case "tell":
            return user(f"now mind {line(lines[0])}") + agent(f"I mind {line(lines[-1])}") + user("well")
        case _:
            return idle(id, words)


def check(recordings: list[Recording], budget: int, seed: int) -> None:
    """Check that no strategy exceeds the bound."""
    referees = [ResidencyChecker(one.trace) for one in recordings]
    minimum_costs = [compute_minimum_cost(one, checker) for one, checker in zip(recordings, referees, strict=True)]
    for make in WAYS:
        strategy, totals = make(budget, seed), ReplayTotals()
        for one, checker in zip(recordings, referees, strict=True):
            totals.add(replay_recording(one, strategy, Rates(), checker=checker))
        if totals.calls_with_references:
            assert totals.served / totals.calls_with_references <= most_served(
                minimum_costs, totals.tokens / totals.calls
            ), strategy.name
            assert totals.tokens / totals.calls >= least_tokens(
                minimum_costs, totals.served / totals.calls_with_references
            ), strategy.name
        assert totals.calls_with_references == sum(one.calls_with_references for one in minimum_costs)


@given(
    st.lists(steps, min_size=1, max_size=2),
    st.sampled_from(MODELS),
    st.sampled_from([0, 200, 500, 1000, 2000, 10**6]),
    st.integers(0, 10**6),
)
def test_no_covered_strategy_exceeds_the_bound(
    histories: list[list[tuple[str, list[int], int]]], model: str, budget: int, seed: int
) -> None:
    recordings = [
        spoken(*(step(f"s{n}", *one) for n, one in enumerate(history)), model=model, name=f"h{number}")
        for number, history in enumerate(histories)
    ]
    check(recordings, budget, seed)


QUOTED = "\n".join(f'"{line(n)}"\t"\\"' for n in range(60))
CLOSE = {
    "used again and again": (
        read("r", 1, 2, 3, words=400),
        idle("i"),
        edit("e", 1),
        idle("j"),
        edit("f", 2),
        edit("g", 3),
    ),
    "sources that overlap": (
        read("r", 1, 2, words=400),
        read("s", 2, 3, words=500),
        *map(idle, "ijkl"),
        edit("e", 1, 2),
    ),
    "fetched for less": (
        did("w", "Write", "ok", content=QUOTED),
        *map(idle, "abcdef"),
        edit("e", 1),
        *map(idle, "ghij"),
        edit("f", 2),
    ),
}


@pytest.mark.parametrize("name", CLOSE)
@pytest.mark.parametrize("model", MODELS)
def test_strategies_near_the_bound_do_not_exceed_it(name: str, model: str) -> None:
    """Each would exceed the bound if it were counted slightly wrong."""
    for budget in (0, 1000, 10**6):
        check([spoken(*CLOSE[name], model=model)], budget, 0)


@pytest.mark.parametrize("gap", [1, 4, 16])
def test_oracle_comes_close_to_the_bound(gap: int) -> None:
    """With one text to keep, tokens sent and the minimum differ only by the message overhead."""
    of = spoken(read("r", 1, words=300), *(idle(f"i{n}", words=1) for n in range(gap)), edit("e", 1))
    totals = replay_recording(of, oracle_strategy(10**6), Rates())
    least = least_tokens([floor_of(of)], 1) * totals.calls
    assert totals.served == totals.calls_with_references == 1
    messages = len(of.trace.history)
    assert least <= totals.tokens <= least + of.token_weights.message_overhead * (messages + gap)
