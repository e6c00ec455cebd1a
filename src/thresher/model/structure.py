"""What is derived from a history: turns, exchanges, tool chains, sub-agents, each by its places."""

from typing import NamedTuple


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


class ToolChain(NamedTuple):
    """A tool call and its result."""

    call: Place
    result: Place | None
    """None: no result was recorded."""
    active: bool
    """The model has not spoken since: it still waits for this result, or has not answered it."""


class SubagentCall(NamedTuple):
    """A sub-agent: the call that started it and the span of messages up to its answer."""

    chain: ToolChain
    description: str
    start: int
    stop: int


class HistoryStructure(NamedTuple):
    """All that is derived from a history."""

    turns: tuple[Turn, ...]
    exchanges: tuple[Exchange, ...]
    chains: tuple[ToolChain, ...]
    orphan_results: tuple[Place, ...]
    """Results that answer no call."""
    subagent_calls: tuple[SubagentCall, ...]
    current_prompt: int | None
    """The message that holds the human's latest words."""
    system_messages: tuple[int, ...]
    injected_messages: tuple[int, ...]
    """Messages that the harness or a memory tool put into the conversation."""
