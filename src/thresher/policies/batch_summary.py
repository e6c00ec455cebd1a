"""The policy `batch-summary`: summarize old tool calls and their results in batches.

A batch waits until enough calls are old, or the oldest call is very old, so that the history changes seldom. Some calls
are never summarized: questions and their answers, calls that end the task, and calls that the human or the agent
marked. Human and agent text stays in place, and no batch spans a human's prompt. Excluded calls do not count toward a
batch.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Replace, Summarize
from thresher.errors import OptionError
from thresher.model import History, Message, Occurrence, Part, Place, Text, Thinking, ToolCall
from thresher.model.human_words import ANSWERED_CATEGORIES
from thresher.model.keep_marks import find_kept_places
from thresher.model.message_cache import cached_per_message
from thresher.model.one_liners import format_turn_range
from thresher.model.text import count_with_noun, to_printable_line
from thresher.policies.base import check_count, check_words, matches_any_glob
from thresher.policies.identifiers import IdentifierSelector, find_identifiers
from thresher.policies.xml_tools import XmlChain, find_xml_chains
from thresher.summarize import extractive_summarizer
from thresher.tokens import TokenWeights, default_token_weights

POLICY_NAME = "batch-summary"
NEVER_SUMMARIZED_TOOLS = (
    "task_completion", "ask_question", "converse", "askuserquestion", "ask_user*", "ask_followup_question",
    "request_user_input", "message_ask_user", "message_notify_user", "exitplanmode", "exit_plan_mode", "plan_exit",
    "plan_mode_respond", "attempt_completion", "complete_task", "task_complete", "submit", "finish",
)  # fmt: skip
"""Tools that talk to the user or end the task: excluded by default."""
EXCLUDED_BY_NAME = "never folded"


CallNotation = Literal["call", "text", "text in prose"]
"""Notation of a call: a tool call, XML that fills a text, or XML within other text."""


class _OldCall(NamedTuple):
    """A call that is old enough to summarize."""

    call: Place
    results: tuple[Place, ...]
    name: str
    description: str
    notation: CallNotation
    exclusion: str
    """Reason why the call stays; empty if it may be summarized."""

    @property
    def members(self) -> tuple[Place, ...]:
        """Places of the call and its results."""
        return (self.call, *self.results)


@renamed_fields(
    age="older_than",
    minimum="min_calls",
    distance="max_distance",
    smaller_than="min_tokens",
    never="exclude_tools",
    limit="max_chars",
    at_most="max_calls_per_summary",
    words="include_agent_text",
    names="max_identifiers",
)
@dataclass(frozen=True, kw_only=True)
class SummarizeBatches:
    """Summarize old tool calls with their results, many at a time."""

    older_than: int = 20
    """Number of messages after which a call is old."""
    min_calls: int = 10
    """Number of old calls that starts a batch."""
    max_distance: int = 40
    """Age in messages at which a single call starts a batch."""
    min_tokens: int = 0
    """Minimum tokens of a call with its result; calls with fewer tokens stay."""
    exclude_tools: tuple[str, ...] | None = None
    """Tools to exclude, by name or glob; None: the defaults. Questions and reports of completion are
    excluded, too; (): exclude nothing."""
    keep_marked: str = "[keep]"
    """Marker that excludes a call if the arguments or the message's text contain it; empty: no marker."""
    max_chars: int = 2_000
    """Maximum characters of one summary."""
    max_calls_per_summary: int = 0
    """Maximum calls in one summary; 0: all adjacent calls."""
    include_agent_text: bool = False
    """True if agent text is summarized, too, in messages whose calls are all summarized."""
    max_identifiers: int = 0
    """Maximum identifiers and paths to list at the end of a summary."""
    xml: bool = True
    """True if calls written as XML in text are summarized, too."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = ("older_than", "min_calls", "max_distance", "min_tokens", "max_chars", "max_calls_per_summary")
        check_count(POLICY_NAME, **{name: getattr(self, name) for name in (*counts, "max_identifiers")})
        check_words(POLICY_NAME, exclude_tools=self.exclude_tools or ())
        if not isinstance(self.keep_marked, str):
            raise OptionError(f"policy `{POLICY_NAME}`: `keep_marked` must be a string, got {self.keep_marked!r}")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose summaries if there are enough old calls."""
        old = self._find_old_calls(history)
        free = [one for one in old if not one.exclusion]
        if not free or (len(free) < self.min_calls and len(history) - free[0].call.message < self.max_distance):
            return
        boundaries = _find_boundaries(history, old)
        groups = groupby(old, key=lambda one: (bisect_right(boundaries, one.call.message), one.exclusion, one.notation))
        names = IdentifierSelector(history)
        for (_, exclusion, notation), run in groups:
            calls = [] if exclusion else list(run)
            if notation == "text in prose":
                yield from _replace_answers(history, calls)
                continue
            size = self.max_calls_per_summary or len(calls) or 1
            for start in range(0, len(calls), size):
                yield self._summarize_run(history, calls[start : start + size], names)

    def count_excluded(self, history: History) -> Counter[tuple[str, str]]:
        """Count the excluded old calls by tool name and reason."""
        return Counter((one.name, one.exclusion) for one in self._find_old_calls(history) if one.exclusion)

    def notes(self, history: History) -> tuple[str, ...]:
        """Return a note on the excluded calls."""
        counts = self.count_excluded(history)
        if not counts:
            return ()
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        reasons = {reason: "" if reason == EXCLUDED_BY_NAME else f" ({reason})" for _, reason in counts}
        tools = ", ".join(f"{to_printable_line(name)} {times}{reasons[reason]}" for (name, reason), times in ordered)
        return (f"{POLICY_NAME} excluded {count_with_noun(counts.total(), 'call')}: {tools}",)

    def _find_old_calls(self, history: History) -> list[_OldCall]:
        end = len(history) - self.older_than
        marked = find_kept_places(history)
        found: list[_OldCall] = []
        for link in history.links:
            call, result, active = link.chain
            if call.message < end and result is not None and not active:
                exclusion = self._find_exclusion(history, link.call.name, link.use.category, call, result)
                exclusion = "marked" if call in marked else exclusion
                found.append(_OldCall(call, (result,), link.call.name, "", "call", exclusion))
        if self.xml:
            chains = (chain for chain in find_xml_chains(history) if chain.call.message < end)
            found += [self._build_old_xml_call(history, chain) for chain in chains]
            found.sort()
        return found

    def _build_old_xml_call(self, history: History, chain: XmlChain) -> _OldCall:
        kind: CallNotation = "text" if chain.is_standalone else "text in prose"
        exclusion = self._find_exclusion(history, chain.name, chain.use.category, chain.call, *chain.results)
        return _OldCall(chain.call, chain.results, chain.name, chain.description, kind, exclusion)

    def _find_exclusion(self, history: History, name: str, category: str, *members: Place) -> str:
        """Return the reason why a call is excluded, or an empty string."""
        names = NEVER_SUMMARIZED_TOOLS if self.exclude_tools is None else self.exclude_tools
        if names and (category in ANSWERED_CATEGORIES or matches_any_glob(name, names)):
            return EXCLUDED_BY_NAME
        call, message = history.part(members[0]), history[members[0].message]
        if self.keep_marked:
            inside = isinstance(call, ToolCall) and self.keep_marked in call.arguments
            if inside or self.keep_marked in _message_text(message):
                return "marked"
        weights = (self.scale.parts(history[one.message])[one.part] for one in members) if self.min_tokens else ()
        return "small" if self.min_tokens and sum(weights) < self.min_tokens else ""

    def _summarize_run(self, history: History, run: list[_OldCall], names: IdentifierSelector) -> Summarize:
        places = [place for one in run for place in one.members]
        spans = format_turn_range([history.turn(one.call.message) for one in run])
        label = f"{count_with_noun(len(run), 'call')} summarized, {spans}"
        if run[0].notation == "text":
            text = _format_list([one.description for one in run], self.max_chars)
            targets = _occurrences(history, places)
            return Summarize(targets, POLICY_NAME, "old tool calls in text", text, label, "injection")
        kinds = (Thinking, Text) if self.include_agent_text else (Thinking,)
        places = sorted(places + _find_adjacent_parts(history, places, kinds))
        text = summarize_places(history, places, self.max_chars)
        if selected := names.select(_collect_identifiers(history, places), self.max_identifiers):
            text = f"{text}\nnames: {selected}"
        targets, everything = _occurrences(history, places), self.exclude_tools == ()
        return Summarize(targets, POLICY_NAME, "old tool calls", text, label, removes_human_words=everything)


