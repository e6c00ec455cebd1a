"""Parse the content blocks of Cline, Roo Code and Kilo Code.

A block has one of three schemas: the Anthropic API, Cline's core, or version 2 of Roo's conversation files.
"""

from typing import Any

from thresher.dialects.content import parse_image_url
from thresher.model import Usage
from thresher.model.jsontext import load_json_object
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import usage_with_cached_input
from thresher.transcripts.coerce import as_dict, as_list, count_at, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, unknown_part
from thresher.transcripts.xml_calls import is_failed_tool_answer, parse_result_header


def parse_cline_parts(row: dict[str, Any]) -> list[Part]:
    """Return the parts of a message. Roo stores encrypted reasoning as a separate message."""
    if row.get("type") == "reasoning":
        summary = (text_at(item, "text") for item in list_at(row, "summary"))
        return [Thinking("\n".join(filter(None, summary)), text_at(row, "encrypted_content"))]
    content = row.get("content")
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [part for part in map(_parse_block, as_list(content)) if part != Text("")]


def parse_cline_thinking(row: dict[str, Any]) -> list[Part]:
    """Return the reasoning that a message or its blocks store in extra fields."""
    if reasoning := text_at(row, "reasoning_content"):
        return [Thinking(reasoning)]
    owners = (row, *list_at(row, "content"))
    details = (detail for owner in owners for detail in list_at(owner, "reasoning_details"))
    parts = (Thinking(first_text(detail, "text", "summary"), text_at(detail, "signature")) for detail in details)
    return [part for part in parts if part.text or part.signature]


def _parse_block(block: Any) -> Part:
    match block:
        case str() | {"type": "text", "text": str()}:
            return Text(block if isinstance(block, str) else block["text"])
        case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "text": str(text)}:
            options = value_at(block, "providerOptions", "anthropic")
            return Thinking(text, text_at(block, "signature") or first_text(options, "signature", "redactedData"))
        case {"type": "redacted_thinking", "data": str(data)}:
            return Thinking("", data)
        case {"type": "tool_use", "name": str(name)} | {"type": "tool-call", "toolName": str(name)}:
            id_ = text_at(block, "id" if block["type"] == "tool_use" else "toolCallId")
            arguments = block.get("input")
            return ToolCall(id_, name, json_text({} if arguments is None else arguments))
        case {"type": "tool_result"} | {"type": "tool-result"}:
            return _parse_result(block)
        case {"type": "file", "content": str(content)}:
            return Text(f'<file_content path="{text_at(block, "path")}">\n{content}\n</file_content>')
        case {"type": "image"}:
            return _parse_image(block)
        case _:
            return unknown_part(block)


def _parse_image(block: dict[str, Any]) -> Image | Unknown:
    match block:
        case {"source": {"type": "base64", "data": str(data)}}:
            return Image(text_at(block, "source", "media_type"), data)
        case {"source": {"type": "url", "url": str(url)}}:
            return Image(url=url)
        case {"data": str(data)}:
            return Image(text_at(block, "mediaType"), data)
        case {"image": str(url)}:
            return parse_image_url(url)
        case _:
            return unknown_part(block)


def _parse_result(block: dict[str, Any]) -> ToolResult:
    call_id = first_text(block, "tool_use_id", "toolCallId")
    name = first_text(block, "name", "toolName")
    output = dict_at(block, "output")
    content = output.get("value") if output else block.get("content")
    items = [content] if isinstance(content, str) else as_list(content)
    failed = block.get("is_error") is True or text_at(output, "type").startswith("error")
    parts: list[ResultPart] = []
    for item in items:
        is_json = isinstance(item, str) and item.startswith('{"query":')
        operation = load_json_object(item) if is_json else as_dict(item)
        text = item if isinstance(item, str) else text_at(operation, "text")
        header_name, start = parse_result_header(text) or (name, 0)
        failed = failed or operation.get("success") is False or is_failed_tool_answer(text[start:], name or header_name)
        parts.append(_parse_result_item(item, operation))
    return ToolResult(call_id, tuple(parts), is_error=failed, name=name)


def _parse_result_item(item: Any, operation: dict[str, Any]) -> ResultPart:
    """Parse an item of a result. In Cline's core, an item can be a query with its result or error."""
    if "type" not in operation and isinstance(operation.get("query"), str):
        fields = [json_text(operation[key]) for key in ("query", "result", "error") if operation.get(key)]
        if fields:
            return Text("\n".join(fields))
    part = _parse_block(item)
    return part if isinstance(part, Text | Image | Unknown) else unknown_part(item)


def parse_cline_usage(metrics: Any) -> Usage | None:
    """Return the usage of one model call. The input in `metrics` includes cached tokens."""
    metrics = as_dict(metrics)
    tokens = dict_at(metrics, "tokens")
    read = count_at(metrics, "cacheReadTokens") or count_at(tokens, "cached")
    prompt = count_at(metrics, "inputTokens") or count_at(tokens, "prompt")
    output = count_at(metrics, "outputTokens") or count_at(tokens, "completion")
    written = count_at(metrics, "cacheWriteTokens")
    return usage_with_cached_input(prompt, output, read, written) if prompt or output else None
