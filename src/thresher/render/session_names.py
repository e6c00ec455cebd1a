"""Shorten session ids and paths."""

import re
from collections.abc import Sequence
from pathlib import Path

from thresher.render.text import strip_control_codes

_BLANK = re.compile(r"\s+")


def to_single_line(text: str) -> str:
    """Return the text on one line."""
    return _BLANK.sub(" ", strip_control_codes(text))


def shorten_session_ids(ids: Sequence[str]) -> list[str]:
    """Shorten each id, unless the short form is ambiguous among these sessions."""
    short_ids = [_short(id) for id in ids]
    return [name if short_ids.count(name) == 1 else to_single_line(id) for name, id in zip(short_ids, ids, strict=True)]


def _short(id: str) -> str:
    if len(id) != 36 or id.count("-") != 4:
        return to_single_line(id)
    # A version 7 UUID begins with a timestamp, whose first digits are the same for weeks.
    return to_single_line(id[:13] if id[14] == "7" else id[:8])


def abbreviate_home(path: str) -> str:
    """Replace the home folder in a path by `~`."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith((f"{home}/", f"{home}\\")) else path