def _collect_identifiers(history: History, places: Sequence[Place]) -> Iterator[str]:
    found = (name for place in places for name in find_identifiers(history[place.message])[place.part])
    return iter(dict.fromkeys(found))


def find_prompts(history: History) -> list[int]:
    """Return the indexes of the prompts, from a human or from the agent that started this sub-agent."""
    return [i for i, m in enumerate(history.messages) if m.role == "user" and m.author in ("human", "model")]


def summarize_places(history: History, places: Sequence[Place], limit: int) -> str:
    """Summarize parts without a model, and cache the summary."""
    known = _summary_cache(history[places[0].message])
    span = history.turn(places[0].message), history.turn(places[-1].message)
    key = (_occurrences(history, places), _pairing(history, places), *span, limit)
    if key not in known:
        known[key] = extractive_summarizer(history, places, limit=limit)
    return known[key]


@cached_per_message
def _message_text(message: Message) -> str:
    return message.text


@cached_per_message
def _summary_cache(_: Message) -> "dict[tuple[tuple[Occurrence, ...], tuple[int, ...], int, int, int], str]":
    """Cache the summaries whose first summarized part is in this message."""
    return {}


def _pairing(history: History, places: Sequence[Place]) -> tuple[int, ...]:
    """Return for each place the index in `places` of its chain's result, or -1.

    The cache key needs it, because equal calls may be paired with different results.
    """
    order = {place: n for n, place in enumerate(places)}
    results = (history.chain_at[place].result if place in history.chain_at else None for place in places)
    return tuple([-1 if result is None else order.get(result, -1) for result in results])


