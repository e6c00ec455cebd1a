"""goose's recordings of a provider: every request by its hash, with the answer it got.

A request holds the whole conversation so far, so the longest of each is read, with its answer; of the shorter ones,
which it begins with, come the answers as they were given, and the bills. A request that asks for a title is no
conversation of its own: its answer is the title.
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
    """Whether a document is nothing but requests and answers."""
    return isinstance(document, dict) and bool(document) and all(map(_is_recorded_call, document.values()))


def _is_recorded_call(value: Any) -> bool:
    given = value_at(value, "input")
    has_input = isinstance(value_at(given, "messages"), list) and isinstance(value_at(given, "system"), str)
    return has_input and isinstance(value_at(value, "output", "message"), dict)


def read_goose_recording(source: SourceFile, document: dict[str, Any]) -> list[Session]:
    """Each conversation once."""
    calls = [*_parse_calls(source, document)]
    if not calls:
        raise ReadError(f"`{source.path}` holds no conversation: no request with its answer is in it")
    groups = _group_by_conversation(calls)
    asked = [_find_requested_title(group[0], groups) for group in groups]
    titles = {prompt: words for words, prompt in filter(None, asked)}
    stem = source.stem
    kept = [group for group, title in zip(groups, asked, strict=True) if title is None]
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
            source.report("an entry is no request with its answer", "skipped", number)
            continue
        given, output = value["input"], value["output"]
        messages = [message for message in given["messages"] if isinstance(message, dict)]
        if len(messages) < len(given["messages"]):
            source.report("a request has messages that are none", "left out", number)
        tools, usage = list_at(given, "tools"), dict_at(output, "usage")
        yield GooseExchange(number, given["system"], messages, tools, output["message"], usage)


def _group_by_conversation(calls: Sequence[GooseExchange]) -> list[list[GooseExchange]]:
    """Calls of one conversation together, the longest first; conversations in the order of the file."""
    groups: dict[str, list[GooseExchange]] = {}
    for call in sorted(calls, key=lambda call: -len(call.messages)):
        keys = [*_prefix_digests(call)]
        if keys[-1] in groups and call.messages:
            groups[keys[-1]].append(call)
        else:
            mine = [call]
            groups |= {key: mine for key in keys if key not in groups}
    distinct = {id(group): group for group in groups.values()}
    return sorted(distinct.values(), key=lambda group: min(call.number for call in group))


def _prefix_digests(call: GooseExchange) -> Iterator[str]:
    """A digest of each beginning of a request."""
    digest = blake2b(canonical_json(call.system).encode("utf-8", "replace"), digest_size=16)
    if not call.messages:
        yield f"{digest.hexdigest()} {call.number}"
    for message in call.messages:
        said = canonical_json([message.get("role"), message.get("content")])
        digest.update(said.encode("utf-8", "replace"))
        yield digest.hexdigest()


def _first_prompt(call: GooseExchange) -> str:
    """What was asked first."""
    content = list_at(call.messages[0], "content") if call.messages else []
    return next((words for part in content if (words := text_at(part, "text").strip())), "")


def _find_requested_title(call: GooseExchange, groups: Sequence[Sequence[GooseExchange]]) -> tuple[str, str] | None:
    """The title that a request asked for, and the first prompt of the conversation that it is for."""
    asked = _first_prompt(call)
    if call.tools or len(call.messages) != 1:
        return None
    others = (prompt for group in groups if group[0].tools and (prompt := _first_prompt(group[0])))
    prompt = next((prompt for prompt in others if prompt in asked and prompt != asked), "")
    words = " ".join(text_at(part, "text") for part in list_at(call.output, "content")).strip()
    return (words, prompt) if prompt and words else None


def _build_session(own: SourceFile, facts: GooseFacts, calls: Sequence[GooseExchange]) -> Session:
    longest = calls[0]
    given = {len(call.messages): call for call in reversed(calls)}
    wires = [*longest.messages, longest.output]
    for place, call in given.items():
        if place < len(longest.messages) and _call_ids(wires[place]) == _call_ids(call.output):
            # What the provider answered is all of it; what is sent again may have lost its words.
            wires[place] = {**wires[place], "content": call.output.get("content")}
    entries = [GooseMessage(number, wire) for number, wire in enumerate(wires, 2)]
    session = build_goose_session(own, facts, entries)
    bills = {place + 2: call.usage for place, call in given.items()}
    segments = [[_with_usage(message, bills) for message in segment] for segment in session.segments]
    if longest.system:
        system = Message("system", (Text(longest.system),), "harness", "system", source=own.at(1))
        segments[-1].insert(0, system)
    tools = dump_json([_normalize_tool(tool) for tool in longest.tools]) if longest.tools else ""
    return replace(session, segments=tuple(History(tuple(segment), tools=tools) for segment in segments))


def _call_ids(wire: dict[str, Any]) -> set[str]:
    return {text_at(part, "id") for part in list_at(wire, "content") if value_at(part, "type") == "toolRequest"}


def _with_usage(message: Message, bills: dict[int, dict[str, Any]]) -> Message:
    bill = bills.get(message.source.line) if message.source and message.role == "assistant" else None
    if bill is None:
        return message
    return replace(message, usage=parse_goose_usage(bill.get("usage")), model=text_at(bill, "model"))


def _normalize_tool(tool: Any) -> Any:
    """A tool as MCP defines it, with its schema under a name that every dialect knows."""
    if not isinstance(tool, dict) or "inputSchema" not in tool:
        return tool
    return {"name": tool.get("name"), "description": tool.get("description"), "input_schema": tool["inputSchema"]}
