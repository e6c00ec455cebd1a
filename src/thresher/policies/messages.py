"""The policy `messages`: remove empty messages, messages of a role, long text, and text that matches a pattern.

The length of a message is that of its texts, arguments and results together. Thinking and images do not count, because
they cannot be truncated.

User patterns run in the `regex` package (extra `patterns`), because it has a timeout: a pattern with catastrophic
backtracking would block the `re` module. Matches are removed until none is left, so that the policy is idempotent. If
matches are left after `MAX_ROUNDS` rounds, patterns remove nothing from the text.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from math import inf
from typing import Any, get_args

from thresher.edits import (
    Drop,
    Edit,
    Elision,
    Pin,
    Replace,
    Truncate,
    apply_elisions,
    elide_arguments_to_limit,
    elide_to_limit,
)
from thresher.errors import OptionError
from thresher.model import History, Message, Part, Place, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.api_errors import is_api_error
from thresher.model.message import Role
from thresher.model.text import find_even_length
from thresher.model.turns import is_injected
from thresher.policies.argument_patterns import find_argument_matches
from thresher.policies.base import check_count, check_words

POLICY_NAME = "messages"
ROLES: tuple[str, ...] = get_args(Role)
MIN_LENGTH = 100
"""Minimum of `longer_than`, which includes the truncation note."""
PATTERN_TIMEOUT_SECONDS = 2.0
"""Timeout of one pattern on one text."""
TOOL_SHARE = 0.25
"""Share of a long message that arguments and results get, even if texts need more."""
MAX_ROUNDS = 8
"""Maximum rounds of removing matches."""
MIN_REPLACED_CHARS = 1_000
"""Minimum length of a result that a placeholder replaces if a pattern matches all of it. A shorter result becomes
empty, because a placeholder might have more tokens."""
MAX_CACHED_CHARS = 200_000
"""Maximum length of a text whose matches are cached, because the cache keeps the text in memory."""


@dataclass(frozen=True, kw_only=True)
class FilterMessages:
    """Drop or truncate messages by content, role, length or pattern.

    `FilterMessages(empty=True)` drops blank text. `FilterMessages(roles=("system",))` drops all messages of a role,
    pinned or not, except the human's current message and summaries. `FilterMessages(longer_than=10_000)` keeps the
    head and the tail of the longest parts of a longer message.
    `FilterMessages(patterns=(r"(?m)^DEBUG .*\\n?",))` removes matches.
    """

    empty: bool = False
    """True if blank text is dropped."""
    api_errors: bool = False
    """True if messages are dropped that an agent wrote only because a request to the model failed."""
    roles: tuple[str, ...] = ()
    """Roles to drop: system, user, assistant, tool."""
    longer_than: int | None = None
    """Maximum characters of a message: its texts, arguments and results, including truncation notes."""
    patterns: tuple[str, ...] = ()
    """Regular expressions whose matches are removed from texts, arguments and results."""

    def __post_init__(self) -> None:
        check_words(POLICY_NAME, ROLES, roles=self.roles)
        check_words(POLICY_NAME, patterns=self.patterns)
        if self.longer_than is not None:
            check_count(POLICY_NAME, longer_than=self.longer_than)
            if self.longer_than < MIN_LENGTH:
                least, got = MIN_LENGTH, self.longer_than
                raise OptionError(f"policy `{POLICY_NAME}`: `longer_than` must be {least} or more, got {got}")
        for pattern in self.patterns:
            _compile_pattern(pattern)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first: blank text, then whole messages, then spans of text."""
        messages = enumerate(history.messages)
        places = [(Place(i, j), message) for i, message in messages for j in range(len(message.parts))]
        if self.empty:
            for place, _ in places:
                if _is_blank(history.part(place)):
                    yield Drop(history.occurrence(place), POLICY_NAME, "empty")
        if self.api_errors:
            for place, message in places:
                if is_api_error(message):
                    yield Drop(history.occurrence(place), POLICY_NAME, "API error")
        for place, message in places:
            if message.role in self.roles and not isinstance(history.part(place), Summary):
                target, over = history.occurrence(place), _liftable_pin(message)
                yield Drop(target, POLICY_NAME, f"role {message.role}", over, removes_human_words=True)
        if self.patterns or self.longer_than is not None:
            for index, message in enumerate(history.messages):
                if message.role not in self.roles and message.role != "system":
                    yield from self._shorten_message(history, index)

    def _shorten_message(self, history: History, index: int) -> Iterator[Edit]:
        """Propose spans to remove: matches, and the middle of the longest parts until the whole message fits."""
        kinds = (Text, ToolCall, ToolResult)
        parts = [(j, part) for j, part in enumerate(history[index].parts) if isinstance(part, kinds)]
        matches = [self._find_part_matches(part) for _, part in parts]
        pairs = zip(parts, matches, strict=True)
        lengths = [len(part_text(part)) - _total_length(matched) for (_, part), matched in pairs]
        text_limit, tool_limit = self._find_part_limits([isinstance(part, Text) for _, part in parts], lengths)
        for (j, part), matched, length in zip(parts, matches, lengths, strict=True):
            limit = text_limit if isinstance(part, Text) else tool_limit
            if matched or length > limit:
                yield from self._shorten_part(history, Place(index, j), part, matched, limit)

    def _find_part_limits(self, are_texts: list[bool], lengths: list[int]) -> tuple[float, float]:
        """Return the maximum length of a text, and of arguments or a result; texts get most of the room."""
        if self.longer_than is None or sum(lengths) <= self.longer_than:
            return inf, inf
        tools = [length for length, is_text in zip(lengths, are_texts, strict=True) if not is_text]
        texts = [length for length, is_text in zip(lengths, are_texts, strict=True) if is_text]
        reserved = min(sum(tools), int(self.longer_than * TOOL_SHARE))
        text_limit = max(MIN_LENGTH, find_even_length(texts, self.longer_than - reserved))
        room = self.longer_than - sum(min(length, text_limit) for length in texts)
        return text_limit, max(MIN_LENGTH, find_even_length(tools, room))

    def _find_part_matches(self, part: Text | ToolCall | ToolResult) -> tuple[Elision, ...]:
        if not self.patterns:
            return ()
        if isinstance(part, ToolCall):
            return find_argument_matches(part.arguments, partial(_find_matches, self.patterns))
        return _find_matches(self.patterns, part.text)

    def _shorten_part(
        self,
        history: History,
        place: Place,
        part: Text | ToolCall | ToolResult,
        matched: tuple[Elision, ...],
        limit: float,
    ) -> Iterator[Edit]:
        text, gaps, why = part_text(part), matched, "pattern"
        if limit != inf:
            shorten = elide_arguments_to_limit if isinstance(part, ToolCall) else elide_to_limit
            cuts = shorten(apply_elisions(text, matched), int(limit))
            gaps = _map_to_original(matched, cuts)
            why = f"message longer than {self.longer_than:,}" if cuts else why
        over = _liftable_pin(history[place.message]) if matched else ""
        is_replaced = isinstance(part, ToolResult) and len(text) >= MIN_REPLACED_CHARS
        if is_replaced and gaps and not apply_elisions(text, gaps).strip():
            yield Replace(history.occurrence(place), POLICY_NAME, why, over=over)
        elif gaps:
            yield Truncate(history.occurrence(place), POLICY_NAME, why, gaps, over=over)


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _liftable_pin(message: Message) -> Pin:
    """Return the pin that an explicit option lifts, or an empty string; no option lifts the pin of human text."""
    if message.role == "system":
        return "system"
    return "injection" if is_injected(message) else ""


