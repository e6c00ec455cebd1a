"""Tags that enclose all recalled text.

An agent writes what it reads into its own transcript, which the next sync reads. The tags mark this text as
recalled. Tags inside the text are changed, so that they cannot close the block early.
"""

import re
from collections.abc import Iterable

from thresher.render.text import strip_control_codes

RECALL_TAG = "thresher-recall"
CLOSING_TAG = f"</{RECALL_TAG}>"
_TAG = re.compile(r"<(?=/?thresher)", re.IGNORECASE)


def format_opening_tag(ids: Iterable[str]) -> str:
    """Return the opening tag with the ids of the recalled sessions."""
    clean = (neutralize_tags(strip_control_codes(id)).replace('"', "") for id in ids)
    return f'<{RECALL_TAG} sessions="{" ".join(clean)}">'


def neutralize_tags(text: str) -> str:
    """Change the start of each tag in a text, so that it neither opens nor closes a block."""
    return _TAG.sub("‹", text)


def wrap_recalled_text(text: str, ids: Iterable[str]) -> str:
    """Enclose a text in recall tags."""
    return f"{format_opening_tag(ids)}\n{neutralize_tags(strip_control_codes(text))}\n{CLOSING_TAG}"
