"""Ids of stored content.

A content id is a hash of a part's canonical form, so two calls whose arguments differ only in spacing have the same id.
But removed content must be restored byte for byte. So the exact id of a call, an unknown part or a result with an
unknown part is a hash of the exact text, with a tag that no content id uses. Any other part has its content id as exact
id. An exact id does not cover the call id, so equal results of two calls are stored once.

People and models copy ids by hand, so a lookup also accepts the first digits, an id without its tag, and an id in
brackets or in a sentence.
"""

import re
from collections.abc import Iterable, Sequence

from thresher.model.identity import ID_VERSION, content_id, hash_strings
from thresher.model.parts import Image, Part, Text, ToolCall, ToolResult, Unknown

DIGITS = 32
SHORT_DIGITS = 16
FEWEST_DIGITS = 8
"""Minimum number of digits in a lookup; fewer would match other content too easily."""


def exact_id(part: Part) -> str:
    """Return the id under which this exact part is stored."""
    match part:
        case ToolCall():
            return hash_strings(("exact call", part.name, part.arguments))
        case Unknown():
            return hash_strings(("exact unknown", part.kind, part.data))
        case ToolResult() if any(isinstance(inner, Unknown) for inner in part.content):
            return hash_strings(("exact result", "error" if part.is_error else "ok", *_result_strings(part)))
        case _:
            return content_id(part)


def compute_summary_id(members: Sequence[str]) -> str:
    """Return the id of a summary, computed from the exact ids of its members."""
    return hash_strings(("fold", *members))


def short_id(id: str) -> str:
    """Return the shortened form that placeholders carry."""
    return id[: len(ID_VERSION) + 1 + SHORT_DIGITS]


_TAGGED = re.compile(rf"(?<!\w){ID_VERSION}:([0-9a-f]+)(?!\w)", re.IGNORECASE)
_BARE = re.compile(r"\W*([0-9a-f]+)\W*", re.IGNORECASE)


def parse_part_id(id: str) -> str | None:
    """Extract an id, or the start of one, from a text; None if there is none."""
    match = _TAGGED.search(id) or _BARE.fullmatch(id)
    if match is None or not FEWEST_DIGITS <= len(match[1]) <= DIGITS:
        return None
    return f"{ID_VERSION}:{match[1].lower()}"


def is_complete_id(id: str) -> bool:
    """Return whether an id has all its digits."""
    return len(id) == len(ID_VERSION) + 1 + DIGITS


def _result_strings(result: ToolResult) -> Iterable[str]:
    for inner in result.content:
        match inner:
            case Text():
                yield from ("text", inner.text)
            case Image():
                yield from ("image", inner.media_type, inner.data, inner.url)
            case Unknown():
                yield from ("unknown", inner.kind, inner.data)
