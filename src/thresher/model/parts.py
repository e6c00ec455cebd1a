"""The smallest pieces of a conversation, as frozen values.

A part says what it means in no vendor's words. What a vendor wrote beside that (cache marks, signatures of its
own, fields we do not know) travels in the part's `pocket`, which has no share in the part's identity.
"""

from typing import assert_never

from msgspec import Struct


class VendorExtras(Struct, frozen=True, gc=False):
    """What a format wrote beside what the model understands; only that format's own writer looks inside."""

    format: str
    """The wire format that filled it."""
    fields: str = ""
    """Fields to put back, as the text of a JSON object."""
    absent: tuple[str, ...] = ()
    """Fields that a fresh rendering would have and the original had not."""
    shape: str = ""
    """How the format had written it where it has several ways; the format's own note."""


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Words."""

    text: str
    pocket: VendorExtras | None = None


class Thinking(Struct, frozen=True, gc=False, tag="thinking"):
    """A model's reasoning, as far as it was shown."""

    text: str
    signature: str = ""
    """The vendor's proof of it, opaque; redacted thinking has only this."""
    pocket: VendorExtras | None = None


class ToolCall(Struct, frozen=True, gc=False, tag="tool_call"):
    """A model asks for a tool."""

    id: str
    name: str
    arguments: str
    """The exact text it came with: JSON for most tools, free text for some."""
    pocket: VendorExtras | None = None


class Image(Struct, frozen=True, gc=False, tag="image"):
    """A picture, or another medium (PDF, audio) by its media type."""

    media_type: str = ""
    data: str = ""
    """Base64, or empty where only a `url` is known."""
    url: str = ""
    pocket: VendorExtras | None = None


class Summary(Struct, frozen=True, gc=False, tag="summary"):
    """Text that stands for messages which are no longer there."""

    text: str
    pocket: VendorExtras | None = None


class Unknown(Struct, frozen=True, gc=False, tag="unknown"):
    """A piece we do not understand: kept whole, for the format it came from."""

    kind: str
    data: str
    """The JSON text of the whole piece."""
    pocket: VendorExtras | None = None


ResultPart = Text | Image | Unknown


class ToolResult(Struct, frozen=True, gc=False, tag="tool_result"):
    """What a tool answered."""

    call_id: str
    content: tuple[ResultPart, ...] = ()
    is_error: bool = False
    name: str = ""
    """The tool's name, where the format repeats it with the result."""
    pocket: VendorExtras | None = None

    @property
    def text(self) -> str:
        """All its words."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Thinking | ToolCall | ToolResult | Image | Summary | Unknown


def part_text(part: Part) -> str:
    """The words of any part: what a person would read, and what a search would find."""
    match part:
        case Text() | Thinking() | Summary() | ToolResult():
            return part.text
        case ToolCall():
            return part.arguments
        case Image():
            return ""
        case Unknown():
            return part.data
        case _:
            assert_never(part)
