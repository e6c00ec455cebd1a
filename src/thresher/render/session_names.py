"""Short forms of session ids and paths."""

import re
from collections.abc import Sequence
from pathlib import Path

from thresher.render.text import strip_control_codes

_BLANK = re.compile(r"\s+")


def to_single_line(text: str) -> str:
    """Return the text on one line."""
    return _BLANK.sub(" ", strip_control_codes(text))


def shorten_session_ids(ids: Sequence[str]) -> list[str]:
    """Enough of each id to name it: none of them is the beginning of another one here."""
    short = [_short(one) for one in ids]
    return [name if short.count(name) == 1 else to_single_line(one) for name, one in zip(short, ids, strict=True)]


def _short(one: str) -> str:
    if len(one) != 36 or one.count("-") != 4:
        return to_single_line(one)
    # The first digits of a UUID of version 7 are the minute.
    return to_single_line(one[:13] if one[14] == "7" else one[:8])


def abbreviate_home(path: str) -> str:
    """A path with the home folder as `~`."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path == home or path.startswith((f"{home}/", f"{home}\\")) else path
