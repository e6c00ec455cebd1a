"""A session of opencode from its facts, its messages and their parts, in the shape that `opencode export` gives them.

A message of the assistant is one model call, or one a step where it holds several. A tool part holds both the call and
its result, so they are paired by where they stand: what shares files scrubs ids, and then many are the same. What the
harness ran itself (a command of the user, a sub-agent that a command starts) has no step, and no model behind it.

Outputs that opencode itself has cleared since are there all the same, and are read whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import AbandonedBranch, Author, History, Message, Session, SourceLocation, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import make_session, parse_time, title_from_prompt
from thresher.transcripts.coerce import as_dict, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, mark_carried, result_content, unknown_part
from thresher.transcripts.source import SourceFile

NAME = "opencode"

HIDDEN_PART_TYPES = frozenset(("step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction"))
"""Parts that no model is shown."""
INLINED_MIME_TYPES = ("text/plain", "application/x-directory")
"""Files that stand in the same message once more, as text."""
MAX_REPLAY_FACTOR = 10
"""How often, taken together, all messages may be kept over compactions: a file may claim that each keeps all."""
SUBAGENT_TITLE_SUFFIX = "subagent)"
"""How the title of a sub-agent's session ends, which is all that an export tells."""


class OpencodePart(NamedTuple):
    """A part with the id of its call, if it is one."""

    record: Any
    call_id: str

    @property
    def kind(self) -> str:
        """Its type."""
        return text_at(self.record, "type")


class OpencodeMessage(NamedTuple):
    """A message as it stands in the session."""

    source: SourceLocation
    id: str
    """The one it came with, if no other has the same."""
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
    """The session in a document; `files` hold its messages where each is a file of its own."""
    info = dict_at(document, "info")
    rows = list_at(document, "messages")
    entries = _index_messages(source, rows, files)
    kept, left = _split_reverted(source, dict_at(info, "revert"), entries)
    human: Author = "model" if is_subagent or text_at(info, "title").endswith(SUBAGENT_TITLE_SUFFIX) else "human"
    segments = [History(tuple(segment)) for segment in _split_segments(source, kept, human)]
    back = [message for entry in left for message in _convert_message(source, entry, human)]
    after = segments[-1][-1].id if segments[-1] else ""
    _report_spilled_outputs(source, entries)
    id_ = text_at(info, "id")
    return make_session(
        NAME,
        source,
        id_ if id_.startswith("ses_") or source.is_database else source.stem,
        segments,
        branches=(AbandonedBranch(History(tuple(back)), after),) if back else (),
        records=_count_records(rows),
        project=text_at(info, "directory"),
        title=text_at(info, "title") or title_from_prompt(segments),
        version=text_at(info, "version"),
        parent=text_at(info, "parentID"),
        call_id=call_id,
        times=(time for entry in entries for time in _message_times(entry)),
    )


def _count_records(rows: Iterable[Any]) -> dict[str, int]:
    """Messages by role, parts by type."""
    counts: Counter[str] = Counter()
    for row in map(as_dict, rows):
        counts[text_at(row, "info", "role") or "?"] += 1
        for part in list_at(row, "parts"):
            counts[text_at(part, "type") or "?"] += 1
    return dict(counts)


# Names and places


def _index_messages(source: SourceFile, rows: Sequence[Any], files: Sequence[str]) -> list[OpencodeMessage]:
    """The messages, each and each call with an id that no other has."""
    found: list[tuple[int, dict[str, Any], list[Any]]] = []
    for number, row in enumerate(rows, 1):
        info, parts = value_at(row, "info"), value_at(row, "parts")
        if isinstance(info, dict) and isinstance(parts, list):
            found.append((number, info, parts))
        else:
            source.report("a message has no `info` or no list of `parts`", "skipped", number)
    calls: dict[tuple[int, ...], str] = {
        (number, place): text_at(part, "callID")
        for number, _, parts in found
        for place, part in enumerate(map(as_dict, parts), 1)
        if part.get("type") == "tool"
    }
    ids, same_ids = _assign_unique_ids({(number,): text_at(info, "id") for number, info, _ in found}, "message")
    call_ids, same_calls = _assign_unique_ids(calls, "call")
    if same_ids or same_calls:
        what = f"{same_ids} messages and {same_calls} calls have no id of their own"
        source.report(what, "named by their place")
    return [
        OpencodeMessage(
            SourceLocation(files[number - 1], number) if files else source.at(number),
            ids[(number,)],
            info,
            tuple(OpencodePart(part, call_ids.get((number, place), "")) for place, part in enumerate(parts, 1)),
        )
        for number, info, parts in found
    ]


