"""A fifth dialect, as a third-party package would register it: an API of cards.

`{"cards": [{"from": "person", "says": [{"text": "hi"}]}]}`; a call is `{"call": id, "tool": name, "with": {…}}`, a
result `{"result": id, "text": "…"}`. The API rejects tabs in texts, in addition to what most APIs reject.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from thresher.dialects import Dialect, Emission
from thresher.dialects.body import get_request_fields, make_request_history, should_emit_body, split_request_body
from thresher.dialects.content import decode_call_arguments, infer_message_author
from thresher.dialects.extras import (
    get_extra_fields,
    is_native,
    is_opaque_message,
    keep_extra_fields,
    load_opaque_value,
    make_opaque_message,
    merge_extra_fields,
)
from thresher.dialects.layout import DialectLayout, RuleFinding, arrange_in_order
from thresher.dialects.losses import ConversionLosses
from thresher.dialects.repairs.steps import RepairStep
from thresher.dialects.repairs.workspace import RepairWorkspace, Violation
from thresher.dialects.rules import shared
from thresher.dialects.rules.rule import LegalityRule
from thresher.model import History, Message, Part, Role, Text, ToolCall, ToolResult, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.message import Usage
from thresher.model.parts import Summary, Unknown

NAME = "cards"
ROLES: dict[str, Role] = {"person": "user", "model": "assistant", "tools": "tool", "host": "system"}
SENDERS = {role: sender for sender, role in ROLES.items()}


def _parse(value: Any) -> History:
    rows, rest = split_request_body(NAME, value, "cards")
    return make_request_history(NAME, [_parse_card(row) for row in rows], rest)


def _parse_card(row: Any) -> Message:
    if not isinstance(row, dict) or row.get("from") not in ROLES or not isinstance(row.get("says"), list):
        return make_opaque_message(NAME, row)
    role = ROLES[row["from"]]
    parts = tuple([_parse_piece(piece) for piece in row["says"]])
    rest = {key: value for key, value in row.items() if key not in ("from", "says")}
    extras = VendorExtras(NAME, dump_json(rest) if rest else "")
    return Message(role, parts, author=infer_message_author(role, parts), pocket=extras)


def _parse_piece(piece: Any) -> Part:
    found: Part | None = None
    if isinstance(piece, dict):
        match piece:
            case {"text": str(text)} if "result" not in piece:
                found = Text(text)
            case {"call": str(call_id), "tool": str(name), "with": dict(arguments)}:
                found = ToolCall(call_id, name, dump_json(arguments))
            case {"result": str(call_id), "text": str(text)}:
                found = ToolResult(call_id, (Text(text),), is_error=piece.get("failed") is True)
        found = keep_extra_fields(found, piece, _emit_piece(found, ConversionLosses()) or {}, NAME) if found else None
    return found or Unknown("piece", dump_json(piece), VendorExtras(NAME))


def _emit(history: History, body: bool | None) -> Emission:
    losses = ConversionLosses()
    rows = [row for message in history for row in _emit_card(message, losses)]
    if not should_emit_body(history, body, losses, tools=history.tools):
        return Emission(rows, losses.to_problems())
    fields = get_request_fields(history, NAME, losses)
    if history.tools:
        fields["tools"] = load_json(history.tools)
    return Emission({**fields, "cards": rows}, losses.to_problems())


def _emit_card(message: Message, losses: ConversionLosses) -> Iterator[Any]:
    native = is_native(message, NAME)
    if native and is_opaque_message(message, NAME):
        yield load_opaque_value(message)
        return
    pieces = []
    for part in message.parts:
        piece = _emit_piece(part, losses)
        if isinstance(part, Unknown) and native:
            pieces.append(load_json(part.data))
        elif piece is not None and (native or not (isinstance(part, Text | Summary) and not part.text)):
            pieces.append(merge_extra_fields(piece, get_extra_fields(part, NAME)))
    if native or pieces:
        yield merge_extra_fields({"from": SENDERS[message.role], "says": pieces}, get_extra_fields(message, NAME))


def _emit_piece(part: Part, losses: ConversionLosses) -> dict[str, Any] | None:
    match part:
        case Text() | Summary():
            return {"text": part.text}
        case ToolCall():
            return {"call": part.id, "tool": part.name, "with": decode_call_arguments(part, losses)}
        case ToolResult():
            failed = {"failed": True} if part.is_error else {}
            return {"result": part.call_id, "text": part.text, **failed}
    losses.add("a part that is not text", "left out")
    return None


def _sniff(value: Any) -> int:
    if isinstance(value, dict):
        return 3 if isinstance(value.get("cards"), list) else 0
    return (
        3 if isinstance(value, list) and value and all(isinstance(row, dict) and "says" in row for row in value) else 0
    )


def _check_tabs(view: DialectLayout) -> Iterator[RuleFinding]:
    """Find texts with tabs."""
    for row in view.rows if any(not row.is_opaque for row in view.rows) else ():
        for piece in row.parts:
            if isinstance(piece.part, Text | Summary) and "\t" in piece.part.text:
                yield RuleFinding(piece.place.message, piece.place.part, "the text holds a tab")


def _replace_tabs(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    workspace.record_repairs(violations, "a space put for each tab")
    texts = {one.place: workspace.part(one.place) for one in violations}
    workspace.replace_parts(
        {
            place: (structs.replace(part, text=part.text.replace("\t", " ")),)
            for place, part in texts.items()
            if isinstance(part, Text | Summary)
        }
    )


def _read_usage(fields: Mapping[str, Any]) -> Usage | None:
    return Usage(fields["cards_in"], fields["cards_out"]) if "cards_in" in fields else None


DIALECT = Dialect(
    NAME,
    "Cards",
    _parse,
    _emit,
    _sniff,
    messages_field="cards",
    arrange=arrange_in_order,
    rules=(
        shared.LONE_SURROGATE_IN_OBJECTS,
        shared.ARGUMENTS_JSON,
        shared.MISPLACED_PART,
        shared.ORPHAN_RESULT,
        shared.REPEATED_RESULT,
        shared.UNANSWERED_CALL,
        shared.RESULT_PLACE,
        shared.MISSING_ID,
        LegalityRule("tab", _check_tabs, RepairStep(95, _replace_tabs)),
    ),
    vendor="card house",
    prompt_fields=frozenset({"tools"}),
    read_usage=_read_usage,
)
