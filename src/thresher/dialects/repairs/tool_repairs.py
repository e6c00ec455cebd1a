"""Repairs of tool calls and results: results for open calls, text for unmatched results, ids that every API accepts."""

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from thresher.dialects.content import encode_call_arguments
from thresher.dialects.layout import HistoryIndex
from thresher.dialects.repairs.workspace import (
    MessageDraft,
    RepairWorkspace,
    Violation,
    pair_parts,
    replace_draft_parts,
)
from thresher.model import Message, Place, VendorExtras
from thresher.model.harness_text import format_orphan_label
from thresher.model.parts import Part, Text, Thinking, ToolCall, ToolResult, Unknown

INTERRUPTED = "Error: interrupted, no result was recorded"
"""Text of an added result. Dialects without an error flag add the prefix `Error:` to a text that lacks it."""
REPEATED_RESULT_LABEL = "[another result of a call answered before]"
MAX_CALL_ID_LENGTH = 40
"""Maximum length of an id that all APIs accept."""
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


def repair_misplaced_parts(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Write misplaced calls and unmatched results as text, and remove thinking; then move results to their calls."""
    history_index = HistoryIndex(workspace.history)
    new: dict[Place, tuple[Part, ...]] = {}
    calls: set[int] = set()
    for place in _places(violations):
        part = workspace.part(place)
        if isinstance(part, ToolCall):
            new[place] = (Text(f"[call of {part.name}] {part.arguments}".rstrip()),)
        elif isinstance(part, Thinking):
            new[place] = ()
        elif isinstance(part, ToolResult) and place in history_index.call_by_result:
            calls.add(history_index.call_by_result[place].message)
        elif isinstance(part, ToolResult):
            new[place] = convert_result_to_text(part, format_orphan_label(part.name))
    if not new:
        gather_results(workspace, history_index, calls)
        return
    workspace.record_repairs(
        [violation for violation in violations if violation.place in new], "written as text: not allowed in this role"
    )
    workspace.replace_parts(new)


def convert_unmatched_results(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Write results without an open call as text in a user message."""
    repeats = {violation.place for violation in violations if violation.rule == "repeated-result"}
    new: dict[Place, tuple[Part, ...]] = {}
    for place in _places(violations):
        part = workspace.part(place)
        if isinstance(part, ToolResult):
            label = REPEATED_RESULT_LABEL if place in repeats else format_orphan_label(part.name)
            new[place] = convert_result_to_text(part, label)
    workspace.record_repairs(violations, "written as text: no open call matches")
    _move_to_user_role(workspace, new)
    workspace.replace_parts(new)


def convert_result_to_text(result: ToolResult, lead: str) -> tuple[Part, ...]:
    """Return a result as text, followed by its images."""
    others = [part for part in result.content if not isinstance(part, Text | Unknown)]
    return (Text(f"{lead} {result.text}".rstrip()), *others)


def _move_to_user_role(workspace: RepairWorkspace, new: dict[Place, tuple[Part, ...]]) -> None:
    """Change tool messages with rewritten results to the user role; remove their extras if every part was rewritten."""
    messages: dict[int, Message | None] = {}
    for index in {place.message for place in new}:
        message = workspace.drafts[index].message
        role = "user" if message.role == "tool" else message.role
        whole = all(Place(index, part) in new for part in range(len(message.parts)))
        messages[index] = structs.replace(message, role=role, pocket=None if whole else message.pocket)
    workspace.replace_messages(messages)


def answer_open_calls(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Add a result marked as interrupted to each open call, and move other results directly after their call."""
    history_index = HistoryIndex(workspace.history)
    places = _places(violations)
    gather_results(
        workspace, history_index, {history_index.call_by_result.get(place, place).message for place in places}
    )


def gather_results(workspace: RepairWorkspace, history_index: HistoryIndex, calls: set[int]) -> None:
    """Put all results of each message in `calls` into one message directly after it, in the order of the calls."""
    results = {index: _list_call_results(history_index, index) for index in sorted(calls)}
    taken = {place for places in results.values() for _, place in places if place is not None}
    for index, places in results.items():
        _record_gathering(workspace, index, places)
    drafts: list[MessageDraft] = []
    for index, draft in enumerate(workspace.drafts):
        kept = [pair for number, pair in enumerate(pair_parts(draft)) if Place(index, number) not in taken]
        host = index - 1 if index - 1 in calls and _holds_results(draft, index, results[index - 1]) else None
        if host is not None:
            drafts.append(
                replace_draft_parts(
                    draft, [*_collect_results(workspace, host, results[host], draft.message.pocket), *kept]
                )
            )
        elif len(kept) == len(draft.message.parts):
            drafts.append(draft)
        elif kept:
            drafts.append(replace_draft_parts(draft, kept))
        if index in calls and not _next_holds_results(workspace, index, results[index]):
            drafts.append(_build_result_message(workspace, index, results[index]))
    workspace.drafts = drafts


def _list_call_results(history_index: HistoryIndex, index: int) -> list[tuple[Place, Place | None]]:
    return [
        (piece.place, history_index.result_by_call.get(piece.place))
        for piece in history_index.parts_by_message[index]
        if isinstance(piece.part, ToolCall)
    ]


def _holds_results(draft: MessageDraft, index: int, results: list[tuple[Place, Place | None]]) -> bool:
    """Return True if the message already holds some of the results and has a role that accepts the others."""
    here = any(place is not None and place.message == index for _, place in results)
    return here and draft.message.role in ("user", "tool")


def _next_holds_results(workspace: RepairWorkspace, index: int, results: list[tuple[Place, Place | None]]) -> bool:
    return index + 1 < len(workspace.drafts) and _holds_results(workspace.drafts[index + 1], index + 1, results)


def _record_gathering(workspace: RepairWorkspace, index: int, results: list[tuple[Place, Place | None]]) -> None:
    hosted = _next_holds_results(workspace, index, results)
    for call, result in results:
        if result is None:
            workspace.record_repair("unanswered-call", *call, "added a result marked as interrupted: none was recorded")
        elif not hosted or result.message != index + 1:
            workspace.record_repair("result-place", *result, "moved directly after its call")


def _collect_results(
    workspace: RepairWorkspace, index: int, results: list[tuple[Place, Place | None]], pocket: VendorExtras | None
) -> list[tuple[Part, Place]]:
    draft = workspace.drafts[index]
    gathered: list[tuple[Part, Place]] = []
    for call, result in results:
        call_part = workspace.part(call)
        if result is not None:
            source = workspace.drafts[result.message]
            gathered.append(
                (
                    _without_foreign_parts(workspace.part(result), source.message.pocket, pocket),
                    source.places[result.part],
                )
            )
        elif isinstance(call_part, ToolCall):
            interrupted = ToolResult(call_part.id, (Text(INTERRUPTED),), is_error=True, name=call_part.name)
            gathered.append((interrupted, draft.places[call.part]))
    return gathered


def _without_foreign_parts(part: Part, source: VendorExtras | None, target: VendorExtras | None) -> Part:
    """Remove unknown parts from a result that moves to a message of another dialect."""
    same_format = (source.format if source else None) == (target.format if target else None)
    if same_format or not isinstance(part, ToolResult) or not any(isinstance(inner, Unknown) for inner in part.content):
        return part
    return structs.replace(part, content=tuple([inner for inner in part.content if not isinstance(inner, Unknown)]))


def _build_result_message(
    workspace: RepairWorkspace, index: int, results: list[tuple[Place, Place | None]]
) -> MessageDraft:
    """Return an existing message that holds exactly these results, otherwise a new one."""
    sources = {place.message for _, place in results if place is not None}
    if len(sources) == 1 and all(place is not None for _, place in results):
        (source,) = sources
        draft = workspace.drafts[source]
        if len(draft.message.parts) == len(results) and draft.message.role in ("user", "tool"):
            return draft
    calling = workspace.drafts[index]
    native = calling.message.pocket
    pocket = None if native is None or native.format in workspace.one_result_dialects else VendorExtras(native.format)
    parts, places = zip(*_collect_results(workspace, index, results, pocket), strict=True)
    time = next((workspace.drafts[source_index].message.time for source_index in sorted(sources)), None)
    return MessageDraft(Message("tool", parts, author="tool", time=time, pocket=pocket), calling.origin, places)


def use_plain_calls(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Replace each violating result's call by a plain function call, so that call and result are of the same kind."""
    history_index = HistoryIndex(workspace.history)
    calls = [history_index.call_by_result[violation.place] for violation in violations]
    placed_calls = [(place, workspace.part(place)) for place in calls]
    workspace.record_repairs(violations, "call and result changed to the same kind")
    workspace.replace_parts({place: (plain_call(call),) for place, call in placed_calls if isinstance(call, ToolCall)})


def plain_call(call: ToolCall) -> ToolCall:
    """Return the call as a plain function call without vendor extras."""
    return ToolCall(call.id, call.name, encode_call_arguments(call))


def replace_call_ids(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Replace missing, repeated or invalid ids in calls and their results."""
    history_index = HistoryIndex(workspace.history)
    names = _CallIdGenerator(workspace)
    new: dict[Place, tuple[Part, ...]] = {}
    messages: dict[int, Message | None] = {}
    rules: dict[Place, set[str]] = {}
    for violation in violations:
        rules.setdefault(violation.place, set()).add(violation.rule)
    for place, broken in rules.items():
        part = workspace.part(place)
        if isinstance(part, ToolResult):
            messages[place.message] = structs.replace(workspace.drafts[place.message].message, pocket=None)
            workspace.record_repair("missing-id", *place, "emitted with the id of its call")
        elif isinstance(part, ToolCall):
            keep = broken == {"missing-id"} and bool(part.id)
            call_id = part.id if keep else names.generate(part.id or part.name)
            new[place] = (ToolCall(call_id, part.name, part.arguments, _without_missing_id_note(part.pocket)),)
            workspace.record_repair(min(broken), *place, f"the call now has the id `{call_id}`")
            result = history_index.result_by_call.get(place)
            if result is not None and not keep:
                new[result] = (structs.replace(workspace.part(result), call_id=call_id),)
                workspace.record_repair(min(broken), *result, f"now answers the call `{call_id}`")
    workspace.replace_messages(messages)
    workspace.replace_parts(new)


class _CallIdGenerator:
    """Generator of unique call ids that every API accepts."""

    def __init__(self, workspace: RepairWorkspace) -> None:
        ids = (part for draft in workspace.drafts for part in draft.message.parts if isinstance(part, ToolCall))
        self._taken = {part.id for part in ids}
        self._counts: dict[str, int] = {}

    def generate(self, wanted: str) -> str:
        stem = _UNSAFE.sub("_", wanted)[:MAX_CALL_ID_LENGTH] or "call"
        name = stem
        while name in self._taken:
            self._counts[stem] = count = self._counts.get(stem, 1) + 1
            name = f"{stem[: MAX_CALL_ID_LENGTH - len(str(count)) - 1]}-{count}"
        self._taken.add(name)
        return name


def _without_missing_id_note(pocket: VendorExtras | None) -> VendorExtras | None:
    """Return the vendor extras without the layout note of a missing id."""
    if pocket is None:
        return None
    shape = " ".join(word for word in pocket.shape.split() if word not in ("no-id", "nameless"))
    return pocket if shape == pocket.shape else structs.replace(pocket, shape=shape)


def _places(violations: Iterable[Violation]) -> list[Place]:
    return list(dict.fromkeys(violation.place for violation in violations))
