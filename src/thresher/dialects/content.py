"""Content that several dialects read and write alike."""

from collections.abc import Mapping
from typing import Any

from thresher.dialects.losses import ConversionLosses
from thresher.model import History, Message, Role
from thresher.model.harness_text import detect_author
from thresher.model.jsontext import dump_json, load_json
from thresher.model.message import Author
from thresher.model.parts import Image, Part, Summary, Text, ToolCall, ToolResult


def is_blank_message(message: Message) -> bool:
    """Whether a message holds nothing, or only texts without a word."""
    return all(isinstance(part, Text | Summary) and not part.text for part in message.parts)


def infer_message_author(role: Role, parts: tuple[Part, ...]) -> Author:
    """Who wrote a message of which only role and parts are known."""
    if role == "assistant":
        return "model"
    if role == "tool":
        return "tool"
    if role == "system":
        return "harness"
    said = [detect_author(part.text) for part in parts if isinstance(part, Text)]
    if not said:
        return "harness" if any(isinstance(part, Summary) for part in parts) else "human"
    return "human" if "human" in said else said[0]


def parse_image_url(url: str) -> Image:
    """A picture by its address, or out of a `data:` address."""
    head, mark, data = url.partition(";base64,")
    return Image(head[5:], data) if mark and head.startswith("data:") else Image(url=url)


def format_image_url(image: Image) -> str:
    """The address of a picture; a `data:` one where it has no other."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def index_tool_names(history: History) -> dict[str, str]:
    """Tool names by call id, for formats that repeat the name with the result."""
    return {part.id: part.name for message in history for part in message.parts if isinstance(part, ToolCall)}


def find_result_tool_name(result: ToolResult, names: Mapping[str, str]) -> str:
    """The name of the tool that gave a result."""
    return result.name or names.get(result.call_id) or "tool"


def parse_json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text says, if it says one."""
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def decode_call_arguments(call: ToolCall, losses: ConversionLosses) -> dict[str, Any]:
    """A call's arguments for a format that wants an object."""
    value = parse_json_object(call.arguments) if call.arguments.strip() else {}
    if value is None:
        losses.add(f"arguments of `{call.name}` are not a JSON object", "written as its field `input`")
        return {"input": call.arguments}
    return value


def encode_call_arguments(call: ToolCall) -> str:
    """A call's arguments for a format that wants the text of an object."""
    if parse_json_object(call.arguments) is not None:
        return call.arguments
    return dump_json({"input": call.arguments}) if call.arguments.strip() else "{}"


def format_error_result(result: ToolResult) -> str:
    """A failed result's words for a format that has no mark for failure."""
    text = result.text
    return text if not result.is_error or text.lstrip()[:5].lower() == "error" else f"Error: {text}"
