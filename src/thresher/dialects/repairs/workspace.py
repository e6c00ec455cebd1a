"""Where a history lies while it is repaired: messages that change, and where each part of them came from."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from thresher.model import History, Message, Place
from thresher.model.parts import Part


class Violation(Struct, frozen=True):
    """One rule broken in one place."""

    rule: str
    dialect: str
    message: int
    """Counted from 0 in the history."""
    part: int | None
    """None: the message as a whole."""
    detail: str
    documented: str
    """The vendor's page on it."""

    @property
    def place(self) -> Place:
        """Where it is; part -1 stands for the whole message."""
        return Place(self.message, -1 if self.part is None else self.part)


class Repair(Struct, frozen=True):
    """One thing put right, where it stood in the history that came in."""

    rule: str
    message: int
    part: int | None
    detail: str


class MessageDraft(NamedTuple):
    """A message as it is now, with the message and the parts it was made of."""

    message: Message
    origin: int
    places: tuple[Place, ...]
    """One for each part; a part that was made new stands where the one stood that it is for."""


class RepairWorkspace:
    """The drafts, and what was done to them."""

    def __init__(self, history: History, one_result_dialects: frozenset[str] = frozenset()) -> None:
        """Start with the messages unchanged; in `one_result_dialects` a message holds one result."""
        self._history = history
        self.one_result_dialects = one_result_dialects
        self.repairs: list[Repair] = []
        self.drafts = [
            MessageDraft(message, index, tuple([Place(index, part) for part in range(len(message.parts))]))
            for index, message in enumerate(history)
        ]

    @property
    def history(self) -> History:
        """The history as it is now."""
        return structs.replace(self._history, messages=tuple([draft.message for draft in self.drafts]))

    def part(self, at: Place) -> Part:
        """The part at a place of now."""
        return self.drafts[at.message].message.parts[at.part]

    def record_repair(self, rule: str, message: int, part: int | None, detail: str) -> None:
        """Tell of a repair at a place of now."""
        draft = self.drafts[message]
        place = None if part is None or part >= len(draft.places) else draft.places[part]
        where = Place(draft.origin, -1) if place is None else place
        self.repairs.append(Repair(rule, where.message, None if place is None else place.part, detail))

    def record_repairs(self, violations: Iterable[Violation], detail: str) -> None:
        """Tell of the same repair at every place of some violations, once each."""
        for rule, message, part in dict.fromkeys((one.rule, one.message, one.part) for one in violations):
            self.record_repair(rule, message, part, detail)

    def replace_parts(self, new: Mapping[Place, tuple[Part, ...]]) -> None:
        """Put new parts for old ones; a message that loses its last part goes."""
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
        """Put new messages, of as many parts, for old ones; None takes one away."""
        self.drafts = [
            draft if index not in new else draft._replace(message=message)
            for index, draft in enumerate(self.drafts)
            if (message := new.get(index, draft.message)) is not None
        ]


def replace_draft_parts(draft: MessageDraft, pairs: Iterable[tuple[Part, Place]]) -> MessageDraft:
    """The draft with other parts, each with its place."""
    parts, places = zip(*pairs, strict=True)
    return draft._replace(message=structs.replace(draft.message, parts=parts), places=places)
