"""Split request bodies into the messages and the other fields, and merge them again."""

from typing import Any

from thresher.dialects.losses import ConversionLosses
from thresher.errors import FormatError
from thresher.model import History, Message, VendorExtras
from thresher.model.jsontext import dump_json, load_json


def split_request_body(name: str, value: Any, key: str) -> tuple[list[Any], dict[str, Any] | None]:
    """Split a request into its messages and its other fields, which are None for a plain list of messages."""
    if isinstance(value, dict) and isinstance(value.get(key), list):
        return value[key], {k: v for k, v in value.items() if k != key}
    if isinstance(value, list):
        return value, None
    raise FormatError(
        f"`{name}` messages must be a list, or a request body with a list under `{key}`; got {type(value).__name__}"
    )


def make_request_history(name: str, messages: list[Message], rest: dict[str, Any] | None) -> History:
    """Build a history from parsed messages and the other fields of the request, which it preserves."""
    if rest is None:
        return History(tuple(messages), pocket=VendorExtras(name))
    tools = "" if rest.get("tools") is None else dump_json(rest.pop("tools"))
    pocket = VendorExtras(name, dump_json(rest) if rest else "", shape="body")
    return History(tuple(messages), tools, pocket)


def get_request_fields(history: History, name: str, losses: ConversionLosses) -> dict[str, Any]:
    """Return the preserved request fields if they are of this dialect; otherwise, record them as a loss."""
    pocket = history.pocket
    if pocket is None or not pocket.fields:
        return {}
    if pocket.format == name:
        fields: dict[str, Any] = load_json(pocket.fields)
        return fields
    losses.add(f"request fields {', '.join(load_json(pocket.fields))} of `{pocket.format}`", "removed")
    return {}


def is_from_dialect(history: History, name: str) -> bool:
    """Return True if the history's tools and request fields are in this dialect."""
    return history.pocket is not None and history.pocket.format == name


_OPENAI_CHAT_FIELDS = frozenset({
    "response_format", "max_completion_tokens", "frequency_penalty", "presence_penalty", "logprobs", "logit_bias",
    "reasoning_effort", "modalities", "parallel_tool_calls", "stream_options", "functions", "function_call",
})  # fmt: skip
"""Request fields of Chat Completions that Anthropic's Messages API lacks."""


def is_openai_chat_body(value: Any) -> bool:
    """Return True if a body has fields or tool definitions of Chat Completions."""
    if not isinstance(value, dict):
        return False
    tools = value.get("tools")
    has_function_tools = isinstance(tools, list) and any(
        isinstance(tool, dict) and "function" in tool for tool in tools
    )
    return has_function_tools or not _OPENAI_CHAT_FIELDS.isdisjoint(value)


def has_request_body(history: History) -> bool:
    """Return True if the history was parsed from a request body."""
    return history.pocket is not None and history.pocket.shape == "body"


def should_emit_body(history: History, body: bool | None, losses: ConversionLosses, **needs: object) -> bool:
    """Decide whether to emit a request body, and record a loss for each of `needs` that a plain list cannot hold."""
    if body is None:
        return has_request_body(history) or any(needs.values())
    for need in needs if not body else ():
        if needs[need]:
            losses.add(need.replace("_", " "), "removed: a plain list of messages cannot hold it")
    return body
