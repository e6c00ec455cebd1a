"""One call of a model, as an agent recorded it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from thresher.model import Message, Usage


class LoggedCall(NamedTuple):
    """One call of a model."""

    number: int
    """Its number in the file."""
    line: int
    """Where it stands there."""
    agent_key: str = ""
    """The agent it was made by."""
    enclosing_agents: frozenset[str] = frozenset()
    """The agents around that one."""
    conversation_id: str = ""
    """The conversation it belongs to, if that is told."""
    trace_id: str = ""
    input_messages: Sequence[Message] = ()
    output_messages: Sequence[Message] = ()
    is_truncated: bool = False
    """Whether the first messages are missing."""
    start: datetime | None = None
    end: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    tools: str = ""
    """The definitions of the tools it was offered, as JSON."""
    alternatives: Sequence[Message] = ()
    """Answers that were asked for beside the first."""
