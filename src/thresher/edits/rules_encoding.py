"""Rules on what cannot be sent at all: half surrogate pairs, and numbers that JSON does not have.

A lone surrogate stands in a text itself, or as an escape in JSON text that a writer decodes before it sends it:
arguments, pockets, pieces kept whole. Both make a request that is no valid JSON in UTF-8.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from thresher.edits.rules_view import ANTHROPIC, GEMINI, RESPONSES, Finding, View
from thresher.model import Message, Pocket
from thresher.model.jsontext import dump, load
from thresher.model.memo import per_message
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

REPLACEMENT = "\ufffd"


def is_broken(text: str) -> bool:
    """Whether UTF-8 cannot hold a text."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def mend(text: str) -> str:
    """A text with U+FFFD for each lone surrogate; two halves that stand together are made one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if is_broken(text) else text


def is_broken_json(text: str) -> bool:
    """Whether JSON text says something that UTF-8 cannot hold."""
    if "\\ud" not in text and "\\uD" not in text:
        return is_broken(text)
    try:
        return _holds(load(text), lambda value: isinstance(value, str) and is_broken(value))
    except (ValueError, RecursionError):
        return is_broken(text)


def mend_json(text: str) -> str:
    """JSON text that says the same without lone surrogates."""
    if not is_broken_json(text):
        return text
    try:
        return dump(_mended(load(text)))
    except (ValueError, RecursionError):
        return mend(text)


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict):
        return any(wanted(key) or _holds(inner, wanted) for key, inner in value.items())
    if isinstance(value, list):
        return any(_holds(inner, wanted) for inner in value)
    return bool(wanted(value))


def _mended(value: Any) -> Any:
    if isinstance(value, dict):
        return {mend(key): _mended(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mended(inner) for inner in value]
    return mend(value) if isinstance(value, str) else value


def lone_surrogate(view: View) -> Iterator[Finding]:
    """Text that cannot be sent as UTF-8."""
    if view.facts.suspects is None:
        view.facts.suspects = list(_suspects(view.messages))
    for index, number in view.facts.suspects:
        message, native = view.messages[index], view.native(index)
        if number is not None:
            if _part_broken(message.parts[number], view.dialect, native):
                yield Finding(index, number, "the part holds half a surrogate pair")
        elif native and message.pocket and is_broken_json(message.pocket.fields):
            yield Finding(index, None, "a field of the message holds half a surrogate pair")


def _suspects(messages: Sequence[Message]) -> Iterator[tuple[int, int | None]]:
    """Where a lone surrogate stands, in whichever dialect it would be sent."""
    for index, message in enumerate(messages):
        for number in _broken(message):
            yield index, number


@per_message
def _broken(message: Message) -> tuple[int | None, ...]:
    found: list[int | None] = []
    if message.pocket is not None and _may_break(message.pocket.fields):
        found.append(None)
    for number, part in enumerate(message.parts):
        pocket = part.pocket
        if (pocket is not None and _may_break(pocket.fields)) or _is_suspect(part):
            found.append(number)
    return tuple(found)


def _may_break(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text or is_broken(text)


def _is_suspect(part: Part) -> bool:
    if isinstance(part, Text | Summary):
        return is_broken(part.text)
    if isinstance(part, ToolCall):
        return _may_break(part.arguments) or is_broken(part.name) or is_broken(part.id)
    if isinstance(part, ToolResult):
        inner = any(_is_suspect(one) or (one.pocket and _may_break(one.pocket.fields)) for one in part.content)
        decoded = part.pocket is not None and "object" in part.pocket.shape and _may_break(part.text)
        return inner or decoded or is_broken(part.call_id) or is_broken(part.name)
    if isinstance(part, Image):
        return is_broken(part.url) or is_broken(part.media_type) or is_broken(part.data)
    if isinstance(part, Thinking):
        return is_broken(part.text) or is_broken(part.signature)
    return _may_break(part.data)


def _part_broken(part: Part, dialect: str, native: bool) -> bool:
    pocket = part.pocket
    if pocket is not None and pocket.format == dialect and is_broken_json(pocket.fields):
        return True
    if isinstance(part, Text | Summary):
        return is_broken(part.text)
    if isinstance(part, ToolCall):
        return is_broken(part.name) or is_broken(part.id) or _arguments_broken(part, dialect)
    if isinstance(part, ToolResult):
        return _result_broken(part, dialect, native)
    if isinstance(part, Image):
        return is_broken(part.url) or is_broken(part.media_type) or is_broken(part.data)
    if not native:
        return False
    if isinstance(part, Thinking):
        return is_broken(part.text) or is_broken(part.signature)
    return is_broken_json(part.data)


def _arguments_broken(call: ToolCall, dialect: str) -> bool:
    pocket = call.pocket
    noted = (
        pocket is not None and pocket.format == dialect and bool({"object", "local_shell"} & {*pocket.shape.split()})
    )
    decoded = dialect in (ANTHROPIC, GEMINI) or noted
    return is_broken_json(call.arguments) if decoded else is_broken(call.arguments)


def _result_broken(result: ToolResult, dialect: str, native: bool) -> bool:
    if is_broken(result.call_id) or is_broken(result.name):
        return True
    pocket = result.pocket
    decoded = dialect in (GEMINI, RESPONSES) and pocket is not None and "object" in pocket.shape
    if decoded and is_broken_json(result.text):
        return True
    return any(_part_broken(inner, dialect, native) for inner in result.content)


def mended_message(message: Message) -> Message:
    """The message with a pocket that can be sent."""
    return structs.replace(message, pocket=_mended_pocket(message.pocket))


def _mended_pocket(pocket: Pocket | None) -> Pocket | None:
    if pocket is None or not is_broken_json(pocket.fields):
        return pocket
    return structs.replace(pocket, fields=mend_json(pocket.fields))


def mended_part(part: Part) -> Part:
    """The part without lone surrogates."""
    pocket = _mended_pocket(part.pocket)
    match part:
        case Text():
            return Text(mend(part.text), pocket)
        case Summary():
            return Summary(mend(part.text), pocket)
        case Thinking():
            return Thinking(mend(part.text), mend(part.signature), pocket)
        case ToolCall():
            return ToolCall(mend(part.id), mend(part.name), mend_json(mend(part.arguments)), pocket)
        case ToolResult():
            return _mended_result(part, pocket)
        case Image():
            return Image(mend(part.media_type), mend(part.data), mend(part.url), pocket)
        case Unknown():
            return Unknown(mend(part.kind), mend_json(part.data), pocket)


def _mended_result(result: ToolResult, pocket: Pocket | None) -> ToolResult:
    content = tuple([one for inner in result.content if isinstance(one := mended_part(inner), ResultPart)])
    mended = ToolResult(mend(result.call_id), content, result.is_error, mend(result.name), pocket)
    if pocket is None or "object" not in pocket.shape or not is_broken_json(mended.text):
        return mended
    # Its text is decoded when it is sent, so it is mended as JSON.
    return structs.replace(mended, content=(Text(mend_json(mended.text)),))


def not_json(view: View) -> Iterator[Finding]:
    """Arguments with a number that JSON does not have, for an API that takes them as an object."""
    for _, piece in view.calls:
        part = piece.part
        if isinstance(part, ToolCall) and holds_no_number(part.arguments):
            yield Finding(piece.place.message, piece.place.part, f"the arguments of `{part.name}` are no JSON")


def holds_no_number(arguments: str) -> bool:
    """Whether arguments hold NaN or an infinity."""
    if "NaN" not in arguments and "Infinity" not in arguments:
        return False
    try:
        value = load(arguments)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _holds(value, lambda one: isinstance(one, float) and not math.isfinite(one))
