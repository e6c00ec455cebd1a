"""A message: a role, its parts, and where it comes from."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct

from thresher.model.parts import Part, Summary, Text, ToolCall, ToolResult, VendorExtras

Role = Literal["system", "user", "assistant", "tool"]
"""Who speaks, as a model sees it. `tool` only answers calls."""

Author = Literal["human", "model", "tool", "harness", "recall"]
"""Who really wrote it: a `user` message may come from a person, a tool, the program around the model
(hooks, reminders, commands), or a memory tool that put old text back."""


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one model call, as its provider counted them; `input` is what no cache served."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The share of `cache_write` on the one-hour tier."""
    reasoning: int = 0
    """The share of `output` that was thinking, where it is told."""

    @property
    def context(self) -> int:
        """All that the model was given."""
        return self.input + self.cache_read + self.cache_write


class SourceLocation(Struct, frozen=True, gc=False):
    """Where a message stands."""

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
    """Shown to the model, but not said here: repeated from before a compaction, or an example from another run."""
    records: tuple[bytes, ...] = ()
    """The lines of the transcript that it was made of, as they stood."""
    pocket: VendorExtras | None = None

    @property
    def text(self) -> str:
        """What was said in it, tools aside."""
        kept = (part.text for part in self.parts if isinstance(part, Text | Summary))
        return "\n".join(kept)

    @property
    def calls(self) -> Iterator[ToolCall]:
        """The tool calls in it."""
        return (part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> Iterator[ToolResult]:
        """The tool results in it."""
        return (part for part in self.parts if isinstance(part, ToolResult))
