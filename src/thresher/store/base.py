"""The `ContentStore` protocol, and lookup and formatting shared by all stores."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from thresher.model.identity import ID_VERSION
from thresher.model.parts import Image, Part, ToolCall, ToolResult, Unknown, part_text
from thresher.store.errors import AmbiguousIdError, NotStoredError
from thresher.store.ids import DIGITS, FEWEST_DIGITS, parse_part_id, short_id

StoredContent = Part | tuple[str, ...]
"""A part, or the ids of a summary's members."""


NO_SUMMARIES: Mapping[str, Sequence[str]] = MappingProxyType({})


class ContentStore(Protocol):
    """Storage of removed content. Callers store content before they remove it, so that nothing is lost."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Store parts and summaries in one transaction.

        `folds` maps the id of each summary to the exact ids of its members, in order. Existing content is not
        overwritten. Raises `StoreError`.
        """

    def get(self, id: str) -> StoredContent | None:
        """Return the content whose id equals or starts with this id, or None. Raises `AmbiguousIdError`."""

    def has(self, ids: Iterable[str]) -> set[str]:
        """Return the given ids that match stored content, in the given form."""

    def text(self, id: str) -> str:
        """Return the stored text with this id. Raises `NotStoredError` or `AmbiguousIdError`."""


def require_unique(targets: set[str], id: str) -> str | None:
    """Return the only match of a lookup, or None; raise `AmbiguousIdError` for several."""
    if len(targets) > 1:
        raise AmbiguousIdError(f"`{id}` matches several stored parts; give more of its {DIGITS} digits")
    return next(iter(targets), None)


def read_stored_text(store: ContentStore, id: str) -> str:
    """Return the stored text of a part, or of a summary's members, each after a header line."""
    content = store.get(id)
    if content is None:
        raise NotStoredError(_not_stored_message(id))
    if isinstance(content, tuple):
        return "\n".join(_format_member(store, member, {parse_part_id(id) or id}) for member in content)
    return get_restorable_text(content)


def get_restorable_text(part: Part) -> str:
    """Return the restorable text of a part; for an image, its data or, without data, its URL."""
    return part.data or part.url if isinstance(part, Image) else part_text(part)


def _not_stored_message(id: str) -> str:
    if parse_part_id(id) is None:
        return (
            f"{id!r} contains no part id; expected an id as in a placeholder: `{ID_VERSION}:` and {FEWEST_DIGITS} to "
            f"{DIGITS} of the digits 0-9 a-f"
        )
    return (
        f"nothing is stored under `{id}`; check the digits, and that THRESHER_HOME is the folder that was set when the "
        "content was removed"
    )


def _format_member(store: ContentStore, id: str, ancestors: set[str]) -> str:
    content = None if id in ancestors else store.get(id)
    if content is None:
        return f"--- {short_id(id)}, {'the summary itself' if id in ancestors else 'not in this store'} ---"
    if isinstance(content, tuple):
        inner = "\n".join(_format_member(store, member, ancestors | {id}) for member in content)
        return f"--- {short_id(id)}, a summary of {len(content)} ---\n{inner}"
    text = part_text(content)
    return f"--- {short_id(id)}, {_describe_part(content)}, {len(text)} characters ---\n{text}"


def _describe_part(part: Part) -> str:
    match part:
        case ToolCall():
            return f"call of {_to_line(part.name)}"
        case ToolResult():
            return "failed result" if part.is_error else "result"
        case Image():
            return _to_line(part.media_type) or "image"
        case Unknown():
            return _to_line(part.kind)
        case _:
            return type(part).__name__.lower()


def _to_line(text: str) -> str:
    return " ".join(text.split())
