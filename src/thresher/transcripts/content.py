"""Convert content that most formats share: texts, arguments, result parts, thinking, and unknown values."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from thresher.model import Message
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolResult, Unknown
from thresher.transcripts.coerce import as_dict, first_text, list_at, text_at
from thresher.transcripts.source import SourceFile


def text_parts(text: str) -> tuple[Text, ...]:
    """Return a text as one part, or no part if the text is empty."""
    return (Text(text),) if text else ()


def unknown_part(wire: Any) -> Unknown:
    """Wrap a value of an unknown type, unchanged."""
    return Unknown(text_at(wire, "type"), dump_json(wire))


def json_text(given: Any) -> str:
    """Serialize a value as JSON. A string is assumed to be JSON and returned unchanged."""
    return given if isinstance(given, str) else dump_json(given)


def result_content(parts: Iterable[Part]) -> tuple[ResultPart, ...]:
    """Return only the parts that a tool result may contain: texts, images and unknown parts."""
    return tuple(part for part in parts if isinstance(part, Text | Image | Unknown))


def split_results(parts: Iterable[Part]) -> tuple[tuple[ToolResult, ...], tuple[Part, ...]]:
    """Split parts into tool results and all other parts."""
    parts = [*parts]
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    return results, tuple(part for part in parts if not isinstance(part, ToolResult))


def parse_thinking_blocks(wire: Any) -> list[Thinking]:
    """Parse `thinking_blocks`, the field in which LiteLLM stores the thinking of all providers."""
    blocks = map(as_dict, list_at(wire, "thinking_blocks"))
    thinking = [Thinking(text_at(block, "thinking"), first_text(block, "signature", "data")) for block in blocks]
    return [part for part in thinking if part.text or part.signature]


def report_missing_outputs(source: SourceFile, missing: int) -> None:
    """Report the number of long outputs whose separate files are missing."""
    if missing:
        source.report(f"{missing} long outputs are in missing files", "kept the excerpts in the transcript")


def mark_carried(messages: Iterable[Message]) -> list[Message]:
    """Mark messages as carried: they only repeat messages of an earlier segment or of a parent session."""
    return [replace(message, carried=True) for message in messages]
