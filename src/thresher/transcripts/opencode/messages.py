"""Build an opencode session from documents in the schema of `opencode export`.

An assistant message is one model call or, if it has several steps, one model call per step. A tool part contains both
the call and its result, so pairing needs no id. Ids are not reliable: tools that share transcripts remove them, and
then many calls have the same id. A message with a call by the harness (a user's command, a sub-agent that a command
starts) has no step and no model.

The file still contains the outputs that opencode has cleared from the context. The reader keeps their full text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import AbandonedBranch, Author, History, Message, Session, SourceLocation, Usage
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import make_session, parse_time, title_from_prompt
from thresher.transcripts.coerce import as_count, as_dict, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, mark_carried, result_content, unknown_part
from thresher.transcripts.source import SourceFile

NAME = "opencode"

HIDDEN_PART_TYPES = frozenset(("step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction"))
"""Types of parts that no model sees."""
INLINED_MIME_TYPES = ("text/plain", "application/x-directory")
"""MIME types of files whose text is also in the same message."""
MAX_REPLAY_FACTOR = 10
"""Maximum number of messages that all compactions may carry over, for each message. Guards against hostile files."""
SUBAGENT_TITLE_SUFFIX = "subagent)"
"""Suffix of the title of a sub-agent's session. In an export, nothing else identifies a sub-agent."""


class OpencodePart(NamedTuple):
    """A part. `call_id` is the unique id of a tool part's call, and empty for other parts."""

    record: Any
    call_id: str

    @property
    def kind(self) -> str:
        """Type of the part."""
        return text_at(self.record, "type")

    @property
    def state(self) -> dict[str, Any]:
        """Input, output and status of a tool part."""
        return dict_at(self.record, "state")


class OpencodeMessage(NamedTuple):
    """A message of the session."""

    source: SourceLocation
    id: str
    """Unique id: the original id, or a generated one if the original is missing or a duplicate."""
    info: dict[str, Any]
    parts: tuple[OpencodePart, ...]


def build_opencode_session(
    source: SourceFile,
    document: Mapping[str, Any],
    files: Sequence[str] = (),
    *,
    call_id: str = "",
    is_subagent: bool = False,
) -> Session:
    """Build the session in a document. `files` has one file per message, or is empty for one document."""
    info, rows = dict_at(document, "info"), list_at(document, "messages")
    entries = _index_messages(source, rows, files)
    kept, reverted = _split_reverted(source, dict_at(info, "revert"), entries)
    prompter: Author = "model" if is_subagent or text_at(info, "title").endswith(SUBAGENT_TITLE_SUFFIX) else "human"
    segments = [History(tuple(segment)) for segment in _split_segments(source, kept, prompter)]
    abandoned = tuple(message for entry in reverted for message in _convert_message(source, entry, prompter))
    after = segments[-1][-1].id if segments[-1] else ""
    states = (part.state for entry in entries for part in entry.parts)
    if spilled := sum(bool(value_at(state, "metadata", "outputPath")) for state in states):
        source.report(f"{spilled} long outputs are in files outside the export", "their truncated text is kept")
    id_ = text_at(info, "id")
    return make_session(
        NAME,
        source,
        id_ if id_.startswith("ses_") or source.is_database else source.stem,
        segments,
        branches=(AbandonedBranch(History(abandoned), after),) if abandoned else (),
        records=_count_records(rows),
        project=text_at(info, "directory"),
        title=text_at(info, "title") or title_from_prompt(segments),
        version=text_at(info, "version"),
        parent=text_at(info, "parentID"),
        call_id=call_id,
        times=(time for entry in entries for time in _message_times(entry)),
    )


def _count_records(rows: Iterable[Any]) -> dict[str, int]:
    """Count messages by role and parts by type."""
    counts: Counter[str] = Counter()
    for row in map(as_dict, rows):
        counts[text_at(row, "info", "role") or "?"] += 1
        for part in list_at(row, "parts"):
            counts[text_at(part, "type") or "?"] += 1
    return dict(counts)


# Ids


def _index_messages(source: SourceFile, rows: Sequence[Any], files: Sequence[str]) -> list[OpencodeMessage]:
    """Return the messages, and give each message and call a unique id."""
    valid: list[tuple[int, dict[str, Any], list[Any]]] = []
    for number, row in enumerate(rows, 1):
        info, parts = value_at(row, "info"), value_at(row, "parts")
        if isinstance(info, dict) and isinstance(parts, list):
            valid.append((number, info, parts))
        else:
            source.report("a message has no `info` or no list of `parts`", "skipped", number)
    calls: dict[tuple[int, ...], str] = {
        (number, index): text_at(part, "callID")
        for number, _, parts in valid
        for index, part in enumerate(parts, 1)
        if text_at(part, "type") == "tool"
    }
    ids, renamed_messages = _assign_unique_ids({(number,): text_at(info, "id") for number, info, _ in valid}, "message")
    call_ids, renamed_calls = _assign_unique_ids(calls, "call")
    if renamed_messages or renamed_calls:
        what = f"{renamed_messages} messages and {renamed_calls} calls have no unique id"
        source.report(what, "ids are generated")
    return [
        OpencodeMessage(
            SourceLocation(files[number - 1], number) if files else source.at(number),
            ids[(number,)],
            info,
            tuple(OpencodePart(part, call_ids.get((number, index), "")) for index, part in enumerate(parts, 1)),
        )
        for number, info, parts in valid
    ]


