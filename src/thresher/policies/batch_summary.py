"""Old tool calls are folded in batches: a call and its result go together, a summary of the batch stands in place.

A batch waits until enough calls are old, or the oldest is very old, so that the history changes seldom. What binds
people and agents together is never folded: questions and their answers, completions, what a human or the agent
marked. Human words and what the agent said stay where they are, and no batch reaches across a human's prompt.
Only calls that may be folded count, so what is excluded never fires a batch.
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
from thresher.model.message_cache import cached_per_message
from thresher.model.one_liners import format_turn_range
from thresher.model.text import count_with_noun
from thresher.policies.base import check_count, check_words, matches_any_glob
from thresher.policies.identifiers import IdentifierSelector, find_identifiers
from thresher.policies.xml_tools import XmlChain, find_xml_chains
from thresher.summarize import extractive_summarizer
from thresher.tokens import TokenWeights, default_token_weights

NEVER_SUMMARIZED_TOOLS = (
    "task_completion", "ask_question", "converse", "askuserquestion", "ask_user*", "ask_followup_question",
    "request_user_input", "message_ask_user", "message_notify_user", "exitplanmode", "exit_plan_mode", "plan_exit",
    "plan_mode_respond", "attempt_completion", "complete_task", "task_complete", "submit", "finish",
)  # fmt: skip
"""Tools that speak with the user or end the work: never folded unless the caller says otherwise."""
EXCLUDED_BY_NAME = "never folded"


CallNotation = Literal["call", "text", "text in prose"]
"""How a call is written: as a call, as XML that is all of a text, as XML among other words."""


class _OldCall(NamedTuple):
    """A call that is old enough: where its parts are, and why it is left alone, if it is."""

    call: Place
    results: tuple[Place, ...]
    name: str
    description: str
    notation: CallNotation
    exclusion: str

    @property
    def members(self) -> tuple[Place, ...]:
        """Call and results."""
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
    """Fold old tool calls with their results into summaries, many at a time."""

    older_than: int = 20
    """Calls more than this many messages from the end are old."""
    min_calls: int = 10
    """So many old calls make a batch."""
    max_distance: int = 40
    """One call this many messages from the end makes a batch whatever their number."""
    min_tokens: int = 0
    """Calls that weigh less than this many tokens, with their results, are left alone."""
    exclude_tools: tuple[str, ...] | None = None
    """Tools that are never folded, by name or glob, besides those that ask the user; None: the usual ones; (): none."""
    keep_marked: str = "[keep]"
    """What marks a message, or a call's arguments, to be left alone; empty: nothing does."""
    max_chars: int = 2_000
    """Characters of one summary."""
    max_calls_per_summary: int = 0
    """Calls in one summary; 0: as many as stand together."""
    include_agent_text: bool = False
    """Fold what the agent said beside the calls, too, where none of them stays."""
    max_identifiers: int = 0
    """Names of things and files that a summary tells beside it."""
    xml: bool = True
    """Fold calls that are written as XML in text, too."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = {"older_than": self.older_than, "min_calls": self.min_calls, "max_distance": self.max_distance}
        check_count(
            "batch-summary",
            **counts,
            min_tokens=self.min_tokens,
            max_chars=self.max_chars,
            max_calls_per_summary=self.max_calls_per_summary,
        )
        check_count("batch-summary", max_identifiers=self.max_identifiers)
        if self.exclude_tools is not None:
            check_words("batch-summary", exclude_tools=self.exclude_tools)
        if not isinstance(self.keep_marked, str):
            raise OptionError(f"policy `batch-summary`: `keep_marked` is a text, not {self.keep_marked!r}")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Fold what is old, if there is enough of it."""
        old = self._find_old_calls(history)
        free = [one for one in old if not one.exclusion]
        if not free or (len(free) < self.min_calls and len(history) - free[0].call.message < self.max_distance):
            return
        borders = _find_boundaries(history, old)
        groups = groupby(old, key=lambda one: (bisect_right(borders, one.call.message), one.exclusion, one.notation))
        names = IdentifierSelector(history)
        for (_, left, kind), run in groups:
            if left:
                continue
            if kind == "text in prose":
                yield from _replace_answers(history, list(run))
                continue
            calls = list(run)
            size = self.max_calls_per_summary or len(calls)
            for start in range(0, len(calls), size):
                yield self._summarize_run(history, calls[start : start + size], names)

    def count_excluded(self, history: History) -> Counter[tuple[str, str]]:
        """What is old and left alone: how often, by name and reason."""
        return Counter((one.name, one.exclusion) for one in self._find_old_calls(history) if one.exclusion)

    def notes(self, history: History) -> tuple[str, ...]:
        """What was left alone, in words."""
        counts: Counter[str] = Counter()
        for (name, reason), times in self.count_excluded(history).items():
            counts[name if reason == EXCLUDED_BY_NAME else reason] += times
        if not counts:
            return ()
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(f"{word} {times}" for word, times in ordered)
        return (f"batch-summary left {count_with_noun(counts.total(), 'call')} alone: {told}",)

    def _find_old_calls(self, history: History) -> list[_OldCall]:
        young = len(history) - self.older_than
        found = [
            _OldCall(
                call,
                (result,),
                link.call.name,
                "",
                "call",
                self._find_exclusion(history, link.call.name, link.use.category, call, result),
            )
            for link in history.links
            for call, result, active in (link.chain,)
            if call.message < young and result is not None and not active
        ]
        if self.xml:
            found += [
                self._build_old_xml_call(history, chain)
                for chain in find_xml_chains(history)
                if chain.call.message < young
            ]
            found.sort()
        return found

    def _build_old_xml_call(self, history: History, chain: XmlChain) -> _OldCall:
        kind: CallNotation = "text" if chain.is_standalone else "text in prose"
        left = self._find_exclusion(history, chain.name, chain.use.category, chain.call, *chain.results)
        return _OldCall(chain.call, chain.results, chain.name, chain.description, kind, left)

    def _find_exclusion(self, history: History, name: str, category: str, *members: Place) -> str:
        """Why a call is left alone, or nothing."""
        names = NEVER_SUMMARIZED_TOOLS if self.exclude_tools is None else self.exclude_tools
        if names and (category == "question" or matches_any_glob(name, names)):
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
            return Summarize(
                _occurrences(history, places), "batch-summary", "old tool calls, told in text", text, label, "injection"
            )
        places = sorted(
            places + _find_adjacent_parts(history, places, (Thinking, Text) if self.include_agent_text else (Thinking,))
        )
        text = summarize_places(history, places, self.max_chars)
        if told := names.select(_collect_identifiers(history, places), self.max_identifiers):
            text = f"{text}\nnames: {told}"
        return Summarize(_occurrences(history, places), "batch-summary", "old tool calls", text, label)


