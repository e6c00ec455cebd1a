"""Whole messages, and what they say: empty ones, those of a role, long ones, words that match a pattern.

A user's patterns are searched with the `regex` package (extra `patterns`), because it can stop: a pattern that
backtracks without end would hang the standard library for good. Matches go until none is left, so that a second
run finds nothing; where each removal makes a new match, time after time, the text is left alone.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, get_args

from thresher.edits import Drop, Edit, Elision, Pin, Replace, Truncate, apply_elisions, elide_to_limit
from thresher.errors import OptionError
from thresher.model import History, Message, Part, Place, Summary, Text, ToolResult
from thresher.model.message import Role
from thresher.policies.base import check_count, check_words

POLICY_NAME = "messages"
ROLES: tuple[str, ...] = get_args(Role)
MIN_LENGTH = 100
"""The least that `longer_than` may be: what says that something was cut needs most of it."""
PATTERN_TIMEOUT_SECONDS = 2.0
"""How long one pattern may search one text."""
MAX_ROUNDS = 8
"""How often matches are removed from what the last removal left."""
MAX_CACHED_CHARS = 200_000
"""Longer texts are searched anew each time, so that the cache never holds on to them."""


@dataclass(frozen=True, kw_only=True)
class FilterMessages:
    """Drop or shorten messages by what they are.

    `FilterMessages(empty=True)` drops blank texts; `FilterMessages(roles=("system",))` all of a role, pinned or not,
    but never the human's current words, nor a summary, which speaks for every role;
    `FilterMessages(longer_than=10_000)` keeps head and tail of longer texts and results;
    `FilterMessages(patterns=(r"(?m)^DEBUG .*\\n?",))` removes what matches.
    """

    empty: bool = False
    """Whether texts without a word go."""
    roles: tuple[str, ...] = ()
    """Roles whose messages go: system, user, assistant, tool."""
    longer_than: int | None = None
    """Characters that a text or a result may have, what says that it was cut included."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; what they match goes from texts and results."""

    def __post_init__(self) -> None:
        check_words(POLICY_NAME, ROLES, roles=self.roles)
        check_words(POLICY_NAME, patterns=self.patterns)
        if self.longer_than is not None:
            check_count(POLICY_NAME, longer_than=self.longer_than)
            if self.longer_than < MIN_LENGTH:
                raise OptionError(
                    f"policy `{POLICY_NAME}`: `longer_than` is {MIN_LENGTH} or more, not {self.longer_than}"
                )
        for pattern in self.patterns:
            _compile_pattern(pattern)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose: what is empty, then whole messages, then parts of texts; oldest first."""
        places = [
            (Place(i, j), message) for i, message in enumerate(history.messages) for j in range(len(message.parts))
        ]
        if self.empty:
            for place, _ in places:
                if _is_blank(history.part(place)):
                    yield Drop(history.occurrence(place), POLICY_NAME, "empty")
        for place, message in places:
            if message.role in self.roles and not isinstance(history.part(place), Summary):
                yield Drop(history.occurrence(place), POLICY_NAME, f"role {message.role}", over=_liftable_pin(message))
        if self.patterns or self.longer_than is not None:
            for place, message in places:
                if message.role not in self.roles and message.role != "system":
                    yield from self._shorten_part(history, place, message)

    def _shorten_part(self, history: History, place: Place, message: Message) -> Iterator[Edit]:
        part = history.part(place)
        if not isinstance(part, Text | ToolResult):
            return
        text = part.text
        matched = _find_matches(self.patterns, text) if self.patterns else ()
        gaps, why = matched, "pattern"
        if self.longer_than is not None and len(text) - _total_length(matched) > self.longer_than:
            gaps = _map_to_original(matched, elide_to_limit(apply_elisions(text, matched), self.longer_than))
            why = f"longer than {self.longer_than:,}"
        over = _liftable_pin(message) if matched else ""
        if isinstance(part, ToolResult) and gaps and not apply_elisions(text, gaps).strip():
            yield Replace(history.occurrence(place), POLICY_NAME, why, over=over)
        elif gaps:
            yield Truncate(history.occurrence(place), POLICY_NAME, why, gaps, over=over)


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _liftable_pin(message: Message) -> Pin:
    """The pin that an explicit option lifts; the human's own words have none of these."""
    if message.role == "system":
        return "system"
    return "injection" if message.role == "user" and message.author in ("harness", "recall") else ""


def _total_length(gaps: tuple[Elision, ...]) -> int:
    return sum(gap.stop - gap.start for gap in gaps)


def _find_matches(patterns: tuple[str, ...], text: str) -> tuple[Elision, ...]:
    return (
        _find_matches_cached(patterns, text)
        if len(text) <= MAX_CACHED_CHARS
        else _find_matches_repeatedly(patterns, text)
    )


def _find_matches_repeatedly(patterns: tuple[str, ...], text: str) -> tuple[Elision, ...]:
    """Everything that matches, also in what is left when matches are gone; nothing where that has no end."""
    gaps: tuple[Elision, ...] = ()
    for _ in range(MAX_ROUNDS):
        found = _find_matches_once(patterns, apply_elisions(text, gaps) if gaps else text)
        if not found:
            return gaps
        gaps = _map_to_original(gaps, found)
    return ()


_find_matches_cached = lru_cache(maxsize=2048)(_find_matches_repeatedly)


def _find_matches_once(patterns: tuple[str, ...], text: str) -> tuple[Elision, ...]:
    spans: list[Elision] = []
    for pattern in patterns:
        try:
            found = [
                match.span() for match in _compile_pattern(pattern).finditer(text, timeout=PATTERN_TIMEOUT_SECONDS)
            ]
        except TimeoutError as error:
            raise OptionError(
                f"policy `{POLICY_NAME}`: the pattern {pattern!r} searched {len(text):,} characters for more than "
                f"{PATTERN_TIMEOUT_SECONDS:g} seconds; make it simpler: no repetition inside a repetition"
            ) from error
        spans += [Elision(start, stop) for start, stop in found if start < stop]
    return _merge_ranges(spans)


def _map_to_original(gaps: tuple[Elision, ...], later: tuple[Elision, ...]) -> tuple[Elision, ...]:
    """Gaps of a text that has gaps already, told as gaps of the whole text."""
    if not gaps:
        return later
    removed = [0, *accumulate(gap.stop - gap.start for gap in gaps)]
    seams = [gap.start - before for gap, before in zip(gaps, removed, strict=False)]
    moved = [
        Elision(
            gap.start + removed[bisect_right(seams, gap.start)],
            gap.stop + removed[bisect_right(seams, gap.stop - 1)],
            gap.note,
        )
        for gap in later
    ]
    return _merge_ranges([*gaps, *moved])


def _merge_ranges(gaps: list[Elision]) -> tuple[Elision, ...]:
    merged: list[Elision] = []
    for gap in sorted(gaps):
        if merged and gap.start <= merged[-1].stop:
            last = merged[-1]
            merged[-1] = Elision(last.start, max(last.stop, gap.stop), last.note or gap.note)
        else:
            merged.append(gap)
    return tuple(merged)


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> Any:
    try:
        import regex  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError(
            f"policy `{POLICY_NAME}`: `patterns` needs the regex package, which can stop a pattern that runs away: "
            "pip install 'thresher[patterns]'"
        ) from error
    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise OptionError(
            f"policy `{POLICY_NAME}`: {pattern!r} is no pattern: {error.msg} at character {error.pos}"
        ) from error
    except RecursionError as error:
        raise OptionError(f"policy `{POLICY_NAME}`: the pattern {pattern[:40]!r}… is nested too deep") from error
