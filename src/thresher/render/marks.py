"""The marks around all that Thresher tells of past sessions.

What an agent reads of this it writes into its own transcript, and the next sync reads that: the marks say that it is
no new work. Text that could open or close one is changed, so nothing inside can step out.
"""

import re
from collections.abc import Iterable

from thresher.render.words import clean

MARK = "thresher-recall"
CLOSING = f"</{MARK}>"
_TAG = re.compile(r"<(?=/?thresher)", re.IGNORECASE)


def opening(ids: Iterable[str]) -> str:
    """The first mark, with the sessions that it is told of."""
    return f'<{MARK} sessions="{" ".join(harmless(clean(one)).replace(chr(34), "") for one in ids)}">'


def harmless(text: str) -> str:
    """Text in which nothing opens or closes a mark."""
    return _TAG.sub("‹", text)


def marked_text(text: str, ids: Iterable[str]) -> str:
    """A text between marks."""
    return f"{opening(ids)}\n{harmless(clean(text))}\n{CLOSING}"
