"""A message: role, parts, author and source."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct

from thresher.model.parts import Part, Summary, Text, ToolCall, ToolResult, VendorExtras

Role = Literal["system", "user", "assistant", "tool"]
"""Role as a model sees it. A `tool` message only answers calls."""

Author = Literal["human", "model", "tool", "harness", "recall", "context"]
"""The real author. A `user` message may come from a human, a tool, the harness around the model (hooks, reminders,
commands), or a memory tool that recalled old text. `context` is text that declares facts and rules for the whole
conversation, such as project instructions or the summary after a compaction."""


class Usage(Struct, frozen=True, gc=False):
    """Token counts of one model call, as the provider reports them; `input` excludes cached tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """Tokens of `cache_write` that were written to the one-hour cache."""
    reasoning: int = 0
    """Tokens of `output` that were spent on thinking; 0 if the provider does not report them."""

    @property
    def context(self) -> int:
        """Tokens of the whole prompt, cached or not."""
        return self.input + self.cache_read + self.cache_write


class SourceLocation(Struct, frozen=True, gc=False):
    """File and line that a message was read from."""

    file: str
    line: int


class Message(Struct, frozen=True, weakref=True):
    """One message of a conversation."""

    role: Role
    parts: tuple[Part, ...] = ()
    author: Author = "human"
    id: str = ""
    time: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    source: SourceLocation | None = None
    carried: bool = False
    """True if the model saw the message, but it is not new in this conversation: it was repeated after a
    compaction, or is an example from another run."""
    records: tuple[bytes, ...] = ()
    """The transcript lines that the message was parsed from, unchanged."""
    pocket: VendorExtras | None = None

    @property
    def text(self) -> str:
        """The text and summary parts, joined by newlines."""
        texts = (part.text for part in self.parts if isinstance(part, Text | Summary))
        return "\n".join(texts)

    @property
    def calls(self) -> Iterator[ToolCall]:
        """The tool calls of the message."""
        return (part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> Iterator[ToolResult]:
        """The tool results of the message."""
        return (part for part in self.parts if isinstance(part, ToolResult))
