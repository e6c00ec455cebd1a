"""Tags that enclose all recalled text.

An agent writes what it reads into its own transcript, which the next sync reads. The tags mark this text as
recalled. Tags inside the text are changed, so that they cannot close the block early. A model may also read a bracket
that is escaped, wide or followed by invisible characters as a tag, so these forms are changed as well.
"""

import re
from collections.abc import Iterable

from thresher.render.text import strip_control_codes

RECALL_TAG = "thresher-recall"
CLOSING_TAG = f"</{RECALL_TAG}>"
_INVISIBLE = "[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]{0,8}"
_BRACKET = r"(?:[<＜﹤]|&(?:lt|#0{0,8}60|#x0{0,8}3c);|\\{1,8}u003c|\\{1,8}x3c)"
_TAG = re.compile(_BRACKET + r"(?=[\W_]{0,16}" + _INVISIBLE.join("thresher") + ")", re.IGNORECASE)
_UNSAFE_IN_ID = re.compile(r"[^A-Za-z0-9._:-]+")
MAX_ID_CHARS = 64


def format_opening_tag(ids: Iterable[str]) -> str:
    """Return the opening tag with the ids of the recalled sessions."""
    clean = (_UNSAFE_IN_ID.sub("_", id)[:MAX_ID_CHARS] for id in ids)
    return f'<{RECALL_TAG} sessions="{" ".join(clean)}">'


def neutralize_tags(text: str) -> str:
    """Change the start of each tag in a text, so that it neither opens nor closes a block."""
    return _TAG.sub("‹", text)


def wrap_recalled_text(text: str, ids: Iterable[str]) -> str:
    """Enclose a text in recall tags."""
    return f"{format_opening_tag(ids)}\n{neutralize_tags(strip_control_codes(text))}\n{CLOSING_TAG}"
