"""Content as most formats have it: texts, calls' arguments, results' parts, and what no format knows."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from thresher.model import Message
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolResult, Unknown
from thresher.transcripts.coerce import as_dict, first_text, list_at, text_at
from thresher.transcripts.source import SourceFile


def text_parts(text: str) -> tuple[Text, ...]:
    """A text as parts: none where it is empty."""
    return (Text(text),) if text else ()


def unknown_part(wire: Any) -> Unknown:
    """A part that no format here knows, kept whole under its type."""
    return Unknown(text_at(wire, "type"), dump_json(wire))


def json_text(given: Any) -> str:
    """A value as JSON; a string is JSON already."""
    return given if isinstance(given, str) else dump_json(given)


def result_content(parts: Iterable[Part]) -> tuple[ResultPart, ...]:
    """The parts that a tool's result may hold."""
    return tuple(part for part in parts if isinstance(part, Text | Image | Unknown))


def split_results(parts: Iterable[Part]) -> tuple[tuple[ToolResult, ...], tuple[Part, ...]]:
    """The results among parts, and the others."""
    parts = [*parts]
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    return results, tuple(part for part in parts if not isinstance(part, ToolResult))


def parse_thinking_blocks(wire: Any) -> list[Thinking]:
    """Thinking as LiteLLM keeps it for all providers, under `thinking_blocks`."""
    blocks = map(as_dict, list_at(wire, "thinking_blocks"))
    found = [Thinking(text_at(block, "thinking"), first_text(block, "signature", "data")) for block in blocks]
    return [one for one in found if one.text or one.signature]


def report_missing_outputs(source: SourceFile, missing: int) -> None:
    """Report how many outputs were too long for the transcript, and are in files that are gone."""
    if missing:
        what = f"{missing} long outputs are in files that are not here"
        source.report(what, "what the transcript shows of them is kept")


def mark_carried(messages: Iterable[Message]) -> list[Message]:
    """Messages that the model is shown once more."""
    return [replace(message, carried=True) for message in messages]
