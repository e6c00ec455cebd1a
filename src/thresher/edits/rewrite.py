"""Rewrite a part: truncate it, or replace it by a placeholder."""

from collections.abc import Container, Iterator, Sequence
from typing import Any

from msgspec import structs

from thresher.dialects.table import get_native_dialect
from thresher.edits.edit import Drop, Edit, Elision, Replace, Summarize, Truncate
from thresher.edits.placeholder import ID_SLOT, PLACEHOLDER_ARGUMENT
from thresher.edits.truncate import apply_elisions, is_still_json
from thresher.model import Message, Part, Summary, Text, ToolCall, ToolResult, VendorExtras, part_text
from thresher.model.jsontext import dump_json, load_json_object
from thresher.store import exact_id, short_id

MAX_SHOWN_ARGUMENT = 100
"""Maximum length of an argument that a replaced call keeps."""


def rewrite_part(part: Part, edit: Edit) -> Part | None:
    """Apply an accepted edit to a part; return None if the part is removed."""
    match edit:
        case Drop():
            return None
        case Replace():
            return replace_with_placeholder(part, edit.text)
        case Summarize():
            return Summary(edit.text)
        case Truncate():
            if not isinstance(part, Text | ToolCall | ToolResult):
                return part
            after = truncate_part(part, edit.gaps, short_id(exact_id(part)))
            return None if after is None or (isinstance(part, Text) and is_blank_text(after)) else after


def replace_with_placeholder(part: Part, text: str) -> Part:
    """Replace the content of a part by `text`; a result stays a result and a call stays a call."""
    match part:
        case ToolResult():
            return structs.replace(part, content=(Text(text),))
        case ToolCall():
            arguments = {**_short_arguments(part.arguments), PLACEHOLDER_ARGUMENT: text}
            return structs.replace(part, arguments=dump_json(arguments))
        case _:
            return Text(text)


def _short_arguments(arguments: str) -> dict[str, Any]:
    """Return the short arguments of a call, which show its purpose."""
    named = load_json_object(arguments).items()
    return {
        key: value
        for key, value in named
        if isinstance(value, str | int | float) and len(str(value)) <= MAX_SHOWN_ARGUMENT
    }


def truncate_part(part: Text | ToolCall | ToolResult, gaps: tuple[Elision, ...], short: str) -> Part | None:
    """Replace spans of a part's text by their notes, with the part's id; return None if that breaks a call's JSON."""
    before = part_text(part)
    notes = [gap._replace(note=gap.note.replace(ID_SLOT, short)) for gap in gaps]
    text = apply_elisions(before, tuple(notes))
    match part:
        case Text():
            return structs.replace(part, text=text)
        case ToolCall():
            return structs.replace(part, arguments=text) if is_still_json(before, text) else None
        case ToolResult():
            others = tuple([item for item in part.content if not isinstance(item, Text)])
            first = next((item for item in part.content if isinstance(item, Text)), None)
            truncated = structs.replace(first, text=text) if first is not None else Text(text)
            # Anthropic rejects blank text blocks, but not a result without blocks.
            return structs.replace(part, content=(truncated, *others) if text.strip() else others)


def is_blank_text(part: Part) -> bool:
    """Return whether a part is text that contains only whitespace."""
    return isinstance(part, Text | Summary) and not part.text.strip()


def iterate_kept(messages: Sequence[Message], gone: Container[int]) -> Iterator[tuple[int, bool]]:
    """Yield the index of each message that is not `gone`, and whether it must be merged with the one before."""
    last: Message | None = None
    is_after_gap = False
    for index, message in enumerate(messages):
        if index in gone:
            is_after_gap = True
            continue
        yield index, is_after_gap and last is not None and _must_merge(last, message)
        last, is_after_gap = message, False


def _must_merge(before: Message, after: Message) -> bool:
    """Return whether two messages must be merged because their API requires alternating roles."""
    if before.role != after.role or before.role not in ("user", "assistant"):
        return False
    return all(_merges_same_role(message.pocket) for message in (before, after))


def _merges_same_role(pocket: VendorExtras | None) -> bool:
    native = get_native_dialect(pocket.format) if pocket is not None and pocket.shape != "whole" else None
    return native is not None and native.merges_same_role
