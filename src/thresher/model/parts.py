"""The parts of a message, as frozen values.

A part stores its meaning without any vendor's vocabulary. Vendor-specific fields (cache breakpoints, signatures,
unknown fields) are preserved in `pocket` and do not affect the part's identity.
"""

from typing import assert_never

from msgspec import Struct


class VendorExtras(Struct, frozen=True, gc=False):
    """Fields that the data model does not cover. Only the dialect or transcript format that wrote them reads them."""

    format: str
    """The dialect or transcript format that the fields belong to."""
    fields: str = ""
    """Fields that the encoder adds to its output again, as the text of a JSON object."""
    absent: tuple[str, ...] = ()
    """Names of fields that the encoder would write, but that the original lacks."""
    shape: str = ""
    """Layout of the original, if the format has several. Only the format interprets this value."""


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Plain text."""

    text: str
    pocket: VendorExtras | None = None


class Thinking(Struct, frozen=True, gc=False, tag="thinking"):
    """A model's visible reasoning."""

    text: str
    signature: str = ""
    """The vendor's opaque signature. Redacted thinking has a signature and no text."""
    pocket: VendorExtras | None = None


class ToolCall(Struct, frozen=True, gc=False, tag="tool_call"):
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str
    """The original text: JSON for most tools, free text for some."""
    pocket: VendorExtras | None = None


class Image(Struct, frozen=True, gc=False, tag="image"):
    """An image, a PDF or audio, depending on the media type."""

    media_type: str = ""
    data: str = ""
    """Base64, or empty if only the `url` is known."""
    url: str = ""
    pocket: VendorExtras | None = None


class Summary(Struct, frozen=True, gc=False, tag="summary"):
    """Summary of earlier messages that are no longer in the history."""

    text: str
    pocket: VendorExtras | None = None


class Unknown(Struct, frozen=True, gc=False, tag="unknown"):
    """A part of unknown type, preserved for the format that it comes from."""

    kind: str
    data: str
    """JSON text of the whole part."""
    pocket: VendorExtras | None = None


ResultPart = Text | Image | Unknown


class ToolResult(Struct, frozen=True, gc=False, tag="tool_result"):
    """Output of a tool."""

    call_id: str
    content: tuple[ResultPart, ...] = ()
    is_error: bool = False
    name: str = ""
    """Name of the tool, if the format repeats it in the result."""
    pocket: VendorExtras | None = None

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Thinking | ToolCall | ToolResult | Image | Summary | Unknown


def part_text(part: Part) -> str:
    """Return the text of any part, as a person reads it and a search indexes it."""
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
