"""Decide which text and parts the items of a Responses input can represent."""

from typing import Any

from thresher.dialects.losses import ConversionLosses
from thresher.model import Role
from thresher.model.parts import Image, Summary, Text, Unknown


def join_reasoning_text(item: dict[str, Any]) -> str:
    """Return the summary of a reasoning item, or its full text, which open models include, if there is no summary."""
    for pieces in (item.get("summary"), item.get("content")):
        texts = [piece.get("text") for piece in pieces or () if isinstance(piece, dict)]
        if found_texts := [text for text in texts if isinstance(text, str)]:
            return "\n\n".join(found_texts)
    return ""


def is_convertible_to_items(part: Text | Summary | Image | Unknown, role: Role, losses: ConversionLosses) -> bool:
    """Return True if this API can represent a part of a foreign message; otherwise, record content that is lost."""
    if isinstance(part, Unknown):
        losses.add_foreign_part(part)
        return False
    if isinstance(part, Image) and role in ("assistant", "system"):
        losses.add(f"image in a message of the {role}", "removed")
        return False
    return isinstance(part, Image) or bool(part.text)