def _assign_unique_ids(said: Mapping[tuple[int, ...], str], kind: str) -> tuple[dict[tuple[int, ...], str], int]:
    """What each is called, and how many are called by their place because their id is missing or another's, too."""
    counts = Counter(said.values())
    names = {}
    for place, id_ in said.items():
        name = "-".join((kind, *map(str, place)))
        while name in counts:
            name += "-"
        names[place] = id_ if id_ and counts[id_] == 1 else name
    return names, sum(names[place] != id_ for place, id_ in said.items())


def _split_reverted(
    source: SourceFile, revert: dict[str, Any], entries: list[OpencodeMessage]
) -> tuple[list[OpencodeMessage], list[OpencodeMessage]]:
    """What is left of the session, and what its user went back behind: all from a message, or a part of it, on."""
    if not revert:
        return entries, []
    found = [n for n, entry in enumerate(entries) if entry.id == revert.get("messageID")]
    if len(found) != 1:
        source.report("the message that the session went back to is not here", "nothing was taken back")
        return entries, []
    kept, left = entries[: found[0]], entries[found[0] :]
    first = left[0]
    places = [n for n, piece in enumerate(first.parts) if value_at(piece.record, "id") == revert.get("partID")]
    if revert.get("partID") and len(places) == 1:
        before, behind = first.parts[: places[0]], first.parts[places[0] :]
        kept = [*kept, first._replace(parts=before)]
        left = [first._replace(id=f"{first.id}-back", parts=behind), *left[1:]]
    return kept, left


def _report_spilled_outputs(source: SourceFile, entries: Iterable[OpencodeMessage]) -> None:
    states = (_tool_state(piece) for entry in entries for piece in entry.parts)
    spilled = sum(bool(value_at(state, "metadata", "outputPath")) for state in states)
    if spilled:
        what = f"{spilled} long outputs are in files that are no part of an export"
        source.report(what, "what the transcript shows of them is kept")


def _split_segments(source: SourceFile, entries: Sequence[OpencodeMessage], human: Author) -> list[list[Message]]:
    """A summary starts a segment; the compaction before it may name the first message that stays."""
    segments: list[list[Message]] = [[]]
    numbers = {entry.id: entry.source.line for entry in entries}
    tail: float = float("inf")
    left = MAX_REPLAY_FACTOR * len(entries)
    for entry in entries:
        for piece in entry.parts:
            if piece.kind == "compaction":
                tail = numbers.get(text_at(piece.record, "tail_start_id"), float("inf"))
        messages = _convert_message(source, entry, human)
        if messages and isinstance(messages[0].parts[0], Summary):
            again = [m for m in segments[-1] if m.source and m.source.line >= tail]
            left -= len(again)
            again = again if left >= 0 else []
            segments.append([*messages, *mark_carried(again)])
        else:
            segments[-1] += messages
    if left < 0:
        source.report("compactions keep more than there is", "what the last of them keep is left out")
    return segments


def _message_times(entry: OpencodeMessage) -> list[datetime]:
    spans = dict_at(entry.info, "time")
    return [time for key in ("created", "completed") if (time := parse_time(spans.get(key)))]


# Messages


def _convert_message(source: SourceFile, entry: OpencodeMessage, human: Author) -> list[Message]:
    try:
        if entry.info.get("role") != "assistant":
            found = [_convert_user_message(entry, human)]
        elif summary := _summary_text(entry):
            found = [Message("user", (Summary(summary),), author="harness", id=entry.id)]
        else:
            found = _convert_assistant_message(entry)
    except RecursionError:
        source.report("a message is nested too deep to follow", "skipped", entry.source.line)
        return []
    time = next(iter(_message_times(entry)), None)
    return [replace(m, source=entry.source, time=m.time or time) for m in found if m.parts]


def _convert_user_message(entry: OpencodeMessage, human: Author) -> Message:
    """What a person, or the harness in their name, said."""
    parts = tuple(part for piece in entry.parts if (part := _convert_part(piece.record)))
    own = tuple(p for piece in entry.parts if not _is_synthetic(piece.record) and (p := _convert_part(piece.record)))
    author = infer_message_author("user", own) if own and entry.info.get("role") == "user" else "harness"
    return Message("user", parts, author=human if author == "human" else author, id=entry.id)


def _is_synthetic(wire: Any) -> bool:
    return value_at(wire, "synthetic") is True


def _summary_text(entry: OpencodeMessage) -> str:
    """The text of a compaction, if the message is one that did not fail."""
    if entry.info.get("summary") is not True or entry.info.get("error"):
        return ""
    return "\n".join(part.text for piece in entry.parts if isinstance(part := _convert_part(piece.record), Text))


