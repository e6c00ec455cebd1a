"""Identifiers and file paths in a text, which a summary must quote exactly to be useful.

An identifier is a hash, a path whose last segment has an extension, or a word that contains an underscore, a digit or a
capital letter after its first character. A paraphrase would lose identifiers.

A search tries every position. So it skips long runs of characters without a separator, such as encoded data: in each
of them, a path or a word would be tried again and again up to the end of the run.
"""

import re
from collections import Counter
from collections.abc import Iterable

from thresher.model import History, Message, Part, Text, ToolCall, part_text
from thresher.model.jsontext import dump_json, load_json_object
from thresher.model.message_cache import cached_per_message

MAX_RUN_CHARS = 200
"""Maximum length of a run of the characters of identifiers and paths; longer runs are encoded data."""
_IDENTIFIER = re.compile(
    rf"(?<![\w.@+/-])[\w.@+/-]{{{MAX_RUN_CHARS + 1}}}[\w.@+/-]*+"
    r"|(?<![\w.])(?:[\w.@+-]++/)+[\w.@+-]*\w\.[A-Za-z]\w{0,9}(?![\w/])"
    r"|\b(?=\w*[a-z])[A-Za-z]\w*[A-Z_]\w*"
    r"|\b[A-Z][A-Z0-9]*_\w+"
    r"|\b[A-Za-z]\w{2,}\d\w*"
    r"|\b(?=[a-f]*\d)[\da-f]{7,40}\b"
)
MAX_IDENTIFIER_CHARS = 60
"""Maximum length of an identifier; longer matches are usually encoded data."""
MAX_PATHS = 8
"""Maximum paths to select at once; a few are enough, because listing files again is cheap."""


@cached_per_message
def find_identifiers(message: Message) -> tuple[tuple[str, ...], ...]:
    """Return the distinct identifiers of each part of a message, in order of first use."""
    return tuple([_match_identifiers(_searchable_text(part)) for part in message.parts])


def _searchable_text(part: Part) -> str:
    """Return the text of a part; for a call, return the values of its arguments."""
    if not isinstance(part, ToolCall):
        return part_text(part)
    values = load_json_object(part.arguments).values()
    texts = [value if isinstance(value, str) else dump_json(value) for value in values]
    return "\n".join(texts) if texts else part.arguments


def _match_identifiers(text: str) -> tuple[str, ...]:
    return tuple([name for name in dict.fromkeys(_IDENTIFIER.findall(text)) if len(name) <= MAX_IDENTIFIER_CHARS])


class IdentifierSelector:
    """Selects identifiers to list in a history's summaries and placeholders: each once, paths first."""

    def __init__(self, history: History) -> None:
        """Count the parts that contain each identifier; exclude those in text parts, because text stays visible."""
        self._part_counts = Counter(
            name for message in history for names in find_identifiers(message) for name in names
        )
        self._selected: set[str] = set()
        for message in history:
            for part, names in zip(message.parts, find_identifiers(message), strict=True):
                if isinstance(part, Text):
                    self._selected.update(names)

    def select(self, names: Iterable[str], limit: int) -> str:
        """Return up to `limit` names that were not selected before, separated by spaces."""
        new = [name for name in names if name not in self._selected]
        paths = [name for name in new if "/" in name][:MAX_PATHS]
        words = sorted((name for name in new if "/" not in name), key=lambda name: -self._part_counts[name])
        selected = [*paths, *words][:limit]
        self._selected.update(selected)
        return " ".join(selected)