def _assign_unique_ids(given: Mapping[tuple[int, ...], str], kind: str) -> tuple[dict[tuple[int, ...], str], int]:
    """Return a unique id for each position, and the number of ids generated for missing and duplicate ones."""
    counts = Counter(given.values())
    ids = {}
    for position, id_ in given.items():
        generated = "-".join((kind, *map(str, position)))
        while generated in counts:
            generated += "-"
        ids[position] = id_ if id_ and counts[id_] == 1 else generated
    return ids, sum(ids[position] != id_ for position, id_ in given.items())


def _split_reverted(
    source: SourceFile, revert: dict[str, Any], entries: list[OpencodeMessage]
) -> tuple[list[OpencodeMessage], list[OpencodeMessage]]:
    """Return the kept messages, and the reverted ones: everything from the reverted message or part onward."""
    if not revert:
        return entries, []
    matches = [n for n, entry in enumerate(entries) if entry.id == revert.get("messageID")]
    if len(matches) != 1:
        source.report("the session was reverted to a message that does not exist", "nothing is removed")
        return entries, []
    kept, reverted = entries[: matches[0]], entries[matches[0] :]
    first = reverted[0]
    matches = [n for n, part in enumerate(first.parts) if value_at(part.record, "id") == revert.get("partID")]
    if revert.get("partID") and len(matches) == 1:
        kept = [*kept, first._replace(parts=first.parts[: matches[0]])]
        reverted = [first._replace(id=f"{first.id}-back", parts=first.parts[matches[0] :]), *reverted[1:]]
    return kept, reverted


def _split_segments(source: SourceFile, entries: Sequence[OpencodeMessage], prompter: Author) -> list[list[Message]]:
    """Return the messages by segment. Each summary starts one. A compaction part can name the first message to keep."""
    segments: list[list[Message]] = [[]]
    numbers = {entry.id: entry.source.line for entry in entries}
    tail: float = float("inf")
    allowance = MAX_REPLAY_FACTOR * len(entries)
    for entry in entries:
        for part in entry.parts:
            if part.kind == "compaction":
                tail = numbers.get(text_at(part.record, "tail_start_id"), float("inf"))
        messages = _convert_message(source, entry, prompter)
        if messages and isinstance(messages[0].parts[0], Summary):
            kept = [m for m in segments[-1] if m.source and m.source.line >= tail]
            allowance -= len(kept)
            segments.append([*messages, *mark_carried(kept if allowance >= 0 else [])])
        else:
            segments[-1] += messages
    if allowance < 0:
        source.report("compactions keep too many messages", "the last compactions keep none")
    return segments


def _message_times(entry: OpencodeMessage) -> list[datetime]:
    spans = dict_at(entry.info, "time")
    return [time for key in ("created", "completed") if (time := parse_time(spans.get(key)))]


# Messages


def _convert_message(source: SourceFile, entry: OpencodeMessage, prompter: Author) -> list[Message]:
    try:
        if entry.info.get("role") != "assistant":
            messages = [_convert_user_message(entry, prompter)]
        elif summary := _summary_text(entry):
            messages = [Message("user", (Summary(summary),), author="harness", id=entry.id)]
        else:
            messages = _convert_assistant_message(entry)
    except RecursionError:
        source.report("a message is nested too deeply", "skipped", entry.source.line)
        return []
    time = next(iter(_message_times(entry)), None)
    return [replace(m, source=entry.source, time=m.time or time) for m in messages if m.parts]


def _convert_user_message(entry: OpencodeMessage, prompter: Author) -> Message:
    """Convert a message by a user, or by the harness in the user's name."""
    converted = [(wire.record, part) for wire in entry.parts if (part := _convert_part(wire.record))]
    typed = tuple(part for record, part in converted if value_at(record, "synthetic") is not True)
    author = infer_message_author("user", typed) if typed and entry.info.get("role") == "user" else "harness"
    parts = tuple(part for _, part in converted)
    return Message("user", parts, author=prompter if author == "human" else author, id=entry.id)


