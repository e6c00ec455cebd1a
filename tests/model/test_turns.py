"""Derived structure: matching results, turns, prompts and exchanges."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given

from strategies import histories
from thresher.model import (
    Exchange,
    History,
    Message,
    Place,
    Summary,
    Text,
    ToolCall,
    ToolChain,
    ToolResult,
    Turn,
    Usage,
)
from thresher.model.tool_calls import describe_tool_call


def user(text: str = "do it") -> Message:
    return Message("user", (Text(text),))


def harness(text: str = "<system-reminder>x</system-reminder>") -> Message:
    return Message("user", (Text(text),), author="harness")


def model(*calls: str, name: str = "Bash", arguments: str = "{}", usage: Usage | None = None) -> Message:
    parts = tuple(ToolCall(call_id, name, arguments) for call_id in calls)
    return Message("assistant", parts or (Text("done"),), author="model", usage=usage)


def tool(*calls: str) -> Message:
    return Message("tool", tuple(ToolResult(call_id, (Text("ok"),)) for call_id in calls), author="tool")


def chain(call: tuple[int, int], result: tuple[int, int] | None, *, active: bool = False) -> ToolChain:
    return ToolChain(Place(*call), None if result is None else Place(*result), active)


BILL = Usage(input=1, output=1)


@pytest.mark.parametrize(
    ("messages", "chains", "orphans"),
    [
        pytest.param(
            [user(), model("a", "b"), tool("b", "a"), model()],
            [chain((1, 0), (2, 1)), chain((1, 1), (2, 0))],
            [],
            id="parallel calls, results out of order",
        ),
        pytest.param(
            [model("call_0"), tool("call_0"), model("call_0"), tool("call_0"), model()],
            [chain((0, 0), (1, 0)), chain((2, 0), (3, 0))],
            [],
            id="ids counted anew in every turn",
        ),
        pytest.param(
            [model("a"), model("a"), tool("a"), tool("a")],
            [chain((0, 0), (3, 0), active=True), chain((1, 0), (2, 0), active=True)],
            [],
            id="of two open calls of one id, the latest is answered first",
        ),
        pytest.param(
            [model("a", "a"), tool("a"), tool("a")],
            [chain((0, 0), (1, 0), active=True), chain((0, 1), (2, 0), active=True)],
            [],
            id="of two open calls of one id in one message, the first is answered first",
        ),
        pytest.param(
            [model("a", "b"), tool("b"), user(), model()],
            [chain((0, 0), None), chain((0, 1), (1, 0))],
            [],
            id="a result is missing",
        ),
        pytest.param(
            [tool("a"), model("a"), tool("z")],
            [chain((1, 0), None, active=True)],
            [Place(0, 0), Place(2, 0)],
            id="a result before its call answers nothing",
        ),
        pytest.param(
            [model("a"), tool("a", "a"), model()],
            [chain((0, 0), (1, 0))],
            [Place(1, 1)],
            id="a call is answered once",
        ),
        pytest.param(
            [model("a"), tool("a"), harness()],
            [chain((0, 0), (1, 0), active=True)],
            [],
            id="active until the model speaks",
        ),
        pytest.param([model("a")], [chain((0, 0), None, active=True)], [], id="active while it waits"),
        pytest.param(
            [
                Message(
                    "assistant",
                    (ToolCall("a", "web_search", "{}"), ToolResult("a"), Text("found")),
                    author="model",
                )
            ],
            [chain((0, 0), (0, 1), active=True)],
            [],
            id="a result inside the model's own message",
        ),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_results_answer_calls_by_id(messages: list[Message], chains: list[ToolChain], orphans: list[Place]) -> None:
    history = History(tuple(messages))
    assert list(history.chains) == chains
    assert list(history.orphans) == orphans


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        pytest.param([user(), model(), user(), model()], [(1, 2), (3, 4)], id="one a reply"),
        pytest.param([model("a"), tool("a"), model()], [(0, 1), (2, 3)], id="one before and one after a result"),
        pytest.param([model(), model("a"), tool("a")], [(0, 2)], id="a run of messages is one call"),
        pytest.param([model(usage=BILL), model("a"), model("b")], [(0, 3)], id="one bill, one call"),
        pytest.param([model(), model(usage=BILL), model(usage=BILL)], [(0, 2), (2, 3)], id="two bills, two calls"),
        pytest.param([user(), tool("z")], [], id="no model, no turn"),
    ],
)
def test_a_turn_is_one_model_call(messages: list[Message], turns: list[tuple[int, int]]) -> None:
    assert list(History(tuple(messages)).turns) == [Turn(*turn) for turn in turns]


@pytest.mark.parametrize(
    ("messages", "exchanges", "current"),
    [
        pytest.param([], [], None, id="nothing"),
        pytest.param([model()], [(0, 1)], None, id="no human: one exchange all the same"),
        pytest.param([user("a"), model(), user("b"), model()], [(0, 2), (2, 4)], 2, id="one a prompt"),
        pytest.param([harness(), user(), model()], [(0, 3)], 1, id="what comes before belongs to the first"),
        pytest.param([user(), model("a"), tool("a"), harness(), model()], [(0, 5)], 0, id="a reminder is no prompt"),
        pytest.param([user(), user()], [(0, 1), (1, 2)], 1, id="two prompts in a row"),
        pytest.param(
            [Message("user", (Text("again"),), carried=True), user(), model()],
            [(0, 1), (1, 3)],
            1,
            id="carried words are still a prompt",
        ),
        pytest.param(
            [Message("user", (Text("look"),), author="model"), model()],
            [(0, 2)],
            0,
            id="a sub-agent is prompted by a model",
        ),
        pytest.param(
            [Message("user", (Summary("what was"),), author="harness"), model()],
            [(0, 2)],
            None,
            id="a summary is no prompt",
        ),
    ],
)
def test_an_exchange_reaches_from_prompt_to_prompt(
    messages: list[Message], exchanges: list[tuple[int, int]], current: int | None
) -> None:
    history = History(tuple(messages))
    assert list(history.exchanges) == [Exchange(*exchange) for exchange in exchanges]
    assert history.shape.current_prompt == current


def test_a_sub_agent_spans_from_its_call_to_its_answer() -> None:
    task = '{"description": "Look around", "prompt": "…"}'
    messages = (
        user(),
        model("t1", name="Task", arguments=task),  # its own call and another agent's are nested
        model("t2", name="Agent", arguments='{"description": "Look closer"}'),
        tool("t2"),
        tool("t1"),
        model("b", name="Bash"),
        model("t3", name="Task", arguments="{}"),
    )
    spans = [(spawn.description, spawn.start, spawn.stop) for spawn in History(messages).spawns]
    assert spans == [("Look around", 1, 5), ("Look closer", 2, 4), ("", 6, 7)]


def test_system_text_and_injections_are_found() -> None:
    recall = Message("user", (Text("[1/5] abc1234 • old"),), author="recall")
    history = History((Message("system", (Text("be brief"),), author="harness"), user(), harness(), recall, model()))
    assert history.shape.system_messages == (0,)
    assert history.shape.injected_messages == (2, 3)


# --- properties of any history -------------------------------------------------------------------------------


def places(history: History, kind: type) -> list[Place]:
    return [
        Place(i, j)
        for i, message in enumerate(history)
        for j, part in enumerate(message.parts)
        if isinstance(part, kind)
    ]


def is_prompt(message: Message) -> bool:
    """True if a human, or the model that started a sub-agent, wrote the message."""
    return message.role == "user" and message.author in ("human", "model")


@given(history=histories)
def test_a_result_matches_an_earlier_call_by_id(history: History) -> None:
    for one in history.chains:
        call = history[one.call.message].parts[one.call.part]
        assert isinstance(call, ToolCall)
        if one.result is not None:
            result = history[one.result.message].parts[one.result.part]
            assert isinstance(result, ToolResult)
            assert result.call_id == call.id
            assert one.result > one.call


@given(history=histories)
def test_every_call_and_every_result_is_used_exactly_once(history: History) -> None:
    assert [one.call for one in history.chains] == places(history, ToolCall)
    answers = [one.result for one in history.chains if one.result is not None]
    assert Counter([*answers, *history.orphans]) == Counter(places(history, ToolResult))


@given(history=histories)
def test_an_orphan_had_no_open_call_to_answer(history: History) -> None:
    """Restates the matching rule: the first open call of the id in the latest message that has one."""
    waiting = [(place, history[place.message].parts[place.part]) for place in places(history, ToolCall)]
    expected: dict[Place, Place] = {}
    orphans: list[Place] = []
    for place in places(history, ToolResult):
        result = history[place.message].parts[place.part]
        assert isinstance(result, ToolResult)
        found = [
            (where, call)
            for where, call in waiting
            if isinstance(call, ToolCall) and call.id == result.call_id and where < place
        ]
        if found:
            latest = max(where.message for where, _ in found)
            answered = next(one for one in found if one[0].message == latest)
            waiting.remove(answered)
            expected[answered[0]] = place
        else:
            orphans.append(place)
    assert {one.call: one.result for one in history.chains if one.result} == expected
    assert list(history.orphans) == orphans


@given(history=histories)
def test_a_chain_is_active_exactly_until_the_model_replies(history: History) -> None:
    for one in history.chains:
        after = (one.result or one.call).message + 1
        spoken = any(message.role == "assistant" for message in history.messages[after:])
        assert one.active is not spoken


@given(history=histories)
def test_turns_are_disjoint_and_cover_all_assistant_messages(history: History) -> None:
    covered = [index for turn in history.turns for index in range(turn.start, turn.stop)]
    assert covered == [index for index, message in enumerate(history) if message.role == "assistant"]
    assert all(turn.start < turn.stop for turn in history.turns)
    for turn in history.turns:
        assert sum(history[index].usage is not None for index in range(turn.start, turn.stop)) <= 1


@given(history=histories)
def test_exchanges_partition_the_history(history: History) -> None:
    covered = [index for one in history.exchanges for index in range(one.start, one.stop)]
    assert covered == list(range(len(history)))
    for before, after in pairwise(history.exchanges):
        assert before.stop == after.start
        opening = history[after.start]
        assert is_prompt(opening)


@given(history=histories)
def test_the_current_message_is_the_last_prompt(history: History) -> None:
    prompts = [message for message in history if is_prompt(message)]
    assert history.current is (prompts[-1] if prompts else None)


@given(history=histories)
def test_every_sub_agent_has_the_span_of_its_call(history: History) -> None:
    expected = []
    for one in history.chains:
        call = history[one.call.message].parts[one.call.part]
        if isinstance(call, ToolCall) and describe_tool_call(call).category == "subagent":
            expected.append(one)
    assert [spawn.chain for spawn in history.spawns] == expected
    for spawn in history.spawns:
        assert spawn.start == spawn.chain.call.message
        assert spawn.stop == (spawn.chain.result or spawn.chain.call).message + 1
