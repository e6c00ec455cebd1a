"""A call of a model that an agent or a proxy logged."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from thresher.model import Message, Usage


class LoggedCall(NamedTuple):
    """One logged model call."""

    number: int
    """Number that identifies the call in the file. The ids of the call's messages start with this number."""
    line: int
    """Line of the call in the file."""
    agent_key: str = ""
    """Key of the agent that made the call."""
    enclosing_agents: frozenset[str] = frozenset()
    """Keys of the agents inside which the calling agent runs."""
    conversation_id: str = ""
    """Id of the conversation, if the log has one."""
    trace_id: str = ""
    input_messages: Sequence[Message] = ()
    output_messages: Sequence[Message] = ()
    is_truncated: bool = False
    """True if the log omits the first input messages."""
    start: datetime | None = None
    end: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    tools: str = ""
    """Tool definitions in the request, as JSON."""
    alternatives: Sequence[Message] = ()
    """Additional answers, if the request asked for several."""