def _summary_text(entry: OpencodeMessage) -> str:
    """Return the summary if the message is a successful compaction, else an empty string."""
    if entry.info.get("summary") is not True or entry.info.get("error"):
        return ""
    return "\n".join(part.text for wire in entry.parts if isinstance(part := _convert_part(wire.record), Text))


def _convert_assistant_message(entry: OpencodeMessage) -> list[Message]:
    """Return two messages for each step: the model's output and the results of its calls."""
    is_model = any(part.kind in ("step-start", "text", "reasoning") for part in entry.parts)
    steps = _split_steps(entry.parts)
    messages: list[Message] = []
    for number, step in enumerate(steps, 1):
        id_ = entry.id if number == 1 else f"{entry.id}-{number}"
        tokens = next((value_at(part.record, "tokens") for part in step if part.kind == "step-finish"), None)
        tokens = tokens or (entry.info.get("tokens") if len(steps) == 1 else None)
        parts = tuple(part for wire in step if (part := _make_call(wire) or _convert_part(wire.record)))
        answer = Message("assistant", parts, author="harness", id=id_)
        if is_model:
            model, usage = text_at(entry.info, "modelID"), _parse_usage(tokens)
            answer = replace(answer, author="model", model=model, usage=usage)
        results = tuple(result for part in step if (result := _make_result(part)))
        ends = filter(None, (parse_time(value_at(part.state, "time", "end")) for part in step))
        messages += [answer, Message("tool", results, author="tool", id=f"{id_}-results", time=max(ends, default=None))]
    return messages


def _split_steps(parts: Iterable[OpencodePart]) -> list[list[OpencodePart]]:
    """Split parts by model call. Parts before the first `step-start` belong to the first call."""
    steps: list[list[OpencodePart]] = [[]]
    has_start = False
    for part in parts:
        if part.kind == "step-start" and has_start:
            steps.append([])
        has_start = has_start or part.kind == "step-start"
        steps[-1].append(part)
    return steps


# Parts


def _convert_part(wire: Any) -> Part | None:
    """Convert a part other than a call; return None for parts that no model sees."""
    match wire:
        case {"type": "text", "ignored": True}:
            return None
        case {"type": "text", "text": str(text)} | {"type": "subtask", "prompt": str(text)}:
            return Text(text)
        case {"type": "reasoning", "text": str(text)}:
            return Thinking(text, _find_signature(wire.get("metadata")))
        case {"type": "file", "mime": str(mime), "url": str(url)}:
            return None if mime in INLINED_MIME_TYPES else _parse_image(mime, url)
        case _:
            return None if text_at(wire, "type") in HIDDEN_PART_TYPES else unknown_part(wire)


def _find_signature(metadata: Any) -> str:
    """Return a thinking signature. `metadata` contains it under the provider's name or, in newer rows, directly."""
    for fields in (metadata, *as_dict(metadata).values()):
        if signature := first_text(
            fields, "signature", "redactedData", "reasoningEncryptedContent", "thoughtSignature"
        ):
            return signature
    return ""


def _parse_image(mime: str, url: str) -> Image:
    head, _, data = url.partition(",")
    return Image(mime, data) if head.startswith("data:") and head.endswith(";base64") else Image(mime, url=url)


def _make_call(part: OpencodePart) -> ToolCall | None:
    if not part.call_id:
        return None
    return ToolCall(part.call_id, text_at(part.record, "tool"), json_text(part.state.get("input", {})))


def _make_result(part: OpencodePart) -> ToolResult | None:
    """Return the result of a call, or None if the call has not finished."""
    state = part.state
    metadata = dict_at(state, "metadata")
    match state.get("status") if part.call_id else None:
        case "completed":
            output = state.get("output")
        case "error":
            # An interrupted call keeps its partial output.
            partial = metadata.get("output") if metadata.get("interrupted") is True else None
            output = partial if isinstance(partial, str) else state.get("error")
        case _:
            return None
    name = text_at(part.record, "tool")
    failed = state["status"] == "error" or metadata.get("exit") not in (0, None) or name == "invalid"
    text = "" if output is None else json_text(output)
    attachments = result_content(filter(None, map(_convert_part, list_at(state, "attachments"))))
    return ToolResult(part.call_id, (Text(text), *attachments), is_error=failed, name=name)


def _parse_usage(tokens: Any) -> Usage | None:
    if not isinstance(tokens, dict):
        return None
    cache = dict_at(tokens, "cache")
    counts = (tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write"), tokens.get("reasoning"))
    prompt, output, read, written, reasoning = map(as_count, counts)
    # Some versions include thinking in the output, others count it separately; the total shows which.
    if tokens.get("total") == prompt + output + read + written + reasoning:
        output += reasoning
    return Usage(prompt, output, read, written, reasoning=reasoning)
