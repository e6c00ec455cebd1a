"""Score the importance of each part for the rest of the session: a number from 0 to 1, computed in linear time.

The score combines five features and needs no model: the kind of part; words shared with the current request, where
rare words count more; recency; references by later calls; and for failed calls, whether a retry succeeded later. For
the shared words, an identifier or a path counts as the words that it consists of.
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
from thresher.policies.base import is_failed_call

KIND_WEIGHT, REQUEST_WEIGHT, RECENCY_WEIGHT, REFERENCES_WEIGHT, ERRORS_WEIGHT = 0.30, 0.25, 0.20, 0.15, 0.10
"""Weights of the five features; their sum is 1."""
HALF_LIFE = 12
"""Turns after which the recency score halves."""
ENOUGH_REFERENCES = 3
"""Number of later references for the full reference score."""
MAX_END_CHARS = 4_000
"""Characters to index from each end of a long text."""
MAX_TERMS = 400
"""Maximum distinct words or names to index per part."""

_WORD = re.compile(r"[A-Z]?[a-zß-ɏ]+|[A-Z]+(?![a-zß-ɏ])|\d{3,}|[^\W\d_a-zA-Zß-ɏ]+")
_TOKEN = re.compile(r"[\w.\-/\\]{4,300}")
_NAME_MARK = re.compile(r"[a-z][A-Z]|[\w\-][./\\_][\w\-]")
"""Mark that distinguishes a name from a word: an inner capital letter, dot, slash or underscore."""
_JSON_KEY = re.compile(r'"\w{1,60}"\s*:')
_STOP_WORD_NAMES = (
    "the and for with from that this into are was not but you your can will all any our its has have had they "
    "then than when what which who how out use used let now one two also just get set please should would could "
    "does"
)
_STOP_WORDS = frozenset(_STOP_WORD_NAMES.split())
_CATEGORY_SCORES = {
    "question": 0.8,
    "plan": 0.75,
    "completion": 0.75,
    "file_edit": 0.65,
    "subagent": 0.6,
    "execution": 0.45,
    "web": 0.4,
}
_OPERATION_SCORES = {"read": 0.4, "list": 0.2, "search": 0.25}


class _PartTerms(NamedTuple):
    """The indexed words and names of a part."""

    words: frozenset[str]
    names: frozenset[str]


@cached_per_history
def score_importance(history: History) -> dict[Place, float]:
    """Return the importance of each part, from 0 to 1."""
    word_weights = _request_weights(history)
    request_words = frozenset(word_weights)
    total_weight = sum(word_weights.values()) or 1.0
    kinds = _score_kinds(history)
    errors = _score_errors(history)
    references = _count_later_references(history)
    recencies = _measure_recency(history)
    scores: dict[Place, float] = {}
    for i, message in enumerate(history.messages):
        for j, terms in enumerate(_message_terms(message)):
            place = Place(i, j)
            shared = sum([word_weights[word] for word in terms.words & request_words]) / total_weight
            score = RECENCY_WEIGHT * recencies[i] + KIND_WEIGHT * kinds[place]
            score += REQUEST_WEIGHT * min(1.0, 2 * shared)
            score += REFERENCES_WEIGHT * min(1.0, references[place] / ENOUGH_REFERENCES)
            scores[place] = score + ERRORS_WEIGHT * errors.get(place, 0.5)
    return scores


def measure_kept_importance(history: History, kept: Set[Place]) -> float:
    """Return the share of the total importance that the `kept` parts have."""
    scores = score_importance(history)
    whole = math.fsum(scores.values())
    return math.fsum(score for place, score in scores.items() if place in kept) / whole if whole else 1.0


def extract_scored_words(text: str) -> frozenset[str]:
    """Return the lowercase words of a text; `parseHTMLPage` and `parse_html_page` give the same words."""
    found: dict[str, None] = {}
    for word in _WORD.findall(_both_ends(text)):
        lowered = word.lower()
        if (len(lowered) > 2 or not lowered.isascii()) and lowered not in _STOP_WORDS:
            found[lowered] = None
            if len(found) == MAX_TERMS:
                break
    return frozenset(found)


def extract_scored_names(text: str) -> frozenset[str]:
    """Return the identifiers and paths of a text, and the base name of each path."""
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
        text = _JSON_KEY.sub(" ", text)  # argument names are the same in every call of a tool
    names = extract_scored_names(text) if isinstance(part, ToolCall | ToolResult) else frozenset()
    return _PartTerms(extract_scored_words(text), names)


def _request_weights(history: History) -> dict[str, float]:
    """Return the weight of each word in the current request; words that are rare in the history weigh more."""
    current = history.shape.current_prompt
    if current is None:
        return {}
    words = frozenset().union(*(terms.words for terms in _message_terms(history[current])))
    counts: Counter[str] = Counter()
    parts = 0
    for message in history.messages:
        for terms in _message_terms(message):
            counts.update(words & terms.words)
            parts += 1
    return {word: math.log((parts + 1) / (counts[word] + 0.5)) for word in sorted(words)}


def _measure_recency(history: History) -> list[float]:
    """Return the recency of each message: 1 in the latest turn, and half as much every `HALF_LIFE` turns before."""
    age = len(history.turns)
    starts = {turn.start for turn in history.turns}
    recencies: list[float] = []
    for index in range(len(history)):
        age -= index in starts
        recencies.append(2.0 ** (-age / HALF_LIFE))
    return recencies


def _count_later_references(history: History) -> dict[Place, int]:
    """Count the names in each part that a later call uses."""
    references: dict[Place, int] = {}
    later: set[str] = set()
    for i in range(len(history) - 1, -1, -1):
        message = history[i]
        terms = _message_terms(message)
        for j, (_, names) in enumerate(terms):
            references[Place(i, j)] = len(names & later)
        for part, (_, names) in zip(message.parts, terms, strict=True):
            if isinstance(part, ToolCall):
                later |= names
    return references


def _score_errors(history: History) -> dict[Place, float]:
    """Score the calls and results that failed: high if no retry succeeded later, else low."""
    scores: dict[Place, float] = {}
    succeeded: set[tuple[str, str]] = set()
    for link in reversed(history.links):
        call, result, _ = link.chain
        if result is None or link.result is None:
            continue
        key = _retry_key(link)
        if is_failed_call(link):
            scores[call] = scores[result] = 0.1 if key in succeeded else 1.0
        else:
            succeeded.add(key)
    return scores


def _retry_key(link: ToolUse) -> tuple[str, str]:
    """Return a key that is equal for a call and its retry."""
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
    """Score a part outside tool chains: human and system text highest, then summaries, then agent text."""
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
