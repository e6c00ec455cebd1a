"""Repairs specific to the Responses API."""

from collections.abc import Sequence

from msgspec import structs

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.layout import HistoryIndex
from thresher.dialects.openai_responses.codec import NAME
from thresher.dialects.repairs.steps import RepairStep
from thresher.dialects.repairs.tool_repairs import plain_call
from thresher.dialects.repairs.workspace import RepairWorkspace, Violation
from thresher.model import Message, Place, VendorExtras
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, ToolCall, ToolResult

SHELL = "local_shell"


def get_tool_kind(part: Part, *, native: bool) -> str:
    """Return the kind of tool that a call or result is encoded for."""
    notes = part.pocket.shape.split() if native and part.pocket and part.pocket.format == NAME else ()
    return "custom" if "custom" in notes else SHELL if SHELL in notes else "function"


def match_result_kinds(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Change each result to the kind of its call; if the result's message does not allow this, make the call plain."""
    history_index = HistoryIndex(workspace.history)
    new: dict[Place, tuple[Part, ...]] = {}
    foreign: set[int] = set()
    for violation in violations:
        call = history_index.call_by_result[violation.place]
        call_part, result = workspace.part(call), workspace.part(violation.place)
        message = workspace.drafts[violation.message].message
        if not isinstance(call_part, ToolCall) or not isinstance(result, ToolResult):
            continue
        if _accepts_kind(message):
            kind = get_tool_kind(call_part, native=_is_native(workspace.drafts[call.message].message))
            new[violation.place] = (_with_kind(result, kind),)
            foreign |= set() if message.pocket else {violation.message}
        else:
            new[call] = (plain_call(call_part),)
    workspace.record_repairs(violations, "call and result changed to the same kind")
    workspace.replace_parts(new)
    for index in foreign:
        native = structs.replace(workspace.drafts[index].message, pocket=VendorExtras(NAME))
        workspace.drafts[index] = workspace.drafts[index]._replace(message=native)


def _accepts_kind(message: Message) -> bool:
    only_results = all(isinstance(part, ToolResult) for part in message.parts)
    return _is_native(message) or (message.pocket is None and only_results)


def _is_native(message: Message) -> bool:
    return message.pocket is not None and message.pocket.format == NAME


def _with_kind(result: ToolResult, kind: str) -> ToolResult:
    pocket = result.pocket if result.pocket and result.pocket.format == NAME else VendorExtras(NAME)
    words = [word for word in pocket.shape.split() if word not in ("custom", SHELL, "by-id")]
    shape = " ".join(words if kind == "function" else [kind, *words])
    return structs.replace(result, pocket=structs.replace(pocket, shape=shape))


def remove_item_ids(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove repeated item ids, because an id is optional."""
    new: dict[Place, tuple[Part, ...]] = {}
    messages: dict[int, Message | None] = {}
    for violation in violations:
        if violation.part is None:
            message = workspace.drafts[violation.message].message
            messages[violation.message] = structs.replace(message, pocket=_without_item_id(message))
        else:
            part = workspace.part(violation.place)
            new[violation.place] = (structs.replace(part, pocket=_without_item_id(part)),)
    workspace.record_repairs(violations, "item id removed")
    workspace.replace_messages(messages)
    workspace.replace_parts(new)


def _without_item_id(owner: Part | Message) -> VendorExtras | None:
    rest = {key: value for key, value in get_extra_fields(owner, NAME).items() if key != "id"}
    return owner.pocket and structs.replace(owner.pocket, fields=dump_json(rest) if rest else "")


RESULT_KINDS = RepairStep(69, match_result_kinds)
ITEM_IDS = RepairStep(150, remove_item_ids)
