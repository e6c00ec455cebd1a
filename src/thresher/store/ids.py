"""The ids of what is kept, and how they are read back.

A content id is of a canonical form: two argument texts with different spacing share one. What a stand-in names
must come back byte for byte, so such parts get an id of their exact text instead, under a tag of its own that
no content id uses. The ids that pair calls with results stay outside here too: two equal results are one text.

People and models copy ids by hand, so an id is also found by its first digits, without its tag, and in the
brackets or the whole sentence that it was copied with.
"""

import re
from collections.abc import Iterable, Sequence

from thresher.model.identity import ID_VERSION, content_id
from thresher.model.parts import Image, Part, Text, ToolCall, ToolResult, Unknown

DIGITS = 32
SHORT_DIGITS = 16
FEWEST_DIGITS = 8
"""Fewer digits than these are too likely to fit something else."""


def exact_id(part: Part) -> str:
    """The id under which this very part comes back."""
    match part:
        case ToolCall():
            return _hash_strings(("exact call", part.name, part.arguments))
        case Unknown():
            return _hash_strings(("exact unknown", part.kind, part.data))
        case ToolResult() if any(isinstance(inner, Unknown) for inner in part.content):
            return _hash_strings(("exact result", "error" if part.is_error else "ok", *_result_strings(part)))
        case _:
            return content_id(part)


def compute_summary_id(members: Sequence[str]) -> str:
    """The id of a fold, from the exact ids of what it stands for."""
    return _hash_strings(("fold", *members))


def short_id(id: str) -> str:
    """The form that stand-ins carry."""
    return id[: len(ID_VERSION) + 1 + SHORT_DIGITS]


_TAGGED = re.compile(rf"(?<!\w){ID_VERSION}:([0-9a-f]+)(?!\w)", re.IGNORECASE)
_BARE = re.compile(r"\W*([0-9a-f]+)\W*", re.IGNORECASE)


def parse_part_id(id: str) -> str | None:
    """The id, or the beginning of one, that a text names; None where it names none."""
    found = _TAGGED.search(id) or _BARE.fullmatch(id)
    if found is None or not FEWEST_DIGITS <= len(found[1]) <= DIGITS:
        return None
    return f"{ID_VERSION}:{found[1].lower()}"


def is_complete_id(id: str) -> bool:
    """Whether an id has all its digits."""
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


def _hash_strings(pieces: Iterable[str]) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along

    digest = blake2b(digest_size=DIGITS // 2)
    for piece in pieces:
        data = piece.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"{ID_VERSION}:{digest.hexdigest()}"
