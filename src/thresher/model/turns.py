"""The shape of a history, derived in one pass: turns, exchanges, tool chains, sub-agents.

Calls and results are paired by id, never by position. Where an id repeats (some models count `call_0`, `call_1`
anew in every turn), a result answers the oldest open call of that id that came before it.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from thresher.model.message import Message
from thresher.model.parts import ToolCall, ToolResult


class Place(NamedTuple):
    """Where a part stands: message and part, counted from 0."""

    message: int
    part: int


class Turn(NamedTuple):
    """One model call: the messages `start` to `stop` (not included) that it wrote."""

    start: int
    stop: int


class Exchange(NamedTuple):
    """From one human prompt to the next: the messages `start` to `stop` (not included)."""

    start: int
    stop: int


class Chain(NamedTuple):
    """A tool call and its result."""

    call: Place
    result: Place | None
    """None: no result was recorded."""
    active: bool
    """The model has not spoken since: it still waits for this result, or has not answered it."""


class Spawn(NamedTuple):
    """A sub-agent: the call that started it and the span of messages up to its answer."""

    chain: Chain
    description: str
    start: int
    stop: int


class Shape(NamedTuple):
    """All that is derived from a history."""

    turns: tuple[Turn, ...]
    exchanges: tuple[Exchange, ...]
    chains: tuple[Chain, ...]
    orphans: tuple[Place, ...]
    """Results that answer no call."""
    spawns: tuple[Spawn, ...]
    current: int | None
    """The message that holds the human's latest words."""
    system: tuple[int, ...]
    injections: tuple[int, ...]
    """Messages that the harness or a memory tool put into the conversation."""


def shape_of(messages: Sequence[Message]) -> Shape:
    """Derive everything at once."""
    chains, orphans = _pair(messages)
    human = [index for index, message in enumerate(messages) if is_prompt(message)]
    return Shape(
        turns=tuple(_turns(messages)),
        exchanges=tuple(_exchanges(human, len(messages))),
        chains=chains,
        orphans=orphans,
        spawns=tuple(_spawns(messages, chains)),
        current=human[-1] if human else None,
        system=tuple(i for i, message in enumerate(messages) if message.role == "system"),
        injections=tuple(i for i, message in enumerate(messages) if _is_injection(message)),
    )


def is_prompt(message: Message) -> bool:
    """A person's words, or another model's: a sub-agent is prompted by the model that started it."""
    return message.role == "user" and message.author in ("human", "model")


def _is_injection(message: Message) -> bool:
    return message.role == "user" and message.author in ("harness", "recall")


def _turns(messages: Sequence[Message]) -> list[Turn]:
    """A run of assistant messages is one call, unless two of them bring a bill of their own."""
    turns: list[Turn] = []
    billed = False
    for index, message in enumerate(messages):
        if message.role != "assistant":
            continue
        continues = bool(turns) and turns[-1].stop == index and not (billed and message.usage)
        if continues:
            turns[-1] = Turn(turns[-1].start, index + 1)
            billed = billed or message.usage is not None
        else:
            turns.append(Turn(index, index + 1))
            billed = message.usage is not None
    return turns


def _exchanges(human: Sequence[int], length: int) -> list[Exchange]:
    """What stands before the first prompt belongs to the first exchange."""
    if not length:
        return []
    starts = [0, *human[1:]]
    return [Exchange(a, b) for a, b in zip(starts, [*starts[1:], length], strict=True)]


def _pair(messages: Sequence[Message]) -> tuple[tuple[Chain, ...], tuple[Place, ...]]:
    open_calls: dict[str, deque[int]] = defaultdict(deque)
    calls: list[Place] = []
    answers: dict[int, Place] = {}
    orphans: list[Place] = []
    last_spoken = -1
    for i, message in enumerate(messages):
        if message.role == "assistant":
            last_spoken = i
        for j, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                open_calls[part.id].append(len(calls))
                calls.append(Place(i, j))
            elif isinstance(part, ToolResult):
                waiting = open_calls.get(part.call_id)
                if waiting:
                    answers[waiting.popleft()] = Place(i, j)
                else:
                    orphans.append(Place(i, j))
    chains = (
        Chain(call, answers.get(n), active=answers.get(n, call).message >= last_spoken) for n, call in enumerate(calls)
    )
    return tuple(chains), tuple(orphans)


def _spawns(messages: Sequence[Message], chains: Sequence[Chain]) -> list[Spawn]:
    from thresher.model.tools import links  # noqa: PLC0415 - its patterns take time to compile, and reading needs none

    return [
        Spawn(chain, use.intent, chain.call.message, (chain.result or chain.call).message + 1)
        for chain, _, _, use in links(messages, chains)
        if use.category == "subagent"
    ]
