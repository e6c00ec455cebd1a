"""Checks for text that JSON in UTF-8 cannot encode: lone surrogates, NaN and infinities.

A lone surrogate is either a character of a text, or an escape in JSON text that the encoder decodes first: arguments,
vendor extras, opaque parts. With either one, the request is not valid JSON in UTF-8.
"""

import math
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.rules.tool_rules import finding_at
from thresher.dialects.surrogates import contains_value, has_lone_surrogate, has_lone_surrogate_in_json
from thresher.model import Message
from thresher.model.jsontext import load_json
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown


def check_lone_surrogate(layout: DialectLayout, *, decodes_arguments: bool = False) -> Iterator[RuleFinding]:
    """Find text that UTF-8 cannot encode; set `decodes_arguments` for an API that takes arguments as an object."""
    history_index = layout.history_index
    if history_index.encoding_suspects is None:
        suspects = (_suspect_parts(message) for message in layout.messages)
        history_index.encoding_suspects = [(index, part) for index, parts in enumerate(suspects) for part in parts]
    for index, number in history_index.encoding_suspects:
        message, native = layout.messages[index], layout.is_native(index)
        if number is not None:
            texts = _emitted_texts(message.parts[number], layout.dialect, native, decodes_arguments)
            if any(
                has_lone_surrogate_in_json(text) if is_json else has_lone_surrogate(text) for text, is_json in texts
            ):
                yield RuleFinding(index, number, "the part contains half of a surrogate pair")
        elif native and message.pocket and has_lone_surrogate_in_json(message.pocket.fields):
            yield RuleFinding(index, None, "a field of the message contains half of a surrogate pair")


@cached_per_message
def _suspect_parts(message: Message) -> tuple[int | None, ...]:
    """Return the indexes of parts that may contain lone surrogates; None stands for the message's own fields."""
    own_fields = (None,) if _is_suspect(message.pocket) else ()
    return (*own_fields, *(number for number, part in enumerate(message.parts) if _is_suspect(part)))


def _is_suspect(value: Any) -> bool:
    if isinstance(value, str):
        return "\\ud" in value or "\\uD" in value or has_lone_surrogate(value)
    members = structs.astuple(value) if isinstance(value, Struct) else value
    return isinstance(members, tuple) and any(map(_is_suspect, members))


def _emitted_texts(part: Part, dialect: str, native: bool, decodes_arguments: bool) -> Iterator[tuple[str, bool]]:
    """Yield each string that the encoder emits for a part, with True if the encoder first decodes it as JSON."""
    extras = part.pocket if part.pocket is not None and part.pocket.format == dialect else None
    notes = extras.shape.split() if extras else []
    if extras is not None:
        yield extras.fields, True
    match part:
        case Text() | Summary():
            yield part.text, False
        case ToolCall():
            yield from ((part.name, False), (part.id, False))
            yield part.arguments, decodes_arguments or "object" in notes or "local_shell" in notes
        case ToolResult():
            yield from ((part.call_id, False), (part.name, False))
            if "object" in notes:
                yield part.text, True
            for inner in part.content:
                yield from _emitted_texts(inner, dialect, native, decodes_arguments)
        case Image():
            yield from ((part.url, False), (part.media_type, False), (part.data, False))
        case Thinking() if native:
            yield from ((part.text, False), (part.signature, False))
        case Unknown() if native:
            yield part.data, True


def check_arguments_json(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find arguments that contain NaN or an infinity, for an API that takes arguments as an object."""
    for _, piece in layout.calls:
        part = piece.part
        if isinstance(part, ToolCall) and has_non_finite_number(part.arguments):
            yield finding_at(piece, f"the arguments of `{part.name}` are not valid JSON")


def has_non_finite_number(arguments: str) -> bool:
    """Return True if arguments contain NaN or an infinity."""
    if "NaN" not in arguments and "Infinity" not in arguments:
        return False
    try:
        value = load_json(arguments)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and contains_value(
        value, lambda number: isinstance(number, float) and not math.isfinite(number)
    )