def _convert_assistant_message(entry: OpencodeMessage) -> list[Message]:
    """The model's words and calls, and after them the results: both once a step."""
    asked = any(piece.kind in ("step-start", "text", "reasoning") for piece in entry.parts)
    steps = _split_steps(entry.parts)
    messages: list[Message] = []
    for number, step in enumerate(steps, 1):
        id_ = entry.id if number == 1 else f"{entry.id}-{number}"
        bill = next((value_at(piece.record, "tokens") for piece in step if piece.kind == "step-finish"), None)
        said = Message(
            "assistant",
            tuple(part for piece in step if (part := _make_call(piece) or _convert_part(piece.record))),
            author="model" if asked else "harness",
            id=id_,
            model=text_at(entry.info, "modelID") if asked else "",
            usage=_parse_usage(bill or (entry.info.get("tokens") if len(steps) == 1 else None)) if asked else None,
        )
        results = tuple(result for piece in step if (result := _make_result(piece)))
        ends = (parse_time(value_at(_tool_state(piece).get("time"), "end")) for piece in step)
        done = Message("tool", results, author="tool", id=f"{id_}-results", time=max(filter(None, ends), default=None))
        messages += [said, done]
    return messages


def _split_steps(pieces: Iterable[OpencodePart]) -> list[list[OpencodePart]]:
    """Parts by model call; what stands before the first start belongs to it."""
    steps: list[list[OpencodePart]] = [[]]
    for piece in pieces:
        if piece.kind == "step-start" and any(one.kind == "step-start" for one in steps[-1]):
            steps.append([])
        steps[-1].append(piece)
    return steps


# Parts


def _convert_part(wire: Any) -> Part | None:
    """A part that is no call; None for what no model is shown."""
    match wire:
        case {"type": "text", "ignored": True}:
            return None
        case {"type": "text", "text": str(words)} | {"type": "subtask", "prompt": str(words)}:
            return Text(words)
        case {"type": "reasoning", "text": str(words)}:
            return Thinking(words, _find_signature(wire.get("metadata")))
        case {"type": "file", "mime": str(mime), "url": str(url)}:
            return None if mime in INLINED_MIME_TYPES else _parse_image(mime, url)
        case _:
            return None if text_at(wire, "type") in HIDDEN_PART_TYPES else unknown_part(wire)


def _find_signature(metadata: Any) -> str:
    """Each provider keeps the proof of its thinking under a name of its own; newer rows name no provider."""
    for told in map(as_dict, (metadata, *as_dict(metadata).values())):
        for key in ("signature", "redactedData", "reasoningEncryptedContent", "thoughtSignature"):
            if signature := text_at(told, key):
                return signature
    return ""


def _parse_image(mime: str, url: str) -> Image:
    head, _, data = url.partition(",")
    return Image(mime, data) if head.startswith("data:") and head.endswith(";base64") else Image(mime, url=url)


def _tool_state(piece: OpencodePart) -> dict[str, Any]:
    return dict_at(piece.record, "state")


def _make_call(piece: OpencodePart) -> ToolCall | None:
    if not piece.call_id:
        return None
    given = _tool_state(piece).get("input", {})
    return ToolCall(piece.call_id, text_at(piece.record, "tool"), json_text(given))


def _make_result(piece: OpencodePart) -> ToolResult | None:
    """What a call gave, if it came to an end."""
    state = _tool_state(piece)
    metadata = dict_at(state, "metadata")
    match state.get("status") if piece.call_id else None:
        case "completed":
            given = state.get("output")
        case "error":
            # What was interrupted has shown what it had until then.
            shown = metadata.get("output") if metadata.get("interrupted") is True else None
            given = shown if isinstance(shown, str) else state.get("error")
        case _:
            return None
    name = text_at(piece.record, "tool")
    failed = state["status"] == "error" or metadata.get("exit") not in (0, None) or name == "invalid"
    words = given if isinstance(given, str) else "" if given is None else dump_json(given)
    return ToolResult(piece.call_id, (Text(words), *_parse_attachments(state)), is_error=failed, name=name)


def _parse_attachments(state: dict[str, Any]) -> list[ResultPart]:
    return [*result_content(filter(None, map(_convert_part, list_at(state, "attachments"))))]


def _parse_usage(tokens: Any) -> Usage | None:
    if not isinstance(tokens, dict):
        return None
    cache = dict_at(tokens, "cache")
    of = [tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write"), tokens.get("reasoning")]
    given, output, cache_read, cache_write, reasoning = (value if type(value) is int else 0 for value in of)
    # Some versions count thinking beside the output, others as a share of it; the total tells.
    if tokens.get("total") == given + output + cache_read + cache_write + reasoning:
        output += reasoning
    return Usage(given, output, cache_read, cache_write, reasoning=reasoning)
