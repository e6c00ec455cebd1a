"""The content blocks of Cline, Roo Code and Kilo Code: Anthropic's, those of Cline's core, Roo's of its version 2."""

from collections.abc import Iterable
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
    """What stands in a message; Roo keeps reasoning that only its vendor can read as a message of its own."""
    if row.get("type") == "reasoning":
        shown = (text_at(one, "text") for one in list_at(row, "summary"))
        return [Thinking("\n".join(filter(None, shown)), text_at(row, "encrypted_content"))]
    content = row.get("content")
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [part for part in map(_parse_block, as_list(content)) if part != Text("")]


def parse_cline_thinking(row: dict[str, Any]) -> list[Part]:
    """Reasoning that is told beside the content, of the message or of a block in it."""
    if said := text_at(row, "reasoning_content"):
        return [Thinking(said)]
    beside = (list_at(one, "reasoning_details") for one in (row, *list_at(row, "content")))
    details = [detail for found in beside for detail in found]
    found = ((first_text(one, "text", "summary"), text_at(one, "signature")) for one in details)
    return [Thinking(said, signature) for said, signature in found if said or signature]


def _parse_block(block: Any) -> Part:
    match block:
        case str() | {"type": "text", "text": str()}:
            return Text(block if isinstance(block, str) else block["text"])
        case {"type": "thinking", "thinking": str(said)} | {"type": "reasoning", "text": str(said)}:
            options = value_at(block, "providerOptions", "anthropic")
            return Thinking(said, text_at(block, "signature") or first_text(options, "signature", "redactedData"))
        case {"type": "redacted_thinking", "data": str(data)}:
            return Thinking("", data)
        case {"type": "tool_use", "name": str(name)} | {"type": "tool-call", "toolName": str(name)}:
            given, id_ = block.get("input"), text_at(block, "id" if block["type"] == "tool_use" else "toolCallId")
            return ToolCall(id_, name, json_text({} if given is None else given))
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
    given = [content] if isinstance(content, str) else as_list(content)
    failed = block.get("is_error") is True or text_at(output, "type").startswith("error")
    failed = failed or any(_is_failed_item(one, name) for one in given)
    return ToolResult(call_id, tuple(_parse_result_content(given)), is_error=failed, name=name)


def _parse_result_content(given: Iterable[Any]) -> Iterable[ResultPart]:
    for one in given:
        done = _operation_texts(one)
        part = Text("\n".join(done)) if done else _parse_block(one)
        yield part if isinstance(part, Text | Image | Unknown) else unknown_part(one)


def _operation_texts(one: Any) -> list[str]:
    """What Cline's core did for a call, and what came of it: an object, or its JSON text."""
    told = load_json_object(one) if isinstance(one, str) and one.startswith('{"query":') else as_dict(one)
    if "type" in told or not isinstance(told.get("query"), str):
        return []
    came = [told[key] for key in ("query", "result", "error") if told.get(key)]
    return [json_text(said) for said in came]


def _is_failed_item(one: Any, name: str) -> bool:
    told = load_json_object(one) if isinstance(one, str) and one.startswith('{"query":') else as_dict(one)
    said = one if isinstance(one, str) else text_at(told, "text")
    called, start = parse_result_header(said) or (name, 0)
    return told.get("success") is False or is_failed_tool_answer(said[start:], name or called)


def parse_cline_usage(metrics: Any) -> Usage | None:
    """A bill: what a cache served is a share of what was given."""
    told = as_dict(metrics)
    tokens = dict_at(told, "tokens")
    read = count_at(told, "cacheReadTokens") or count_at(tokens, "cached")
    written = count_at(told, "cacheWriteTokens")
    given = count_at(told, "inputTokens") or count_at(tokens, "prompt")
    output = count_at(told, "outputTokens") or count_at(tokens, "completion")
    return usage_with_cached_input(given, output, read, written) if given or output else None