def _total_length(gaps: tuple[Elision, ...]) -> int:
    return sum(gap.stop - gap.start for gap in gaps)


def _find_matches(patterns: tuple[str, ...], text: str) -> tuple[Elision, ...]:
    find = _find_matches_cached if len(text) <= MAX_CACHED_CHARS else _find_matches_repeatedly
    return find(patterns, text)


def _find_matches_repeatedly(patterns: tuple[str, ...], text: str) -> tuple[Elision, ...]:
    """Find all matches, also those that only appear after a removal; return none if `MAX_ROUNDS` are not enough."""
    gaps: tuple[Elision, ...] = ()
    for _ in range(MAX_ROUNDS):
        found = find_pattern_matches(patterns, apply_elisions(text, gaps) if gaps else text)
        if not found:
            return gaps
        gaps = _map_to_original(gaps, found)
    return ()


_find_matches_cached = lru_cache(maxsize=2048)(_find_matches_repeatedly)


def find_pattern_matches(
    patterns: tuple[str, ...], text: str, *, timeout: float = PATTERN_TIMEOUT_SECONDS
) -> tuple[Elision, ...]:
    """Find the matches of all patterns in a text; raise `OptionError` on a timeout."""
    spans: list[Elision] = []
    for pattern in patterns:
        matches = _compile_pattern(pattern)
        try:
            found = [match.span() for match in matches.finditer(text, timeout=timeout)]
        except TimeoutError as error:
            raise OptionError(
                f"policy `{POLICY_NAME}`: pattern {pattern!r} timed out after {timeout:g} seconds on "
                f"{len(text):,} characters; simplify it: avoid a repetition inside a repetition"
            ) from error
        spans += [Elision(start, stop) for start, stop in found if start < stop]
    return _merge_ranges(spans)


def _map_to_original(gaps: tuple[Elision, ...], later: tuple[Elision, ...]) -> tuple[Elision, ...]:
    """Map spans in a text without `gaps` to the original text, and return them merged with `gaps`."""
    if not gaps:
        return later
    removed = [0, *accumulate(gap.stop - gap.start for gap in gaps)]
    seams = [gap.start - before for gap, before in zip(gaps, removed, strict=False)]
    moved = []
    for start, stop, note in later:
        before_start, before_stop = removed[bisect_right(seams, start)], removed[bisect_right(seams, stop - 1)]
        moved.append(Elision(start + before_start, stop + before_stop, note))
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
            f"policy `{POLICY_NAME}`: `patterns` needs the `regex` package, which can time out: "
            "pip install 'thresher[patterns]'"
        ) from error
    try:
        return regex.compile(pattern)
    except regex.error as error:
        detail = f"{error.msg} at character {error.pos}"
        raise OptionError(f"policy `{POLICY_NAME}`: {pattern!r} is not a valid pattern: {detail}") from error
    except RecursionError as error:
        raise OptionError(f"policy `{POLICY_NAME}`: the pattern {pattern[:40]!r}… is nested too deeply") from error
