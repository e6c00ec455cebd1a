"""Preserve fields that have no attribute in parts and messages, and merge them into the emitted values."""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import structs

from thresher.model import Message, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Part, Unknown

PartT = TypeVar("PartT", bound=Part)


def keep_extra_fields(part: PartT, original: Mapping[str, Any], fresh: Mapping[str, Any], name: str) -> PartT | None:
    """Preserve the fields of `original` that the encoded part `fresh` lacks; None if the two contradict each other."""
    rest = _find_extra_fields(original, fresh)
    if not rest:
        return part if rest is not None else None
    return structs.replace(part, pocket=VendorExtras(name, dump_json(rest), shape=get_layout_note(part, name)))


def _find_extra_fields(original: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any] | None:
    rest: dict[str, Any] = {}
    seen = 0
    for key, value in original.items():
        if key not in fresh:
            rest[key] = value
            continue
        seen += 1
        known = fresh[key]
        if isinstance(known, dict) and isinstance(value, dict):
            inner = _find_extra_fields(value, known)
            if inner is None:
                return None
            if inner:
                rest[key] = inner
        elif type(known) is not type(value) or known != value:
            return None
    return rest if seen == len(fresh) else None


def get_extra_fields(part: Part | Message, name: str) -> dict[str, Any]:
    """Return the fields that dialect `name` preserved for a part or message."""
    pocket = part.pocket
    if pocket is None or pocket.format != name or not pocket.fields:
        return {}
    fields: dict[str, Any] = load_json(pocket.fields)
    return fields


def merge_extra_fields(fresh: dict[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `rest` into `fresh` recursively; `fresh` wins conflicts."""
    for key, value in rest.items():
        if key not in fresh:
            fresh[key] = value
        elif isinstance(value, dict) and isinstance(fresh[key], dict):
            merge_extra_fields(fresh[key], value)
    return fresh


def get_layout_note(part: Part | Message, name: str) -> str:
    """Return the layout note (`VendorExtras.shape`) of a part or message; empty if dialect `name` left none."""
    return part.pocket.shape if part.pocket and part.pocket.format == name else ""


def make_layout_note(name: str, *words: str) -> VendorExtras | None:
    """Return vendor extras with these words as the layout note; None if all words are empty."""
    shape = " ".join(word for word in words if word)
    return VendorExtras(name, shape=shape) if shape else None


def is_native(message: Message, name: str) -> bool:
    """Return True if the message was parsed from this dialect."""
    return message.pocket is not None and message.pocket.format == name


def make_opaque_message(name: str, value: Any) -> Message:
    """Preserve a value that does not match its dialect as an opaque message, emitted unchanged."""
    kind = str(value.get("type") or value.get("role") or "") if isinstance(value, dict) else type(value).__name__
    return Message(
        "user", (Unknown(kind, dump_json(value)),), author="harness", pocket=VendorExtras(name, shape="whole")
    )


def is_opaque_message(message: Message, name: str) -> bool:
    """Return True if the message was preserved whole and is unchanged."""
    parts = message.parts
    return get_layout_note(message, name) == "whole" and len(parts) == 1 and isinstance(parts[0], Unknown)


def get_unusual_role(message: Message, name: str) -> str:
    """Return the role that the message had in dialect `name`, if it differs from the usual one; otherwise ""."""
    if message.pocket is None or '"role":' not in message.pocket.fields:
        return ""
    role = get_extra_fields(message, name).get("role")
    return role if isinstance(role, str) else ""


def is_nonconforming_message(message: Message, name: str) -> bool:
    """Return True if the message does not match its dialect's documentation."""
    return is_opaque_message(message, name) and message.author == "harness"


def load_opaque_value(message: Message) -> Any:
    """Decode the value of an opaque message."""
    part = message.parts[0]
    return load_json(part.data) if isinstance(part, Unknown) else None
