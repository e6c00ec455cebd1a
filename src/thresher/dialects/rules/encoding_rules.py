"""Checks for text that JSON in UTF-8 cannot encode: lone surrogates, NaN and infinities.

A lone surrogate may be in a text itself, or an escape in JSON text that the encoder decodes first: arguments, vendor
extras, opaque parts. Both produce a request that is not valid JSON in UTF-8.
"""

import math
from collections.abc import Iterator, Sequence

from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.surrogates import contains_value, has_lone_surrogate, has_lone_surrogate_in_json
from thresher.model import Message
from thresher.model.jsontext import load_json
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult


def check_lone_surrogate(layout: DialectLayout, *, decodes_arguments: bool = False) -> Iterator[RuleFinding]:
    """Find text that UTF-8 cannot encode; set `decodes_arguments` for an API that takes arguments as an object."""
    if layout.history_index.encoding_suspects is None:
        layout.history_index.encoding_suspects = list(_suspects(layout.messages))
    for index, number in layout.history_index.encoding_suspects:
        message, native = layout.messages[index], layout.is_native(index)
        if number is not None:
            if _part_has_surrogate(message.parts[number], layout.dialect, native, decodes_arguments):
                yield RuleFinding(index, number, "the part contains half of a surrogate pair")
        elif native and message.pocket and has_lone_surrogate_in_json(message.pocket.fields):
            yield RuleFinding(index, None, "a field of the message contains half of a surrogate pair")


def _suspects(messages: Sequence[Message]) -> Iterator[tuple[int, int | None]]:
    """Yield the positions of possible lone surrogates, for any dialect."""
    for index, message in enumerate(messages):
        for number in _suspect_parts(message):
            yield index, number


@cached_per_message
def _suspect_parts(message: Message) -> tuple[int | None, ...]:
    found: list[int | None] = []
    if message.pocket is not None and _may_have_surrogate(message.pocket.fields):
        found.append(None)
    for number, part in enumerate(message.parts):
        pocket = part.pocket
        if (pocket is not None and _may_have_surrogate(pocket.fields)) or _is_suspect(part):
            found.append(number)
    return tuple(found)


def _may_have_surrogate(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text or has_lone_surrogate(text)


def _is_suspect(part: Part) -> bool:
    if isinstance(part, Text | Summary):
        return has_lone_surrogate(part.text)
    if isinstance(part, ToolCall):
        return _may_have_surrogate(part.arguments) or has_lone_surrogate(part.name) or has_lone_surrogate(part.id)
    if isinstance(part, ToolResult):
        inner = any(
            _is_suspect(item) or (item.pocket and _may_have_surrogate(item.pocket.fields)) for item in part.content
        )
        decoded = part.pocket is not None and "object" in part.pocket.shape and _may_have_surrogate(part.text)
        return inner or decoded or has_lone_surrogate(part.call_id) or has_lone_surrogate(part.name)
    if isinstance(part, Image):
        return has_lone_surrogate(part.url) or has_lone_surrogate(part.media_type) or has_lone_surrogate(part.data)
    if isinstance(part, Thinking):
        return has_lone_surrogate(part.text) or has_lone_surrogate(part.signature)
    return _may_have_surrogate(part.data)


def _part_has_surrogate(part: Part, dialect: str, native: bool, decodes: bool) -> bool:
    pocket = part.pocket
    if pocket is not None and pocket.format == dialect and has_lone_surrogate_in_json(pocket.fields):
        return True
    if isinstance(part, Text | Summary):
        return has_lone_surrogate(part.text)
    if isinstance(part, ToolCall):
        return (
            has_lone_surrogate(part.name)
            or has_lone_surrogate(part.id)
            or _arguments_have_surrogate(part, dialect, decodes)
        )
    if isinstance(part, ToolResult):
        return _result_has_surrogate(part, dialect, native, decodes)
    if isinstance(part, Image):
        return has_lone_surrogate(part.url) or has_lone_surrogate(part.media_type) or has_lone_surrogate(part.data)
    if not native:
        return False
    if isinstance(part, Thinking):
        return has_lone_surrogate(part.text) or has_lone_surrogate(part.signature)
    return has_lone_surrogate_in_json(part.data)


def _arguments_have_surrogate(call: ToolCall, dialect: str, decodes: bool) -> bool:
    pocket = call.pocket
    noted = (
        pocket is not None and pocket.format == dialect and bool({"object", "local_shell"} & {*pocket.shape.split()})
    )
    decoded = decodes or noted
    return has_lone_surrogate_in_json(call.arguments) if decoded else has_lone_surrogate(call.arguments)


def _result_has_surrogate(result: ToolResult, dialect: str, native: bool, decodes: bool) -> bool:
    if has_lone_surrogate(result.call_id) or has_lone_surrogate(result.name):
        return True
    pocket = result.pocket
    decoded = pocket is not None and pocket.format == dialect and "object" in pocket.shape
    if decoded and has_lone_surrogate_in_json(result.text):
        return True
    return any(_part_has_surrogate(inner, dialect, native, decodes) for inner in result.content)


def check_arguments_json(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find arguments with a number that JSON lacks, for an API that takes arguments as an object."""
    for _, piece in layout.calls:
        part = piece.part
        if isinstance(part, ToolCall) and has_non_finite_number(part.arguments):
            yield RuleFinding(
                piece.place.message, piece.place.part, f"the arguments of `{part.name}` are not valid JSON"
            )


def has_non_finite_number(arguments: str) -> bool:
    """True if arguments contain NaN or an infinity."""
    if "NaN" not in arguments and "Infinity" not in arguments:
        return False
    try:
        value = load_json(arguments)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and contains_value(
        value, lambda number: isinstance(number, float) and not math.isfinite(number)
    )
