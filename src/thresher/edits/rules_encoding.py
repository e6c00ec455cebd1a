"""Rules on what cannot be sent at all: half surrogate pairs, and numbers that JSON does not have.

A lone surrogate stands in a text itself, or as an escape in JSON text that a writer decodes before it sends it:
arguments, pockets, pieces kept whole. Both make a request that is no valid JSON in UTF-8.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from thresher.edits.layout import ANTHROPIC, GEMINI, RESPONSES, DialectLayout, RuleFinding
from thresher.model import Message, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

REPLACEMENT = "\ufffd"


def has_lone_surrogate(text: str) -> bool:
    """Whether UTF-8 cannot hold a text."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def replace_lone_surrogates(text: str) -> str:
    """A text with U+FFFD for each lone surrogate; two halves that stand together are made one."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if has_lone_surrogate(text) else text
    )


def has_lone_surrogate_in_json(text: str) -> bool:
    """Whether JSON text says something that UTF-8 cannot hold."""
    if "\\ud" not in text and "\\uD" not in text:
        return has_lone_surrogate(text)
    try:
        return _contains_value(load_json(text), lambda value: isinstance(value, str) and has_lone_surrogate(value))
    except (ValueError, RecursionError):
        return has_lone_surrogate(text)


def replace_lone_surrogates_in_json(text: str) -> str:
    """JSON text that says the same without lone surrogates."""
    if not has_lone_surrogate_in_json(text):
        return text
    try:
        return dump_json(_repair_json_value(load_json(text)))
    except (ValueError, RecursionError):
        return replace_lone_surrogates(text)


def _contains_value(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict):
        return any(wanted(key) or _contains_value(inner, wanted) for key, inner in value.items())
    if isinstance(value, list):
        return any(_contains_value(inner, wanted) for inner in value)
    return bool(wanted(value))


def _repair_json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {replace_lone_surrogates(key): _repair_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_repair_json_value(inner) for inner in value]
    return replace_lone_surrogates(value) if isinstance(value, str) else value


def check_lone_surrogate(view: DialectLayout) -> Iterator[RuleFinding]:
    """Text that cannot be sent as UTF-8."""
    if view.history_index.encoding_suspects is None:
        view.history_index.encoding_suspects = list(_suspects(view.messages))
    for index, number in view.history_index.encoding_suspects:
        message, native = view.messages[index], view.is_native(index)
        if number is not None:
            if _part_has_surrogate(message.parts[number], view.dialect, native):
                yield RuleFinding(index, number, "the part holds half a surrogate pair")
        elif native and message.pocket and has_lone_surrogate_in_json(message.pocket.fields):
            yield RuleFinding(index, None, "a field of the message holds half a surrogate pair")


def _suspects(messages: Sequence[Message]) -> Iterator[tuple[int, int | None]]:
    """Where a lone surrogate stands, in whichever dialect it would be sent."""
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
        inner = any(_is_suspect(one) or (one.pocket and _may_have_surrogate(one.pocket.fields)) for one in part.content)
        decoded = part.pocket is not None and "object" in part.pocket.shape and _may_have_surrogate(part.text)
        return inner or decoded or has_lone_surrogate(part.call_id) or has_lone_surrogate(part.name)
    if isinstance(part, Image):
        return has_lone_surrogate(part.url) or has_lone_surrogate(part.media_type) or has_lone_surrogate(part.data)
    if isinstance(part, Thinking):
        return has_lone_surrogate(part.text) or has_lone_surrogate(part.signature)
    return _may_have_surrogate(part.data)


def _part_has_surrogate(part: Part, dialect: str, native: bool) -> bool:
    pocket = part.pocket
    if pocket is not None and pocket.format == dialect and has_lone_surrogate_in_json(pocket.fields):
        return True
    if isinstance(part, Text | Summary):
        return has_lone_surrogate(part.text)
    if isinstance(part, ToolCall):
        return has_lone_surrogate(part.name) or has_lone_surrogate(part.id) or _arguments_have_surrogate(part, dialect)
    if isinstance(part, ToolResult):
        return _result_has_surrogate(part, dialect, native)
    if isinstance(part, Image):
        return has_lone_surrogate(part.url) or has_lone_surrogate(part.media_type) or has_lone_surrogate(part.data)
    if not native:
        return False
    if isinstance(part, Thinking):
        return has_lone_surrogate(part.text) or has_lone_surrogate(part.signature)
    return has_lone_surrogate_in_json(part.data)


def _arguments_have_surrogate(call: ToolCall, dialect: str) -> bool:
    pocket = call.pocket
    noted = (
        pocket is not None and pocket.format == dialect and bool({"object", "local_shell"} & {*pocket.shape.split()})
    )
    decoded = dialect in (ANTHROPIC, GEMINI) or noted
    return has_lone_surrogate_in_json(call.arguments) if decoded else has_lone_surrogate(call.arguments)


def _result_has_surrogate(result: ToolResult, dialect: str, native: bool) -> bool:
    if has_lone_surrogate(result.call_id) or has_lone_surrogate(result.name):
        return True
    pocket = result.pocket
    decoded = dialect in (GEMINI, RESPONSES) and pocket is not None and "object" in pocket.shape
    if decoded and has_lone_surrogate_in_json(result.text):
        return True
    return any(_part_has_surrogate(inner, dialect, native) for inner in result.content)


def repair_message_encoding(message: Message) -> Message:
    """The message with a pocket that can be sent."""
    return structs.replace(message, pocket=_repair_extras(message.pocket))


def _repair_extras(pocket: VendorExtras | None) -> VendorExtras | None:
    if pocket is None or not has_lone_surrogate_in_json(pocket.fields):
        return pocket
    return structs.replace(pocket, fields=replace_lone_surrogates_in_json(pocket.fields))


def repair_part_encoding(part: Part) -> Part:
    """The part without lone surrogates."""
    pocket = _repair_extras(part.pocket)
    match part:
        case Text():
            return Text(replace_lone_surrogates(part.text), pocket)
        case Summary():
            return Summary(replace_lone_surrogates(part.text), pocket)
        case Thinking():
            return Thinking(replace_lone_surrogates(part.text), replace_lone_surrogates(part.signature), pocket)
        case ToolCall():
            return ToolCall(
                replace_lone_surrogates(part.id),
                replace_lone_surrogates(part.name),
                replace_lone_surrogates_in_json(replace_lone_surrogates(part.arguments)),
                pocket,
            )
        case ToolResult():
            return _repair_result(part, pocket)
        case Image():
            return Image(
                replace_lone_surrogates(part.media_type),
                replace_lone_surrogates(part.data),
                replace_lone_surrogates(part.url),
                pocket,
            )
        case Unknown():
            return Unknown(replace_lone_surrogates(part.kind), replace_lone_surrogates_in_json(part.data), pocket)


def _repair_result(result: ToolResult, pocket: VendorExtras | None) -> ToolResult:
    content = tuple([one for inner in result.content if isinstance(one := repair_part_encoding(inner), ResultPart)])
    mended = ToolResult(
        replace_lone_surrogates(result.call_id), content, result.is_error, replace_lone_surrogates(result.name), pocket
    )
    if pocket is None or "object" not in pocket.shape or not has_lone_surrogate_in_json(mended.text):
        return mended
    # Its text is decoded when it is sent, so it is mended as JSON.
    return structs.replace(mended, content=(Text(replace_lone_surrogates_in_json(mended.text)),))


def check_arguments_json(view: DialectLayout) -> Iterator[RuleFinding]:
    """Arguments with a number that JSON does not have, for an API that takes them as an object."""
    for _, piece in view.calls:
        part = piece.part
        if isinstance(part, ToolCall) and has_non_finite_number(part.arguments):
            yield RuleFinding(piece.place.message, piece.place.part, f"the arguments of `{part.name}` are no JSON")


def has_non_finite_number(arguments: str) -> bool:
    """Whether arguments hold NaN or an infinity."""
    if "NaN" not in arguments and "Infinity" not in arguments:
        return False
    try:
        value = load_json(arguments)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _contains_value(
        value, lambda one: isinstance(one, float) and not math.isfinite(one)
    )