def _collect_identifiers(history: History, places: Sequence[Place]) -> Iterator[str]:
    found = (name for place in places for name in find_identifiers(history[place.message])[place.part])
    return iter(dict.fromkeys(found))


def find_prompts(history: History) -> list[int]:
    """The messages that hold a prompt: a human's, or of the model that started this one."""
    return [i for i, m in enumerate(history.messages) if m.role == "user" and m.author in ("human", "model")]


def summarize_places(history: History, places: Sequence[Place], limit: int) -> str:
    """A summary without a model; what was summarised once is remembered."""
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
    """Summaries that begin with a part of this message."""
    return {}


def _pairing(history: History, places: Sequence[Place]) -> tuple[int, ...]:
    """Which result answers which call, by their order: equal texts may be paired in another way."""
    order = {place: n for n, place in enumerate(places)}
    results = (history.chain_at[place].result if place in history.chain_at else None for place in places)
    return tuple([-1 if result is None else order.get(result, -1) for result in results])


def _occurrences(history: History, places: Sequence[Place]) -> tuple[Occurrence, ...]:
    return tuple([history.occurrence(place) for place in places])


def _format_list(lines: Sequence[str], limit: int) -> str:
    """Each line once with how often it came, the latest of too many."""
    items = [f"- {text}" + (f" ({times} times)" if times > 1 else "") for text, times in Counter(lines).items()]
    room = limit - len("- … 1,000 more")
    kept = 0
    while kept < len(items) and (room := room - len(items[-1 - kept]) - 1) >= 0:
        kept += 1
    missing = [f"- … {len(items) - kept:,} more"] if kept < len(items) else []
    return "\n".join([*missing, *items[len(items) - kept :]])


def _find_boundaries(history: History, old: Sequence[_OldCall]) -> list[int]:
    """The prompts that no batch reaches across; what only looks like one because a tool answers in it is none."""
    answers = {one.results[0].message for one in old if one.notation != "call"}
    return [index for index in find_prompts(history) if index not in answers]


def _find_adjacent_parts(history: History, places: Sequence[Place], kinds: tuple[type[Part], ...]) -> list[Place]:
    """The parts of these kinds that led to these calls and to no other."""
    going = set(places)
    found: list[Place] = []
    for index in {place.message for place in places}:
        parts = history[index].parts
        if all(Place(index, j) in going for j, part in enumerate(parts) if isinstance(part, ToolCall)):
            found += [Place(index, j) for j, part in enumerate(parts) if isinstance(part, kinds)]
    return found


def _replace_answers(history: History, run: Sequence[_OldCall]) -> Iterator[Replace]:
    """Pointers for what tools answered, where the words around the calls are worth keeping; the opening line stays."""
    for one in run:
        for place in one.results[1:] or one.results:
            target = history.occurrence(place)
            yield Replace(
                target,
                "batch-summary",
                "old answers of tools, told in text",
                f"result of {one.description}",
                "injection",
            )