def _occurrences(history: History, places: Sequence[Place]) -> tuple[Occurrence, ...]:
    return tuple([history.occurrence(place) for place in places])


def _format_list(lines: Sequence[str], limit: int) -> str:
    """List each distinct line with its count; if not all lines fit, list the latest."""
    items = [f"- {text}" + (f" ({times} times)" if times > 1 else "") for text, times in Counter(lines).items()]
    room = limit - len("- … 1,000 more")
    kept = 0
    while kept < len(items) and (room := room - len(items[-1 - kept]) - 1) >= 0:
        kept += 1
    missing = [f"- … {len(items) - kept:,} more"] if kept < len(items) else []
    return "\n".join([*missing, *items[len(items) - kept :]])


def _find_boundaries(history: History, old: Sequence[_OldCall]) -> list[int]:
    """Return the indexes of the prompts that separate batches.

    A message with the result of an XML call does not count as a prompt.
    """
    answers = {one.results[0].message for one in old if one.notation != "call"}
    return [index for index in find_prompts(history) if index not in answers]


def _find_adjacent_parts(history: History, places: Sequence[Place], kinds: tuple[type[Part], ...]) -> list[Place]:
    """Return the parts of the given kinds in messages whose calls are all in `places`."""
    members = set(places)
    found: list[Place] = []
    for index in {place.message for place in places}:
        parts = history[index].parts
        if all(Place(index, j) in members for j, part in enumerate(parts) if isinstance(part, ToolCall)):
            found += [Place(index, j) for j, part in enumerate(parts) if isinstance(part, kinds)]
    return found


def _replace_answers(history: History, run: Sequence[_OldCall]) -> Iterator[Replace]:
    """Replace the results of XML calls by placeholders, if the text around the calls must stay.

    If a result consists of several texts, the first one is its header line and stays.
    """
    for one in run:
        for place in one.results[1:] or one.results:
            target = history.occurrence(place)
            note = f"result of {one.description}"
            yield Replace(target, POLICY_NAME, "old tool answers in text", note, "injection")
