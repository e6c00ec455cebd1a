"""An immutable sequence of messages, as a model sees it."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property, update_wrapper
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from thresher.model.identity import Occurrence, iterate_occurrences
from thresher.model.message import Message
from thresher.model.parts import Part, VendorExtras
from thresher.model.structure import Exchange, HistoryStructure, Place, SubagentCall, ToolChain, Turn
from thresher.model.turns import derive_structure

if TYPE_CHECKING:
    from thresher.model.human_words import HumanSpan
    from thresher.model.tool_calls import ToolUse


class History(Struct, frozen=True, dict=True):
    """Messages in order, with the offered tools. Derived values are computed once and cached."""

    messages: tuple[Message, ...] = ()
    tools: str = ""
    """The tool definitions, as their original JSON text."""
    pocket: VendorExtras | None = None
    """The other fields of the request body, if the history was parsed from one."""
    context_marks: tuple[str, ...] = ()
    """The user's own first words of texts that declare context."""

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __getitem__(self, index: int) -> Message:
        return self.messages[index]

    @cached_property
    def shape(self) -> HistoryStructure:
        """Turns, exchanges, tool chains and the rest of the structure, derived in one pass."""
        return derive_structure(self.messages)

    @cached_property
    def occurrences(self) -> tuple[Occurrence, ...]:
        """One occurrence per part, in order."""
        return tuple(iterate_occurrences(self.messages))

    @cached_property
    def places(self) -> dict[Occurrence, Place]:
        """Place of each occurrence."""
        places = (Place(i, j) for i, message in enumerate(self.messages) for j in range(len(message.parts)))
        return dict(zip(self.occurrences, places, strict=True))

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(message.parts) for message in self.messages), initial=0))

    def occurrence(self, place: Place) -> Occurrence:
        """Return the occurrence of the part at a place."""
        return self.occurrences[self._starts[place.message] + place.part]

    def part(self, place: Place) -> Part:
        """Return the part at a place."""
        return self.messages[place.message].parts[place.part]

    def turn(self, message: int) -> int:
        """Return the 1-based number of the turn that contains or precedes a message; 0 before the first turn."""
        return bisect_right(self.shape.turns, message, key=lambda turn: turn.start)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """One turn per model call."""
        return self.shape.turns

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """One exchange per human prompt."""
        return self.shape.exchanges

    @property
    def chains(self) -> tuple[ToolChain, ...]:
        """Every call with its result, in call order."""
        return self.shape.chains

    @cached_property
    def links(self) -> "tuple[ToolUse, ...]":
        """Every tool chain with its call, result and parsed details."""
        from thresher.model.tool_calls import build_tool_uses  # noqa: PLC0415 - compiles regexes

        return tuple(build_tool_uses(self.messages, self.shape.chains))

    @cached_property
    def human_words(self) -> "dict[Place, HumanSpan]":
        """Span of a person's words in each result that contains some, in order."""
        from thresher.model.human_words import index_human_words  # noqa: PLC0415 - compiles regexes

        return index_human_words(self.messages, self.links)

    @cached_property
    def chain_at(self) -> dict[Place, ToolChain]:
        """Tool chain of each place that holds a call or a result."""
        ends = ((place, chain) for chain in self.shape.chains for place in (chain.call, chain.result))
        return {place: chain for place, chain in ends if place is not None}

    @property
    def orphans(self) -> tuple[Place, ...]:
        """Places of results that match no call."""
        return self.shape.orphan_results

    @property
    def spawns(self) -> tuple[SubagentCall, ...]:
        """Every sub-agent started in this history."""
        return self.shape.subagent_calls

    @property
    def current(self) -> Message | None:
        """The latest human prompt."""
        return None if self.shape.current_prompt is None else self.messages[self.shape.current_prompt]


T = TypeVar("T")


def cached_per_history(function: Callable[[History], T]) -> Callable[[History], T]:
    """Decorator that caches a function's result in the history, so that the function runs once per history."""
    name = f"{function.__module__}.{function.__qualname__}"

    def wrapper(history: History) -> T:
        cache: dict[str, Any] = history.__dict__
        if name not in cache:
            cache[name] = function(history)
        value: T = cache[name]
        return value

    return update_wrapper(wrapper, function)
