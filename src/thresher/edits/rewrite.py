"""What a part becomes when it is cut, or something stands in for it."""

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
"""Characters of an argument that a stand-in for its call still shows."""


def rewrite_part(part: Part, edit: Edit) -> Part | None:
    """What an edit that was taken makes of a part; None where nothing is left."""
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
    """The part with `text` in its place: a result stays a result, a call stays a call."""
    match part:
        case ToolResult():
            return structs.replace(part, content=(Text(text),))
        case ToolCall():
            return structs.replace(
                part, arguments=dump_json({**_short_arguments(part.arguments), PLACEHOLDER_ARGUMENT: text})
            )
        case _:
            return Text(text)


def _short_arguments(arguments: str) -> dict[str, Any]:
    """The arguments that are short: what a call is about can still be read."""
    named = load_json_object(arguments).items()
    return {
        key: value
        for key, value in named
        if isinstance(value, str | int | float) and len(str(value)) <= MAX_SHOWN_ARGUMENT
    }


def truncate_part(part: Text | ToolCall | ToolResult, gaps: tuple[Elision, ...], short: str) -> Part | None:
    """The part with gaps in its text, their notes naming its id; None where JSON would break."""
    before = part_text(part)
    text = apply_elisions(
        before, tuple([Elision(gap.start, gap.stop, gap.note.replace(ID_SLOT, short)) for gap in gaps])
    )
    match part:
        case Text():
            return structs.replace(part, text=text)
        case ToolCall():
            return structs.replace(part, arguments=text) if is_still_json(before, text) else None
        case ToolResult():
            others = tuple([item for item in part.content if not isinstance(item, Text)])
            first = next((item for item in part.content if isinstance(item, Text)), None)
            said = structs.replace(first, text=text) if first is not None else Text(text)
            return structs.replace(part, content=(said, *others))


def is_blank_text(part: Part) -> bool:
    """Whether a part is text without a word."""
    return isinstance(part, Text | Summary) and not part.text.strip()


def iterate_kept(messages: Sequence[Message], gone: Container[int]) -> Iterator[tuple[int, bool]]:
    """Yield each message that is left when some are `gone`, and whether it must be merged with the one before."""
    last: Message | None = None
    is_after_gap = False
    for index, message in enumerate(messages):
        if index in gone:
            is_after_gap = True
            continue
        yield index, is_after_gap and last is not None and _must_merge(last, message)
        last, is_after_gap = message, False


def _must_merge(before: Message, after: Message) -> bool:
    """Whether two messages must be merged now that nothing is left between them: some APIs want roles to alternate."""
    if before.role != after.role or before.role not in ("user", "assistant"):
        return False
    return all(_merges_same_role(message.pocket) for message in (before, after))


def _merges_same_role(pocket: VendorExtras | None) -> bool:
    native = get_native_dialect(pocket.format) if pocket is not None and pocket.shape != "whole" else None
    return native is not None and native.merges_same_role
