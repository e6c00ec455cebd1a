"""What is asked: words, phrases, and what must or must not be there.

Plain words are alternatives, and the more of them a session has, the better: a question in plain language must
never find nothing because one of its words is missing. `"In quotes"` the words must stand so; `word*` is the
beginning of a word; `require` and `exclude` speak of single messages, as the words do. Everything matches text: ids
and paths only where a field says so.

Nothing in a query is syntax but the quotes and the star, so no query is wrong.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from msgspec import Struct

from thresher.errors import OptionError
from thresher.memory.records import TEXT_KINDS, TextKind

MAX_QUERY_LENGTH = 4000
"""Characters of a query that are looked at: nobody types more, and a pasted page starts with what it is about."""
MOST_WORDS = 48
_STOP = (
    "a about after all also am an and any are as at be been before but by can could did do does for from had has have "
    "how i if in into is it its just me my no not of on or our out please should so some than that the their them then "
    "there these they this those to up us was we were what when where which who why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())
"""Words that are in every message; they count only where a query has no others."""

Rank = Literal["best", "matches"]
"""`best`: by how well a session's best messages fit. `matches`: by how many match, then by time."""
SearchField = TextKind | Literal["paths"]
SEARCH_FIELDS: tuple[SearchField, ...] = (*TEXT_KINDS, "paths")
DEFAULT_SEARCH_FIELDS: tuple[SearchField, ...] = ("human", "agent", "thinking", "summary", "input", "commands", "edits")
"""Fields that are looked into unless others are named."""

_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”')
_PREFIX = re.compile(r"(?<!\S)([^\s*]+)\*(?!\S)")
_AGO = re.compile(r"(\d+)\s*(h|d|w|m|y)[a-z]*")
_UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}


class SearchFilters(TypedDict, total=False):
    """Fields of `Query` as `Memory.search` takes them."""

    phrases: Sequence[str]
    prefixes: Sequence[str]
    require: str | Sequence[str]
    exclude: str | Sequence[str]
    regex: str
    fields: SearchField | Sequence[SearchField]
    project: str
    agent: str
    branch: str
    since: str | datetime | None
    until: str | datetime | None
    role: Literal["", "user", "assistant"]
    file: str
    subagents: bool
    everything: bool
    current: str
    cutoff: bool
    rank: Rank


class Query(Struct, frozen=True, kw_only=True):
    """A question, and what it is asked of."""

    typed: str = ""
    """All of it as a person typed it."""
    words: str = ""
    """The plain words; phrases and beginnings are taken out of it."""
    phrases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    regex: str = ""
    fields: tuple[SearchField, ...] = DEFAULT_SEARCH_FIELDS
    project: str = ""
    """A part of the working directory."""
    agent: str = ""
    branch: str = ""
    since: datetime | None = None
    until: datetime | None = None
    role: Literal["", "user", "assistant"] = ""
    file: str = ""
    """Only sessions that touch this file: a path, or the end of one. Without words, the calls that do."""
    subagents: bool = False
    everything: bool = False
    """What is left out by default is let in: recalls, noise, sub-agents, the current session."""
    current: str = ""
    """The session that asks: it and its family are left out."""
    cutoff: bool = False
    """The first design's rule: messages up to a session's last recall are dropped. It drops honest work that came
    before a recall and keeps the recall's own results after it, so it is here to compare with, no more."""
    rank: Rank = "best"

    @property
    def full_text(self) -> str:
        """All that is asked in words."""
        return self.typed or self.words


def parse_query(text: str) -> Query:
    """The words, phrases and beginnings in a text as a person types it."""
    text = typed = text[:MAX_QUERY_LENGTH].replace("\0", " ")
    phrases = tuple(phrase for found in _QUOTED.finditer(text) if (phrase := (found[1] or found[2] or "").strip()))
    text = _QUOTED.sub(" ", text)
    prefixes = tuple(dict.fromkeys(_PREFIX.findall(text)))
    return Query(typed=typed, words=" ".join(_PREFIX.sub(" ", text).split()), phrases=phrases, prefixes=prefixes)


def is_stop_word(word: str) -> bool:
    """Whether a word, as it is or as a stemmer leaves it, says nothing."""
    return word in _STEMMED_STOP_WORDS


def content_words(words: Iterable[str], most: int = MOST_WORDS) -> list[str]:
    """Those words that say something, each once, in order; all of them where none does."""
    every = list(dict.fromkeys(words))
    kept = [
        word for word in every if word not in _STEMMED_STOP_WORDS and (len(word) > 1 or not word.isascii())
    ] or every
    return kept[:most]


_STEMMED_STOP_WORDS = STOP_WORDS | {"ani", "befor", "doe", "ha", "pleas", "thi", "wa", "whi"}


def parse_date_or_age(text: str, now: datetime, *, end: bool = False) -> datetime:
    """A date (`2026-03-01`), a time, or how long ago (`7d`, `2 weeks`, `today`, `yesterday`).

    With `end`, a day means its end: `--until 2026-03-01` has all of that day.
    """
    told = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": 0, "yesterday": 1}.get(told)
    if days is not None:
        return midnight - timedelta(days=days - (1 if end else 0))
    if found := _AGO.fullmatch(told):
        return now - timedelta(days=min(int(found[1]), 100_000) * _UNITS[found[2]])
    try:
        time = datetime.fromisoformat(told.upper())
    except ValueError:
        raise OptionError(f"`{text}` is no date; give one like 2026-03-01, 7d, 2w, today") from None
    if end and len(told) == 10:
        time += timedelta(days=1)
    return time if time.tzinfo else time.replace(tzinfo=now.tzinfo) if now.tzinfo == UTC else time.astimezone()
