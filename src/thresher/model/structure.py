"""Structure derived from a history: turns, exchanges, tool chains and sub-agents, by place."""

from typing import NamedTuple


class Place(NamedTuple):
    """Position of a part: index of its message and index in the message, both from 0."""

    message: int
    part: int


class Turn(NamedTuple):
    """One model call: the assistant messages from `start` to `stop` (exclusive)."""

    start: int
    stop: int


class Exchange(NamedTuple):
    """One human prompt and everything before the next: messages `start` to `stop` (exclusive)."""

    start: int
    stop: int


class ToolChain(NamedTuple):
    """A tool call and its result."""

    call: Place
    result: Place | None
    """Place of the result; None if no result was recorded."""
    active: bool
    """True if no assistant message follows the result. Without a result, true if none follows the call."""


class SubagentCall(NamedTuple):
    """The call that started a sub-agent, and the messages from the call to its result."""

    chain: ToolChain
    description: str
    start: int
    stop: int


class HistoryStructure(NamedTuple):
    """The complete structure of a history."""

    turns: tuple[Turn, ...]
    exchanges: tuple[Exchange, ...]
    chains: tuple[ToolChain, ...]
    orphan_results: tuple[Place, ...]
    """Places of results that match no call."""
    subagent_calls: tuple[SubagentCall, ...]
    current_prompt: int | None
    """Index of the message with the latest human prompt; None if there is none."""
    system_messages: tuple[int, ...]
    injected_messages: tuple[int, ...]
    """User messages written by the harness or a memory tool, and declared context."""
