"""The content blocks of Cline, Roo Code and Kilo Code: Anthropic's, those of Cline's core, Roo's of its version 2."""

from collections.abc import Iterable
from typing import Any

from thresher.formats.dialect import image_from_url
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.xml_calls import has_failed, header_of
from thresher.model import Image, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.model.jsontext import dump, load_fields
from thresher.model.parts import Part, ResultPart


def parts_of(row: dict[str, Any]) -> list[Part]:
    """What stands in a message; Roo keeps reasoning that only its vendor can read as a message of its own."""
    if row.get("type") == "reasoning":
        shown = (text(fields(one).get("text")) for one in items(row.get("summary")))
        return [Thinking("\n".join(filter(None, shown)), text(row.get("encrypted_content")))]
    content = row.get("content")
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [part for part in map(_part, items(content)) if part != Text("")]


def thoughts_of(row: dict[str, Any]) -> list[Part]:
    """Reasoning that is told beside the content, of the message or of a block in it."""
    if said := text(row.get("reasoning_content")):
        return [Thinking(said)]
    beside = [
        row.get("reasoning_details"),
        *(fields(one).get("reasoning_details") for one in items(row.get("content"))),
    ]
    details = [fields(detail) for one in beside for detail in items(one)]
    found = ((text(one.get("text")) or text(one.get("summary")), text(one.get("signature"))) for one in details)
    return [Thinking(said, signature) for said, signature in found if said or signature]


def _part(block: Any) -> Part:
    match block:
        case str() | {"type": "text", "text": str()}:
            return Text(block if isinstance(block, str) else block["text"])
        case {"type": "thinking", "thinking": str(said)} | {"type": "reasoning", "text": str(said)}:
            options = ("providerOptions", "anthropic")
            redacted = text(at(block, *options, "redactedData"))
            return Thinking(said, text(block.get("signature")) or text(at(block, *options, "signature")) or redacted)
        case {"type": "redacted_thinking", "data": str(data)}:
            return Thinking("", data)
        case {"type": "tool_use", "name": str(name)}:
            return ToolCall(text(block.get("id")), name, _arguments(block.get("input")))
        case {"type": "tool-call", "toolName": str(name)}:
            return ToolCall(text(block.get("toolCallId")), name, _arguments(block.get("input")))
        case {"type": "tool_result"} | {"type": "tool-result"}:
            return _result(block)
        case {"type": "file", "content": str(content)}:
            return Text(f'<file_content path="{text(block.get("path"))}">\n{content}\n</file_content>')
        case {"type": "image"}:
            return _image(block)
        case _:
            return Unknown(text(fields(block).get("type")), dump(block))


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else dump({} if given is None else given)


def _image(block: dict[str, Any]) -> Image | Unknown:
    match block:
        case {"source": {"type": "base64", "data": str(data)}}:
            return Image(text(at(block, "source", "media_type")), data)
        case {"source": {"type": "url", "url": str(url)}}:
            return Image(url=url)
        case {"data": str(data)}:
            return Image(text(block.get("mediaType")), data)
        case {"image": str(url)}:
            return image_from_url(url)
        case _:
            return Unknown("image", dump(block))


def _result(block: dict[str, Any]) -> ToolResult:
    call_id = text(block.get("tool_use_id")) or text(block.get("toolCallId"))
    name = text(block.get("name")) or text(block.get("toolName"))
    output = fields(block.get("output"))
    content = output.get("value") if output else block.get("content")
    given = [content] if isinstance(content, str) else items(content)
    failed = block.get("is_error") is True or text(output.get("type")).startswith("error")
    failed = failed or any(_has_failed(one, name) for one in given)
    return ToolResult(call_id, tuple(_told(given)), is_error=failed, name=name)


def _told(given: Iterable[Any]) -> Iterable[ResultPart]:
    for one in given:
        done = _operation(one)
        part = Text("\n".join(done)) if done else _part(one)
        yield part if isinstance(part, Text | Image | Unknown) else Unknown(text(fields(one).get("type")), dump(one))


def _operation(one: Any) -> list[str]:
    """What Cline's core did for a call, and what came of it: an object, or its JSON text."""
    told = load_fields(one) if isinstance(one, str) and one.startswith('{"query":') else fields(one)
    if "type" in told or not isinstance(told.get("query"), str):
        return []
    came = [told[key] for key in ("query", "result", "error") if told.get(key)]
    return [said if isinstance(said, str) else dump(said) for said in came]


def _has_failed(one: Any, name: str) -> bool:
    told = load_fields(one) if isinstance(one, str) and one.startswith('{"query":') else fields(one)
    said = one if isinstance(one, str) else text(told.get("text"))
    called, start = header_of(said) or (name, 0)
    return told.get("success") is False or has_failed(said[start:], name or called)


def usage_of(metrics: Any) -> Usage | None:
    """A bill: what a cache served is a share of what was given."""
    told = fields(metrics)
    tokens = fields(told.get("tokens"))
    read = count(told.get("cacheReadTokens")) or count(tokens.get("cached"))
    written = count(told.get("cacheWriteTokens"))
    given = count(told.get("inputTokens")) or count(tokens.get("prompt"))
    output = count(told.get("outputTokens")) or count(tokens.get("completion"))
    return Usage(max(given - read - written, 0), output, read, written) if given or output else None
