"""What a store is, and what all stores do alike: find by part of an id, and tell a thing as text."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from thresher.model.identity import ID_VERSION
from thresher.model.parts import Image, Part, ToolCall, ToolResult, Unknown, part_text
from thresher.store.errors import AmbiguousIdError, NotStoredError
from thresher.store.ids import DIGITS, FEWEST_DIGITS, parse_part_id, short_id

StoredContent = Part | tuple[str, ...]
"""A part, or the members of a fold."""


NO_SUMMARIES: Mapping[str, Sequence[str]] = MappingProxyType({})


class ContentStore(Protocol):
    """Where elided parts stay: written before anything is elided, so that nothing is ever lost."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Keep these parts and what folds stand for (the exact ids of their members, in order), all or none.

        What is there already stays as it is. Raises `StoreError`.
        """

    def get(self, id: str) -> StoredContent | None:
        """What has this id, or begins with it; None where nothing does. Raises `AmbiguousIdError`."""

    def has(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are here, each as it was given."""

    def text(self, id: str) -> str:
        """The text that this id stands for. Raises `NotStoredError`, `AmbiguousIdError`."""


def require_unique(targets: set[str], id: str) -> str | None:
    """The one thing that a lookup found, or None; two are an error."""
    if len(targets) > 1:
        raise AmbiguousIdError(f"{id} fits more than one stored part; give more of its {DIGITS} digits")
    return next(iter(targets), None)


def read_stored_text(store: ContentStore, id: str) -> str:
    """The text behind an id: a part's own, or a fold's members one after the other under a line each."""
    found = store.get(id)
    if found is None:
        raise NotStoredError(_not_stored_message(id))
    if isinstance(found, tuple):
        return "\n".join(_format_member(store, member, {parse_part_id(id) or id}) for member in found)
    return get_restorable_text(found)


def get_restorable_text(part: Part) -> str:
    """What a part is given back as: its words; of a picture its data, or its address."""
    return part.data or part.url if isinstance(part, Image) else part_text(part)


def _not_stored_message(id: str) -> str:
    if parse_part_id(id) is None:
        return (
            f"{id!r} holds no part id; give one as a stand-in shows it: {ID_VERSION}: and {FEWEST_DIGITS} to {DIGITS} "
            "of the digits 0-9 a-f"
        )
    return f"nothing is stored under {id}; check the digits, and that THRESHER_HOME is the one it was elided under"


def _format_member(store: ContentStore, id: str, within: set[str]) -> str:
    found = None if id in within else store.get(id)
    if found is None:
        return f"--- {short_id(id)}, {'the fold itself' if id in within else 'not in this store'} ---"
    if isinstance(found, tuple):
        inner = "\n".join(_format_member(store, member, within | {id}) for member in found)
        return f"--- {short_id(id)}, a fold of {len(found)} ---\n{inner}"
    text = part_text(found)
    return f"--- {short_id(id)}, {_kind(found)}, {len(text)} characters ---\n{text}"


def _kind(part: Part) -> str:
    match part:
        case ToolCall():
            return f"call of {_line(part.name)}"
        case ToolResult():
            return "failed result" if part.is_error else "result"
        case Image():
            return _line(part.media_type) or "image"
        case Unknown():
            return _line(part.kind)
        case _:
            return type(part).__name__.lower()


def _line(text: str) -> str:
    return " ".join(text.split())
