"""How much each part matters for what comes next: a number from 0 to 1, from plain signs, in linear time.

Five signs, none of which needs a model: what kind of part it is; the words it shares with the current request, rare
ones counting more; how new it is; whether later calls name what it brought; and, of errors, whether something later
made them good. Identifiers and paths count as the words that they are made of.
"""

import math
import posixpath
import re
from collections import Counter
from collections.abc import Set
from typing import NamedTuple

from thresher.model import (
    History,
    Image,
    Message,
    Part,
    Place,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    part_text,
)
from thresher.model.history import cached_per_history
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import ToolCallDetails, ToolUse
from thresher.model.tool_outcomes import parse_tool_outcome

KIND_WEIGHT, REQUEST_WEIGHT, RECENCY_WEIGHT, REFERENCES_WEIGHT, ERRORS_WEIGHT = 0.30, 0.25, 0.20, 0.15, 0.10
"""How much each sign weighs; together 1."""
HALF_LIFE = 12
"""Turns after which a part counts as half as new."""
ENOUGH_REFERENCES = 3
"""So many names that later calls use are as good as more."""
MAX_END_CHARS = 4_000
"""Characters of each end of a long text that are looked into."""
MAX_TERMS = 400
"""Different words, or names, of one part that are remembered."""

_WORD = re.compile(r"[A-Z]?[a-zß-ɏ]+|[A-Z]+(?![a-zß-ɏ])|\d{3,}|[^\W\d_a-zA-Zß-ɏ]+")
_TOKEN = re.compile(r"[\w.\-/\\]{4,300}")
_NAME_MARK = re.compile(r"[a-z][A-Z]|[\w\-][./\\_][\w\-]")
"""What tells a name from a word: a capital, a dot, a slash or an underscore inside."""
_JSON_KEY = re.compile(r'"\w{1,60}"\s*:')
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "the and for with from that this into are was not but you your can will all any our its has have had they then"
        " than when what which who how out use used let now one two also just get set please should would could does",
    )
)
_CATEGORY_SCORES = {"question": 0.8, "plan": 0.75, "file_edit": 0.65, "subagent": 0.6, "execution": 0.45, "web": 0.4}
_OPERATION_SCORES = {"read": 0.4, "list": 0.2, "search": 0.25}


class _PartTerms(NamedTuple):
    """What is looked up in a part."""

    words: frozenset[str]
    names: frozenset[str]


@cached_per_history
def score_importance(history: History) -> dict[Place, float]:
    """How much each part matters, from 0 to 1."""
    wanted = _request_weights(history)
    asked = frozenset(wanted)
    whole = sum(wanted.values()) or 1.0
    kinds = _score_kinds(history)
    errors = _score_errors(history)
    used = _count_later_references(history)
    newness = _measure_recency(history)
    scores: dict[Place, float] = {}
    for i, message in enumerate(history.messages):
        recency = RECENCY_WEIGHT * newness[i]
        for j, seen in enumerate(_message_terms(message)):
            place = Place(i, j)
            shared = sum([wanted[word] for word in seen.words & asked]) / whole
            score = recency + KIND_WEIGHT * kinds[place] + REQUEST_WEIGHT * min(1.0, 2 * shared)
            score += REFERENCES_WEIGHT * min(1.0, used[place] / ENOUGH_REFERENCES) + ERRORS_WEIGHT * errors.get(
                place, 0.5
            )
            scores[place] = score
    return scores


def measure_kept_importance(history: History, kept: Set[Place]) -> float:
    """The share of all that matters which is kept."""
    scores = score_importance(history)
    whole = math.fsum(scores.values())
    return math.fsum(score for place, score in scores.items() if place in kept) / whole if whole else 1.0


def extract_scored_words(text: str) -> frozenset[str]:
    """The words of a text, lower-cased; `parseHTMLPage` and `parse_html_page` have the same ones."""
    found: dict[str, None] = {}
    for word in _WORD.findall(_both_ends(text)):
        lowered = word.lower()
        if (len(lowered) > 2 or not lowered.isascii()) and lowered not in _STOP_WORDS:
            found[lowered] = None
            if len(found) == MAX_TERMS:
                break
    return frozenset(found)


def extract_scored_names(text: str) -> frozenset[str]:
    """The identifiers and paths in a text, and the last piece of each path."""
    found: dict[str, None] = {}
    for token in _TOKEN.findall(_both_ends(text)):
        plain = token.replace("\\", "/").strip("./-")
        if len(plain) > 3 and _NAME_MARK.search(plain):
            found[plain] = None
            found[posixpath.basename(plain)] = None
            if len(found) >= MAX_TERMS:
                break
    return frozenset(found)


