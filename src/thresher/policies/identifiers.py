"""Names that a text holds: of things in code, and of files. Few words say them, and nothing but themselves will do.

A name is a word with an underscore, a digit or a capital inside, a hash, or a path whose last part has an extension:
what nobody writes right from memory of the gist.
"""

import re
from collections import Counter
from collections.abc import Iterable

from thresher.model import History, Message, Part, Text, ToolCall, part_text
from thresher.model.jsontext import dump_json, load_json_object
from thresher.model.message_cache import cached_per_message

_IDENTIFIER = re.compile(
    r"(?<![\w.])(?:[\w.@+-]+/)+[\w.@+-]*\w\.[A-Za-z]\w{0,9}(?![\w/])"
    r"|\b(?=\w*[a-z])[A-Za-z]\w*[A-Z_]\w*"
    r"|\b[A-Z][A-Z0-9]*_\w+"
    r"|\b[A-Za-z]\w{2,}\d\w*"
    r"|\b(?=[a-f]*\d)[\da-f]{7,40}\b"
)
MAX_IDENTIFIER_CHARS = 60
"""Characters of a name; what is longer is data."""
MAX_PATHS = 8
"""A listing of files is soon had again."""


@cached_per_message
def find_identifiers(message: Message) -> tuple[tuple[str, ...], ...]:
    """The names in each part of a message, each once, in the order of their first use."""
    return tuple([_match_identifiers(_searchable_text(part)) for part in message.parts])


def _searchable_text(part: Part) -> str:
    """What a part says; of a call what it was given, without the names of its arguments."""
    if not isinstance(part, ToolCall):
        return part_text(part)
    given = load_json_object(part.arguments)
    return (
        "\n".join(one if isinstance(one, str) else dump_json(one) for one in given.values())
        if given
        else part.arguments
    )


def _match_identifiers(text: str) -> tuple[str, ...]:
    return tuple([name for name in dict.fromkeys(_IDENTIFIER.findall(text)) if len(name) <= MAX_IDENTIFIER_CHARS])


class IdentifierSelector:
    """What is told of names in one history: each is told once, the ones that come up most first."""

    def __init__(self, history: History) -> None:
        """Count in how many parts each stands; those in people's and agents' own words are told already."""
        self._part_counts = Counter(
            name for message in history for names in find_identifiers(message) for name in names
        )
        self._selected: set[str] = set()
        for message in history:
            for part, names in zip(message.parts, find_identifiers(message), strict=True):
                if isinstance(part, Text):
                    self._selected.update(names)

    def select(self, names: Iterable[str], most: int) -> str:
        """At most so many of the names, of those that were not told yet."""
        new = [name for name in names if name not in self._selected]
        paths = [name for name in new if "/" in name][:MAX_PATHS]
        words = sorted((name for name in new if "/" not in name), key=lambda name: -self._part_counts[name])
        told = [*paths, *words][:most]
        self._selected.update(told)
        return " ".join(told)
