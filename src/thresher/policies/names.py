"""Names that a text holds: of things in code, and of files. Few words say them, and nothing but themselves will do.

A name is a word with an underscore, a digit or a capital inside, a hash, or a path whose last part has an extension:
what nobody writes right from memory of the gist.
"""

import re
from collections import Counter
from collections.abc import Iterable

from thresher.model import History, Message, Part, Text, ToolCall, part_text
from thresher.model.jsontext import dump, load_fields
from thresher.model.memo import per_message

_NAME = re.compile(
    r"(?<![\w.])(?:[\w.@+-]+/)+[\w.@+-]*\w\.[A-Za-z]\w{0,9}(?![\w/])"
    r"|\b(?=\w*[a-z])[A-Za-z]\w*[A-Z_]\w*"
    r"|\b[A-Z][A-Z0-9]*_\w+"
    r"|\b[A-Za-z]\w{2,}\d\w*"
    r"|\b(?=[a-f]*\d)[\da-f]{7,40}\b"
)
LONGEST = 60
"""Characters of a name; what is longer is data."""
MOST_PATHS = 8
"""A listing of files is soon had again."""


@per_message
def names_in(message: Message) -> tuple[tuple[str, ...], ...]:
    """The names in each part of a message, each once, in the order of their first use."""
    return tuple([_names(_words(part)) for part in message.parts])


def _words(part: Part) -> str:
    """What a part says; of a call what it was given, without the names of its arguments."""
    if not isinstance(part, ToolCall):
        return part_text(part)
    given = load_fields(part.arguments)
    return "\n".join(one if isinstance(one, str) else dump(one) for one in given.values()) if given else part.arguments


def _names(text: str) -> tuple[str, ...]:
    return tuple([name for name in dict.fromkeys(_NAME.findall(text)) if len(name) <= LONGEST])


class Names:
    """What is told of names in one history: each is told once, the ones that come up most first."""

    def __init__(self, history: History) -> None:
        """Count in how many parts each stands; those in people's and agents' own words are told already."""
        self._count = Counter(name for message in history for names in names_in(message) for name in names)
        self._told: set[str] = set()
        for message in history:
            for part, names in zip(message.parts, names_in(message), strict=True):
                if isinstance(part, Text):
                    self._told.update(names)

    def tell(self, names: Iterable[str], most: int) -> str:
        """At most so many of the names, of those that were not told yet."""
        new = [name for name in names if name not in self._told]
        paths = [name for name in new if "/" in name][:MOST_PATHS]
        words = sorted((name for name in new if "/" not in name), key=lambda name: -self._count[name])
        told = [*paths, *words][:most]
        self._told.update(told)
        return " ".join(told)
