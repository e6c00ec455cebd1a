"""A history: what a model sees, as an immutable sequence of messages."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from thresher.model.identity import Occurrence, occurrences
from thresher.model.message import Message
from thresher.model.parts import Pocket
from thresher.model.turns import Chain, Exchange, Place, Shape, Spawn, Turn, shape_of


class History(Struct, frozen=True, dict=True):
    """Messages in order, with the tools that were offered; everything derived is worked out once and kept."""

    messages: tuple[Message, ...] = ()
    tools: str = ""
    """Tool definitions, as the JSON text they came in."""
    pocket: Pocket | None = None
    """The rest of the request body, where the history came in one."""

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __getitem__(self, index: int) -> Message:
        return self.messages[index]

    @cached_property
    def shape(self) -> Shape:
        """Turns, exchanges, chains and the rest, from one pass."""
        return shape_of(self.messages)

    @cached_property
    def occurrences(self) -> tuple[Occurrence, ...]:
        """Which part is which: one occurrence a part, in order."""
        return tuple(occurrences(self.messages))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """One a model call."""
        return self.shape.turns

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """One a human prompt."""
        return self.shape.exchanges

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Every call with its result, in the order of the calls."""
        return self.shape.chains

    @property
    def orphans(self) -> tuple[Place, ...]:
        """Results that answer no call."""
        return self.shape.orphans

    @property
    def spawns(self) -> tuple[Spawn, ...]:
        """Every sub-agent started here."""
        return self.shape.spawns

    @property
    def current(self) -> Message | None:
        """The human's latest words."""
        return None if self.shape.current is None else self.messages[self.shape.current]
