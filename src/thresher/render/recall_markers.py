"""The marks around all that Thresher tells of past sessions.

What an agent reads of this it writes into its own transcript, and the next sync reads that: the marks say that it is
no new work. Text that could open or close one is changed, so nothing inside can step out.
"""

import re
from collections.abc import Iterable

from thresher.render.text import strip_control_codes

RECALL_TAG = "thresher-recall"
CLOSING_TAG = f"</{RECALL_TAG}>"
_TAG = re.compile(r"<(?=/?thresher)", re.IGNORECASE)


def format_opening_tag(ids: Iterable[str]) -> str:
    """The first mark, with the sessions that it is told of."""
    return (
        f"<{RECALL_TAG} "
        f'sessions="{" ".join(neutralize_tags(strip_control_codes(one)).replace(chr(34), "") for one in ids)}">'
    )


def neutralize_tags(text: str) -> str:
    """Text in which nothing opens or closes a mark."""
    return _TAG.sub("‹", text)


def wrap_recalled_text(text: str, ids: Iterable[str]) -> str:
    """A text between marks."""
    return f"{format_opening_tag(ids)}\n{neutralize_tags(strip_control_codes(text))}\n{CLOSING_TAG}"
