"""Search queries: their filters, and a parser for words, phrases and prefixes.

Plain words are alternatives, and a session with more of them ranks higher: a query in plain language must not fail
because one word is missing. `"Quoted"` words form a phrase, and `word*` is a prefix. `require` and `exclude` apply
to single messages, as the words do. A query matches text. Paths match only with `file` or in the field `paths`.

Quotes and the asterisk are the only syntax, so every query is valid.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from msgspec import Struct

from thresher.errors import OptionError
from thresher.memory.records import TEXT_KINDS, TextKind

MAX_QUERY_LENGTH = 4000
"""Maximum length of a query; the rest is ignored, since a longer query is usually pasted text."""
MOST_WORDS = 48
_STOP = (
    "a about after all also am an and any are as at be been before but by can could did do does for from had has have "
    "how i if in into is it its just me my no not of on or our out please should so some than that the their them then "
    "there these they this those to up us was we were what when where which who why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())
"""Words that most messages contain. A query uses them only if it contains nothing else."""

Rank = Literal["best", "matches"]
"""`best`: by score of the best messages. `matches`: by number of matching messages, then by time."""
SearchField = TextKind | Literal["paths"]
SEARCH_FIELDS: tuple[SearchField, ...] = (*TEXT_KINDS, "paths")
DEFAULT_SEARCH_FIELDS: tuple[SearchField, ...] = (
    "human",
    "agent",
    "thinking",
    "summary",
    "annotation",
    "input",
    "commands",
    "edits",
)
"""Fields that a search covers by default."""

_QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”')
_PREFIX = re.compile(r"(?<!\S)([^\s*]+)\*(?!\S)")
_AGO = re.compile(r"(\d+)\s*(h|d|w|m|y)[a-z]*")
_UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}


class SearchFilters(TypedDict, total=False):
    """Fields of `Query` as `Memory.search` accepts them."""

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
    """A parsed query with its filters."""

    typed: str = ""
    """Complete text of the query as typed."""
    words: str = ""
    """Plain words, without phrases and prefixes."""
    phrases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    regex: str = ""
    fields: tuple[SearchField, ...] = DEFAULT_SEARCH_FIELDS
    project: str = ""
    """Any part of the path of the session's working directory."""
    agent: str = ""
    branch: str = ""
    since: datetime | None = None
    until: datetime | None = None
    role: Literal["", "user", "assistant"] = ""
    file: str = ""
    """Path of a file, or a suffix of the path. Only sessions that touch the file match. Without words, the hits are the
    calls that touch it."""
    subagents: bool = True
    """False to exclude the sessions of sub-agents."""
    everything: bool = False
    """True to include what is excluded by default: recalled text, noise and the current session."""
    current: str = ""
    """Id of the session that runs the search; it is excluded with its family."""
    cutoff: bool = False
    """True to exclude all messages of a session up to its last recalled text, or the last message that announces a
    recall in one of a few fixed phrases. This loses original text and exists for comparisons only."""
    rank: Rank = "best"

    @property
    def full_text(self) -> str:
        """Text of the query as typed, or its words if it was not typed."""
        return self.typed or self.words


def parse_query(text: str) -> Query:
    """Parse the words, phrases and prefixes of a query."""
    text = typed = text[:MAX_QUERY_LENGTH].replace("\0", " ")
    phrases = tuple(phrase for match in _QUOTED.finditer(text) if (phrase := (match[1] or match[2] or "").strip()))
    text = _QUOTED.sub(" ", text)
    prefixes = tuple(dict.fromkeys(_PREFIX.findall(text)))
    return Query(typed=typed, words=" ".join(_PREFIX.sub(" ", text).split()), phrases=phrases, prefixes=prefixes)


def is_stop_word(word: str) -> bool:
    """Return whether a word, stemmed or not, is a stop word."""
    return word in _STEMMED_STOP_WORDS


def content_words(words: Iterable[str], most: int = MOST_WORDS) -> list[str]:
    """Return at most `most` unique words, without stop words and single ASCII characters if other words remain."""
    unique = list(dict.fromkeys(words))
    long_enough = (word for word in unique if len(word) > 1 or not word.isascii())
    significant = [word for word in long_enough if word not in _STEMMED_STOP_WORDS]
    return (significant or unique)[:most]


_STEMMED_STOP_WORDS = STOP_WORDS | {"ani", "befor", "doe", "ha", "pleas", "thi", "wa", "whi"}


def parse_date_or_age(text: str, now: datetime, *, end: bool = False) -> datetime:
    """Parse a date (`2026-03-01`), a time or an age (`7d`, `2 weeks`, `today`, `yesterday`).

    With `end`, a date means the end of that day, so `--until 2026-03-01` includes it.
    """
    normalized = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": 0, "yesterday": 1}.get(normalized)
    if days is not None:
        return midnight - timedelta(days=days - (1 if end else 0))
    if match := _AGO.fullmatch(normalized):
        return now - timedelta(days=min(int(match[1]), 100_000) * _UNITS[match[2]])
    try:
        time = datetime.fromisoformat(normalized.upper())
        if end and len(normalized) == 10:
            time += timedelta(days=1)
        time = time if time.tzinfo else time.replace(tzinfo=now.tzinfo) if now.tzinfo == UTC else time.astimezone()
        time.astimezone(UTC)  # a date at the edge of the calendar has none
    except (ValueError, OverflowError):
        raise OptionError(f"invalid date `{text}`; use for example `2026-03-01`, `7d`, `2w` or `today`") from None
    return time
