"""goose's provider recordings: a JSON object with each request and its answer, by the request's hash.

A request contains all previous messages of its conversation, so the reader takes the messages from the longest request.
Shorter requests are prefixes of the longest one, so the reader takes only their answers and usage. A request for a
title is not a conversation: the answer is the title of another one.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import History, Message, Session, Text
from thresher.model.jsontext import canonical_json, dump_json
from thresher.transcripts.coerce import dict_at, list_at, text_at, value_at
from thresher.transcripts.goose.messages import GooseFacts, GooseMessage, build_goose_session, parse_goose_usage
from thresher.transcripts.source import SourceFile


class GooseExchange(NamedTuple):
    """A request and its answer."""

    number: int
    system: str
    messages: list[dict[str, Any]]
    tools: list[Any]
    output: dict[str, Any]
    usage: dict[str, Any]


def is_goose_recording(document: Any) -> bool:
    """Return True if a document contains only requests with answers."""
    return isinstance(document, dict) and bool(document) and all(map(_is_recorded_call, document.values()))


def _is_recorded_call(value: Any) -> bool:
    request = value_at(value, "input")
    has_input = isinstance(value_at(request, "messages"), list) and isinstance(value_at(request, "system"), str)
    return has_input and isinstance(value_at(value, "output", "message"), dict)


def read_goose_recording(source: SourceFile, document: dict[str, Any]) -> list[Session]:
    """Return one session for each recorded conversation."""
    calls = [*_parse_calls(source, document)]
    if not calls:
        raise ReadError(f"`{source.path}` has no conversation: it contains no request with an answer")
    groups = _group_by_conversation(calls)
    requested = [_find_requested_title(group[0], groups) for group in groups]
    titles = {prompt: title for title, prompt in filter(None, requested)}
    stem = source.stem
    kept = [group for group, title in zip(groups, requested, strict=True) if title is None]
    sessions = []
    for number, group in enumerate(kept, 1):
        id_ = stem if len(kept) == 1 else f"{stem}-{number}"
        facts = GooseFacts(id_, title=titles.get(_first_prompt(group[0]), ""))
        sessions.append(_build_session(source.copy_for_session(), facts, group))
    records = sessions[0].records | ({"title": len(titles)} if titles else {})
    problems = (*source.problems, *sessions[0].problems)
    return [replace(sessions[0], problems=problems, records=records), *sessions[1:]]


def _parse_calls(source: SourceFile, document: dict[str, Any]) -> Iterator[GooseExchange]:
    for number, value in enumerate(document.values(), 1):
        if not _is_recorded_call(value):
            source.report("an entry is not a request with an answer", "skipped", number)
            continue
        request, output = value["input"], value["output"]
        messages = [message for message in request["messages"] if isinstance(message, dict)]
        if len(messages) < len(request["messages"]):
            source.report("a request contains malformed messages", "skipped", number)
        tools, usage = list_at(request, "tools"), dict_at(output, "usage")
        yield GooseExchange(number, request["system"], messages, tools, output["message"], usage)


def _group_by_conversation(calls: Sequence[GooseExchange]) -> list[list[GooseExchange]]:
    """Group model calls by conversation, in file order. Each group starts with the call that has the most messages."""
    groups: dict[str, list[GooseExchange]] = {}
    for call in sorted(calls, key=lambda call: -len(call.messages)):
        keys = [*_prefix_digests(call)]
        if keys[-1] in groups and call.messages:
            groups[keys[-1]].append(call)
        else:
            group = [call]
            groups |= {key: group for key in keys if key not in groups}
    distinct = {id(group): group for group in groups.values()}
    return sorted(distinct.values(), key=lambda group: min(call.number for call in group))


def _prefix_digests(call: GooseExchange) -> Iterator[str]:
    """Yield a digest of each prefix of a request. A request without messages gets one digest that no other has."""
    digest = blake2b(canonical_json(call.system).encode("utf-8", "replace"), digest_size=16)
    if not call.messages:
        yield f"{digest.hexdigest()} {call.number}"
    for message in call.messages:
        content = canonical_json([message.get("role"), message.get("content")])
        digest.update(content.encode("utf-8", "replace"))
        yield digest.hexdigest()


def _first_prompt(call: GooseExchange) -> str:
    """Return the first text in the first message."""
    content = list_at(call.messages[0], "content") if call.messages else []
    return next((text for part in content if (text := text_at(part, "text").strip())), "")


def _find_requested_title(call: GooseExchange, groups: Sequence[Sequence[GooseExchange]]) -> tuple[str, str] | None:
    """Return the title that a call generated and the first prompt of the titled conversation, or None."""
    request = _first_prompt(call)
    if call.tools or len(call.messages) != 1:
        return None
    prompts = (prompt for group in groups if group[0].tools and (prompt := _first_prompt(group[0])))
    prompt = next((prompt for prompt in prompts if prompt in request and prompt != request), "")
    title = " ".join(text_at(part, "text") for part in list_at(call.output, "content")).strip()
    return (title, prompt) if prompt and title else None


def _build_session(source: SourceFile, facts: GooseFacts, calls: Sequence[GooseExchange]) -> Session:
    longest = calls[0]
    calls_by_length = {len(call.messages): call for call in reversed(calls)}
    wires = [*longest.messages, longest.output]
    for index, call in calls_by_length.items():
        if index < len(longest.messages) and _call_ids(wires[index]) == _call_ids(call.output):
            # The recorded answer is complete; the copy in a later request can lack the answer's text.
            wires[index] = {**wires[index], "content": call.output.get("content")}
    entries = [GooseMessage(number, wire) for number, wire in enumerate(wires, 2)]
    session = build_goose_session(source, facts, entries)
    usages = {index + 2: call.usage for index, call in calls_by_length.items()}
    segments = [[_with_usage(message, usages) for message in segment] for segment in session.segments]
    if longest.system:
        system = Message("system", (Text(longest.system),), "harness", "system", source=source.at(1))
        segments[-1].insert(0, system)
    tools = dump_json([_normalize_tool(tool) for tool in longest.tools]) if longest.tools else ""
    return replace(session, segments=tuple(History(tuple(segment), tools=tools) for segment in segments))


def _call_ids(wire: dict[str, Any]) -> set[str]:
    return {text_at(part, "id") for part in list_at(wire, "content") if value_at(part, "type") == "toolRequest"}


def _with_usage(message: Message, usages: dict[int, dict[str, Any]]) -> Message:
    usage = usages.get(message.source.line) if message.source and message.role == "assistant" else None
    if usage is None:
        return message
    return replace(message, usage=parse_goose_usage(usage.get("usage")), model=text_at(usage, "model"))


def _normalize_tool(tool: Any) -> Any:
    """Rename `inputSchema` in an MCP tool definition to `input_schema`, a key that every dialect reads."""
    if not isinstance(tool, dict) or "inputSchema" not in tool:
        return tool
    return {"name": tool.get("name"), "description": tool.get("description"), "input_schema": tool["inputSchema"]}
