"""Derive the structure of a history in one pass: turns, exchanges, tool chains, sub-agents.

`OpenCalls` defines how results match calls.
"""

from collections.abc import Sequence

from thresher.model.message import Message
from thresher.model.open_calls import OpenCalls
from thresher.model.parts import ToolCall, ToolResult
from thresher.model.structure import Exchange, HistoryStructure, Place, SubagentCall, ToolChain, Turn


def derive_structure(messages: Sequence[Message]) -> HistoryStructure:
    """Derive the complete structure of a history from its messages."""
    chains, orphans = _pair_calls(messages)
    prompts = [index for index, message in enumerate(messages) if is_prompt(message)]
    return HistoryStructure(
        turns=tuple(_turns(messages)),
        exchanges=tuple(_exchanges(prompts, len(messages))),
        chains=chains,
        orphan_results=orphans,
        subagent_calls=tuple(_find_subagent_calls(messages, chains)),
        current_prompt=prompts[-1] if prompts else None,
        system_messages=tuple(i for i, message in enumerate(messages) if message.role == "system"),
        injected_messages=tuple(i for i, message in enumerate(messages) if is_injected(message)),
    )


def is_prompt(message: Message) -> bool:
    """Return whether a message is a prompt by a human, or by the model that started this sub-agent."""
    return message.role == "user" and message.author in ("human", "model")


def is_injected(message: Message) -> bool:
    """Return whether a harness, a memory tool or the user's setup wrote a message in the user role."""
    return message.role == "user" and message.author in ("harness", "recall", "context")


def _turns(messages: Sequence[Message]) -> list[Turn]:
    """Merge consecutive assistant messages into turns; a second message with usage starts a new turn."""
    turns: list[Turn] = []
    has_usage = False
    for index, message in enumerate(messages):
        if message.role != "assistant":
            continue
        continues = bool(turns) and turns[-1].stop == index and not (has_usage and message.usage)
        if continues:
            turns[-1] = Turn(turns[-1].start, index + 1)
            has_usage = has_usage or message.usage is not None
        else:
            turns.append(Turn(index, index + 1))
            has_usage = message.usage is not None
    return turns


def _exchanges(prompts: Sequence[int], length: int) -> list[Exchange]:
    """Return one exchange per prompt; messages before the first prompt belong to the first exchange."""
    if not length:
        return []
    starts = [0, *prompts[1:]]
    return [Exchange(start, stop) for start, stop in zip(starts, [*starts[1:], length], strict=True)]


def _pair_calls(messages: Sequence[Message]) -> tuple[tuple[ToolChain, ...], tuple[Place, ...]]:
    open_calls = OpenCalls[int]()
    calls: list[Place] = []
    answers: dict[int, Place] = {}
    orphans: list[Place] = []
    last_assistant = -1
    for i, message in enumerate(messages):
        if message.role == "assistant":
            last_assistant = i
        for j, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                open_calls.add(part.id, i, len(calls))
                calls.append(Place(i, j))
            elif isinstance(part, ToolResult):
                call = open_calls.answer(part.call_id)
                if call is None:
                    orphans.append(Place(i, j))
                else:
                    answers[call] = Place(i, j)
    chains = (
        ToolChain(place, answers.get(n), active=answers.get(n, place).message >= last_assistant)
        for n, place in enumerate(calls)
    )
    return tuple(chains), tuple(orphans)


def _find_subagent_calls(messages: Sequence[Message], chains: Sequence[ToolChain]) -> list[SubagentCall]:
    from thresher.model.tool_calls import build_tool_uses  # noqa: PLC0415 - compiles regexes

    return [
        SubagentCall(chain, use.intent, chain.call.message, (chain.result or chain.call).message + 1)
        for chain, _, _, use in build_tool_uses(messages, chains)
        if use.category == "subagent"
    ]
