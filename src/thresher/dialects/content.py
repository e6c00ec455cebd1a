"""Content that several dialects parse and emit alike."""

from collections.abc import Mapping
from typing import Any

from thresher.dialects.losses import ConversionLosses
from thresher.model import History, Message, Role
from thresher.model.harness_text import detect_author
from thresher.model.jsontext import dump_json, load_json
from thresher.model.message import Author
from thresher.model.parts import Image, Part, Summary, Text, ToolCall, ToolResult


def is_blank_message(message: Message) -> bool:
    """Return True if a message is empty or holds only empty texts."""
    return all(isinstance(part, Text | Summary) and not part.text for part in message.parts)


def infer_message_author(role: Role, parts: tuple[Part, ...]) -> Author:
    """Infer the author of a message from the role and the parts."""
    if role == "assistant":
        return "model"
    if role == "tool":
        return "tool"
    if role == "system":
        return "harness"
    authors = [detect_author(part.text) for part in parts if isinstance(part, Text)]
    if not authors:
        return "harness" if any(isinstance(part, Summary) for part in parts) else "human"
    return "human" if "human" in authors else authors[0]


def parse_image_url(url: str) -> Image:
    """Parse an image URL, or the content of a `data:` URL."""
    head, mark, data = url.partition(";base64,")
    return Image(head[5:], data) if mark and head.startswith("data:") else Image(url=url)


def format_image_url(image: Image) -> str:
    """Return the URL of an image, or a `data:` URL of its content."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def index_tool_names(history: History) -> dict[str, str]:
    """Map call ids to tool names, for dialects that repeat the name in the result."""
    return {part.id: part.name for message in history for part in message.parts if isinstance(part, ToolCall)}


def find_result_tool_name(result: ToolResult, names: Mapping[str, str]) -> str:
    """Return the name of the tool that a result belongs to."""
    return result.name or names.get(result.call_id) or "tool"


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Decode a JSON object; None for any other text."""
    value = decode_json_or_text(text)
    return value if isinstance(value, dict) else None


def decode_json_or_text(text: str) -> Any:
    """Decode a text as JSON; return the text if that fails."""
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return text


def decode_call_arguments(call: ToolCall, losses: ConversionLosses) -> dict[str, Any]:
    """Decode a call's arguments for a dialect that requires an object."""
    value = parse_json_object(call.arguments) if call.arguments.strip() else {}
    if value is None:
        losses.add(f"arguments of `{call.name}` are not a JSON object", "written as text in a field `input`")
        return {"input": call.arguments}
    return value


def encode_call_arguments(call: ToolCall) -> str:
    """Encode a call's arguments for a dialect that requires the JSON text of an object."""
    if parse_json_object(call.arguments) is not None:
        return call.arguments
    return dump_json({"input": call.arguments}) if call.arguments.strip() else "{}"


def format_error_result(result: ToolResult) -> str:
    """Return a failed result's text with an `Error:` prefix, for a dialect without an error flag."""
    text = result.text
    return text if not result.is_error or text.lstrip()[:5].lower() == "error" else f"Error: {text}"
