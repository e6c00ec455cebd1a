"""Request bodies: the messages, and the fields around them."""

from typing import Any

from thresher.dialects.losses import ConversionLosses
from thresher.errors import FormatError
from thresher.model import History, Message, VendorExtras
from thresher.model.jsontext import dump_json, load_json


def split_request_body(name: str, value: Any, key: str) -> tuple[list[Any], dict[str, Any] | None]:
    """The messages of a request, and the body around them if it came as a whole one."""
    if isinstance(value, dict) and isinstance(value.get(key), list):
        return value[key], {k: v for k, v in value.items() if k != key}
    if isinstance(value, list):
        return value, None
    raise FormatError(
        f"`{name}` messages are a list, or a request body with a list under `{key}`; got {type(value).__name__}"
    )


def make_request_history(name: str, messages: list[Message], rest: dict[str, Any] | None) -> History:
    """A history with the body's other fields in its pocket and its tools at hand."""
    if rest is None:
        return History(tuple(messages), pocket=VendorExtras(name))
    tools = "" if rest.get("tools") is None else dump_json(rest.pop("tools"))
    return History(
        tuple(messages),
        tools=tools,
        pocket=VendorExtras(name, dump_json(rest) if rest else "", shape="body"),
    )


def get_request_fields(history: History, name: str, losses: ConversionLosses) -> dict[str, Any]:
    """The other fields of the body, where the history came in one of this format."""
    pocket = history.pocket
    if pocket is None or not pocket.fields:
        return {}
    if pocket.format == name:
        fields: dict[str, Any] = load_json(pocket.fields)
        return fields
    losses.add(f"request fields {', '.join(load_json(pocket.fields))} of `{pocket.format}`", "not carried over")
    return {}


def is_from_dialect(history: History, name: str) -> bool:
    """Whether the history's tools and body fields are in this dialect already."""
    return history.pocket is not None and history.pocket.format == name


_OPENAI_CHAT_FIELDS = frozenset({
    "response_format", "max_completion_tokens", "frequency_penalty", "presence_penalty", "logprobs", "logit_bias",
    "reasoning_effort", "modalities", "parallel_tool_calls", "stream_options", "functions", "function_call",
})  # fmt: skip
"""Fields of a request that Chat Completions has and Anthropic's Messages do not."""


def is_openai_chat_body(value: Any) -> bool:
    """Whether a request names what only Chat Completions takes, or offers tools as it does."""
    if not isinstance(value, dict):
        return False
    tools = value.get("tools")
    offered = isinstance(tools, list) and any(isinstance(tool, dict) and "function" in tool for tool in tools)
    return offered or not _OPENAI_CHAT_FIELDS.isdisjoint(value)


def has_request_body(history: History) -> bool:
    """Whether the history came as a whole request."""
    return history.pocket is not None and history.pocket.shape == "body"


def should_emit_body(history: History, body: bool | None, losses: ConversionLosses, **needs: object) -> bool:
    """Whether to write a whole request; what `needs` one and gets none is a loss, by the name it is given."""
    if body is None:
        return has_request_body(history) or any(needs.values())
    for need in needs if not body else ():
        if needs[need]:
            losses.add(need.replace("_", " "), "left out: a plain list of messages has no place for it")
    return body
