"""Mutable state of a repair: drafts of the messages, and the origin of each part."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from thresher.model import History, Message, Place
from thresher.model.parts import Part

PartRepair = Callable[[Part], Part | None]


class Violation(Struct, frozen=True):
    """A broken rule and its position."""

    rule: str
    dialect: str
    message: int
    """Index of the message in the history."""
    part: int | None
    """Index of the violating part; None for the whole message."""
    detail: str
    documented: str
    """Address of the vendor's documentation."""

    @property
    def place(self) -> Place:
        """Position of the violation; part -1 is the whole message."""
        return Place(self.message, -1 if self.part is None else self.part)


class Repair(Struct, frozen=True):
    """A repair and its position in the original history."""

    rule: str
    message: int
    part: int | None
    detail: str


class MessageDraft(NamedTuple):
    """A message in its current state, with the original positions of the message and its parts."""

    message: Message
    origin: int
    places: tuple[Place, ...]
    """Original place of each part. An inserted part has the place of the part that it belongs to."""


class RepairWorkspace:
    """The drafts of all messages, and the repairs that were recorded."""

    def __init__(self, history: History, one_result_dialects: frozenset[str] = frozenset()) -> None:
        """Start with the original messages. In `one_result_dialects`, a message holds only one result."""
        self._history = history
        self.one_result_dialects = one_result_dialects
        self.repairs: list[Repair] = []
        self.drafts = [
            MessageDraft(message, index, tuple([Place(index, part) for part in range(len(message.parts))]))
            for index, message in enumerate(history)
        ]

    @property
    def history(self) -> History:
        """The history in its current state."""
        return structs.replace(self._history, messages=tuple([draft.message for draft in self.drafts]))

    @property
    def has_lost_all_messages(self) -> bool:
        """True if repairs removed every message but system messages."""
        left, given = ([m.role != "system" for m in history] for history in (self.history, self._history))
        return any(given) and not any(left)

    def append_message(self, message: Message) -> None:
        """Add a message at the end, with the position of the last original message."""
        origin = len(self._history) - 1
        self.drafts.append(MessageDraft(message, origin, (Place(origin, 0),)))

    def part(self, place: Place) -> Part:
        """Return the part at a current position."""
        return self.drafts[place.message].message.parts[place.part]

    def record_repair(self, rule: str, message: int, part: int | None, detail: str) -> None:
        """Record a repair at a current position."""
        draft = self.drafts[message]
        place = None if part is None or part >= len(draft.places) else draft.places[part]
        where = Place(draft.origin, -1) if place is None else place
        self.repairs.append(Repair(rule, where.message, None if place is None else place.part, detail))

    def record_repairs(self, violations: Iterable[Violation], detail: str) -> None:
        """Record the same repair for several violations, once per position."""
        positions = dict.fromkeys((violation.rule, violation.message, violation.part) for violation in violations)
        for rule, message, part in positions:
            self.record_repair(rule, message, part, detail)

    def repair_parts(self, violations: Sequence[Violation], detail: str, repair: PartRepair) -> None:
        """Record a repair, and replace the part of each violation by the result of `repair`; None keeps the part."""
        new = {violation.place: repair(self.part(violation.place)) for violation in violations}
        self.record_repairs(violations, detail)
        self.replace_parts({place: (part,) for place, part in new.items() if part is not None})

    def replace_parts(self, new: Mapping[Place, tuple[Part, ...]]) -> None:
        """Replace parts; remove messages that lose their last part."""
        touched = {place.message for place in new}
        drafts: list[MessageDraft] = []
        for index, draft in enumerate(self.drafts):
            if index not in touched:
                drafts.append(draft)
                continue
            pairs = [
                (part, draft.places[number])
                for number, old in enumerate(draft.message.parts)
                for part in new.get(Place(index, number), (old,))
            ]
            if pairs:
                drafts.append(replace_draft_parts(draft, pairs))
        self.drafts = drafts

    def replace_messages(self, new: Mapping[int, Message | None]) -> None:
        """Replace messages by others with the same number of parts; None removes a message."""
        self.drafts = [
            draft if index not in new else draft._replace(message=message)
            for index, draft in enumerate(self.drafts)
            if (message := new.get(index, draft.message)) is not None
        ]


def pair_parts(draft: MessageDraft) -> list[tuple[Part, Place]]:
    """Return the parts of a draft with their places."""
    return list(zip(draft.message.parts, draft.places, strict=True))


def replace_draft_parts(draft: MessageDraft, pairs: Iterable[tuple[Part, Place]]) -> MessageDraft:
    """Return the draft with new parts and their original places."""
    parts, places = zip(*pairs, strict=True)
    return draft._replace(message=structs.replace(draft.message, parts=parts), places=places)
