"""Find and replace lone surrogates, which UTF-8 cannot encode.

A lone surrogate is either a character of a text, or an escape in JSON text that the encoder decodes first: arguments,
vendor extras, opaque values.
"""

from typing import Any

from msgspec import structs

from thresher.model import Message, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Part, ResultPart, Text, ToolCall, ToolResult, Unknown


def has_lone_surrogate(text: str) -> bool:
    """Return True if UTF-8 cannot encode a text."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def replace_lone_surrogates(text: str) -> str:
    """Replace each lone surrogate with U+FFFD; join two adjacent halves of a pair."""
    if not has_lone_surrogate(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def has_lone_surrogate_in_json(text: str) -> bool:
    """Return True if JSON text contains a string that UTF-8 cannot encode."""
    if "\\ud" not in text and "\\uD" not in text:
        return has_lone_surrogate(text)
    try:
        return contains_value(load_json(text), lambda value: isinstance(value, str) and has_lone_surrogate(value))
    except (ValueError, RecursionError):
        return has_lone_surrogate(text)


def replace_lone_surrogates_in_json(text: str) -> str:
    """Replace lone surrogates in the strings of JSON text."""
    if not has_lone_surrogate_in_json(text):
        return text
    try:
        return dump_json(_repair_json_value(load_json(text)))
    except (ValueError, RecursionError):
        return replace_lone_surrogates(text)


def contains_value(value: Any, wanted: Any) -> bool:
    """Return True if the function `wanted` is true for any key or value, recursively."""
    if isinstance(value, dict):
        return any(wanted(key) or contains_value(inner, wanted) for key, inner in value.items())
    if isinstance(value, list):
        return any(contains_value(inner, wanted) for inner in value)
    return bool(wanted(value))


def _repair_json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {replace_lone_surrogates(key): _repair_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_repair_json_value(inner) for inner in value]
    return replace_lone_surrogates(value) if isinstance(value, str) else value


def repair_message_encoding(message: Message) -> Message:
    """Return the message with vendor extras that UTF-8 can encode."""
    return structs.replace(message, pocket=_repair_extras(message.pocket))


def _repair_extras(pocket: VendorExtras | None) -> VendorExtras | None:
    if pocket is None or not has_lone_surrogate_in_json(pocket.fields):
        return pocket
    return structs.replace(pocket, fields=replace_lone_surrogates_in_json(pocket.fields))


def repair_part_encoding(part: Part) -> Part:
    """Return the part without lone surrogates."""
    changes: dict[str, Any] = {
        name: replace_lone_surrogates(value) for name, value in structs.asdict(part).items() if isinstance(value, str)
    }
    match part:
        case ToolCall():
            changes["arguments"] = replace_lone_surrogates_in_json(changes["arguments"])
        case Unknown():
            changes["data"] = replace_lone_surrogates_in_json(part.data)
        case ToolResult():
            changes["content"] = _repair_content(part)
    return structs.replace(part, pocket=_repair_extras(part.pocket), **changes)


def _repair_content(result: ToolResult) -> tuple[ResultPart, ...]:
    content = tuple([part for inner in result.content if isinstance(part := repair_part_encoding(inner), ResultPart)])
    text = structs.replace(result, content=content).text
    # The encoder decodes the text of an object, so repair it as JSON.
    is_object = result.pocket is not None and "object" in result.pocket.shape
    return (Text(replace_lone_surrogates_in_json(text)),) if is_object and has_lone_surrogate_in_json(text) else content
