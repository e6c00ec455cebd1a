"""What a part becomes when it is cut, or something stands in for it."""

from typing import Any

from msgspec import structs

from thresher.edits.cutting import cut, still_json
from thresher.edits.edit import Cut, Drop, Edit, Fold, Gap, Stub
from thresher.edits.standin import ID, LEFT_OUT
from thresher.model import Message, Part, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.jsontext import dump, load_fields
from thresher.store import exact_id, short_id

SHORT = 100
"""Characters of an argument that a stand-in for its call still shows."""


def changed(part: Part, edit: Edit) -> Part | None:
    """What an edit that was taken makes of a part; None where nothing is left."""
    match edit:
        case Drop():
            return None
        case Stub():
            return stand_in(part, edit.text)
        case Fold():
            return Summary(edit.text)
        case Cut():
            if not isinstance(part, Text | ToolCall | ToolResult):
                return part
            after = cut_part(part, edit.gaps, short_id(exact_id(part)))
            return None if after is None or (isinstance(part, Text) and blank(after)) else after


def stand_in(part: Part, text: str) -> Part:
    """The part with `text` in its place: a result stays a result, a call stays a call."""
    match part:
        case ToolResult():
            return structs.replace(part, content=(Text(text),))
        case ToolCall():
            return structs.replace(part, arguments=dump({**_short(part.arguments), LEFT_OUT: text}))
        case _:
            return Text(text)


def _short(arguments: str) -> dict[str, Any]:
    """The arguments that are short: what a call is about can still be read."""
    named = load_fields(arguments).items()
    return {key: value for key, value in named if isinstance(value, str | int | float) and len(str(value)) <= SHORT}


def cut_part(part: Text | ToolCall | ToolResult, gaps: tuple[Gap, ...], short: str) -> Part | None:
    """The part with gaps in its text, their notes naming its id; None where JSON would break."""
    before = part_text(part)
    text = cut(before, tuple([Gap(gap.start, gap.stop, gap.note.replace(ID, short)) for gap in gaps]))
    match part:
        case Text():
            return structs.replace(part, text=text)
        case ToolCall():
            return structs.replace(part, arguments=text) if still_json(before, text) else None
        case ToolResult():
            others = tuple([item for item in part.content if not isinstance(item, Text)])
            first = next((item for item in part.content if isinstance(item, Text)), None)
            said = structs.replace(first, text=text) if first is not None else Text(text)
            return structs.replace(part, content=(said, *others))


def blank(part: Part) -> bool:
    """Whether a part is text without a word."""
    return isinstance(part, Text | Summary) and not part.text.strip()


def joins(before: Message, after: Message) -> bool:
    """Whether two messages must become one now that nothing stands between them: Gemini wants roles to take turns."""
    pockets = (before.pocket, after.pocket)
    native = all(pocket is not None and pocket.format == "gemini" and pocket.shape != "whole" for pocket in pockets)
    return native and before.role == after.role and before.role in ("user", "assistant")