def _both_ends(text: str) -> str:
    return text if len(text) <= 2 * MAX_END_CHARS else f"{text[:MAX_END_CHARS]}\n{text[-MAX_END_CHARS:]}"


@cached_per_message
def _message_terms(message: Message) -> tuple[_PartTerms, ...]:
    return tuple([_part_terms(part) for part in message.parts])


def _part_terms(part: Part) -> _PartTerms:
    if isinstance(part, Image | Thinking):
        return _PartTerms(frozenset(), frozenset())
    text = part_text(part)
    if isinstance(part, ToolCall):
        text = _JSON_KEY.sub(" ", text)  # every call of a tool has the same keys: they say nothing
    return _PartTerms(
        extract_scored_words(text),
        extract_scored_names(text) if isinstance(part, ToolCall | ToolResult) else frozenset(),
    )


def _request_weights(history: History) -> dict[str, float]:
    """The words of the current request, each with its weight: the rarer in the history, the more."""
    current = history.shape.current_prompt
    if current is None:
        return {}
    wanted = frozenset().union(*(seen.words for seen in _message_terms(history[current])))
    held: Counter[str] = Counter()
    parts = 0
    for message in history.messages:
        for seen in _message_terms(message):
            held.update(wanted & seen.words)
            parts += 1
    return {word: math.log((parts + 1) / (held[word] + 0.5)) for word in sorted(wanted)}


def _measure_recency(history: History) -> list[float]:
    """How new each message is: 1 in the latest turn, half of that some turns before."""
    age = len(history.turns)
    starts = {turn.start for turn in history.turns}
    newness: list[float] = []
    for index in range(len(history)):
        age -= index in starts
        newness.append(2.0 ** (-age / HALF_LIFE))
    return newness


def _count_later_references(history: History) -> dict[Place, int]:
    """How many names in each part a later call uses."""
    used: dict[Place, int] = {}
    later: set[str] = set()
    for i in range(len(history) - 1, -1, -1):
        message = history[i]
        seen = _message_terms(message)
        for j, (_, names) in enumerate(seen):
            used[Place(i, j)] = len(names & later)
        for part, (_, names) in zip(message.parts, seen, strict=True):
            if isinstance(part, ToolCall):
                later |= names
    return used


def _score_errors(history: History) -> dict[Place, float]:
    """An error that nothing made good counts full; one that was made good counts little."""
    worth: dict[Place, float] = {}
    good: set[tuple[str, str]] = set()
    for link in reversed(history.links):
        call, result, _ = link.chain
        if result is None or link.result is None:
            continue
        key = _retry_key(link)
        if link.result.is_error or (link.use.command and _has_failed_exit(history[result.message])[result.part]):
            worth[call] = worth[result] = 0.1 if key in good else 1.0
        else:
            good.add(key)
    return worth


@cached_per_message
def _has_failed_exit(message: Message) -> tuple[bool, ...]:
    """Which results tell of a command that failed."""
    return tuple(
        [isinstance(part, ToolResult) and parse_tool_outcome(part, is_command=True).failed for part in message.parts]
    )


def _retry_key(link: ToolUse) -> tuple[str, str]:
    """Equal for two calls of which the later could make good the earlier."""
    use = link.use
    command = " ".join(use.command.split(None, 2)[:2])
    return link.call.name, use.path or command or use.intent


def _score_kinds(history: History) -> dict[Place, float]:
    calls: dict[Place, float] = {}
    for link in history.links:
        calls[link.chain.call] = _score_tool_use(link.use)
        if link.chain.result is not None:
            calls[link.chain.result] = calls[link.chain.call]
    return {
        place: calls[place] if place in calls else _score_part_kind(message, part)
        for i, message in enumerate(history.messages)
        for j, part in enumerate(message.parts)
        for place in (Place(i, j),)
    }


def _score_tool_use(use: ToolCallDetails) -> float:
    if use.operation in _OPERATION_SCORES and use.category in ("file_read", "execution", "project"):
        return _OPERATION_SCORES[use.operation]
    return _CATEGORY_SCORES.get(use.category, 0.35)


def _score_part_kind(message: Message, part: Part) -> float:
    """A human's words before an agent's, these before what a program wrote."""
    if isinstance(part, Summary):
        return 0.9
    if isinstance(part, Thinking):
        return 0.15
    if not isinstance(part, Text | Image):
        return 0.2
    if message.role == "assistant":
        asks = isinstance(part, Text) and part.text.rstrip().endswith(("?", "？"))
        return 0.8 if asks else 0.7
    return 1.0 if message.role == "system" or message.author in ("human", "model") else 0.3
