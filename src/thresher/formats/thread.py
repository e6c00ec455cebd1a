"""One conversation with a model, put together from single calls that were each given all of it.

A message is known again by a mark: its role and words, and the ids of calls, so that an answer is known in whatever
form it is given back.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import structs

from thresher.formats.settling import settled
from thresher.model import (
    Branch,
    History,
    Image,
    Message,
    Role,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from thresher.model.parts import Part


class Ask(NamedTuple):
    """One call of a model."""

    place: int
    """Its number in the file."""
    line: int
    """Where it stands there."""
    scope: str
    """The agent it was made by."""
    around: frozenset[str]
    """The agents around that one."""
    talk: str
    """The conversation it belongs to, if that is told."""
    trace: str
    given: Sequence[Message]
    said: Sequence[Message]
    is_cut: bool = False
    """Whether the first messages are missing."""
    start: datetime | None = None
    end: datetime | None = None
    model: str = ""
    usage: Usage | None = None
    tools: str = ""
    """The definitions of the tools it was offered, as JSON."""
    others: Sequence[Message] = ()
    """Answers that were asked for beside the first."""


class Seen(NamedTuple):
    """A message as it was given, and what it is known by."""

    messages: tuple[Message, ...]
    """Itself; or what a model answered and was given back as this; none where that stands with the one before."""
    role: Role
    mark: int
    """By role and words."""
    words: int
    """By words alone: a role may be told in another way."""


def seen(message: Message) -> Seen:
    """A message with its marks."""
    words = hash(tuple(pieces(message.parts)))
    return Seen((message,), message.role, hash((message.role, words)), words)


def pieces(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    """What a message is known by: thinking is not given back to every model, ids of results are often missing."""
    for part in parts:
        match part:
            case Text() | Summary():
                if words := part.text.strip():
                    yield "text", words
            case ToolCall():
                yield "call", part.id or f"{part.name} {part.arguments}"
            case ToolResult():
                yield "result", part.text.strip()
            case Image():
                yield "image", part.data or part.url
            case Thinking():
                pass
            case _:
                yield "other", part.data


class Thread:
    """One conversation, as far as it is known."""

    def __init__(self, ask: Ask, file: str) -> None:
        """An empty one, which the call begins."""
        self.asks: list[Ask] = []
        self.answers: dict[str, Ask] = {}
        """The call that each answer came by, by the id of the message."""
        self.scope = ask.scope
        self.rows: list[Seen] = []
        self.states: list[int] = []
        """What stands up to each row, as one mark."""
        self.before: list[list[Message]] = []
        """What the model was given before each compaction."""
        self.branches: list[tuple[str, list[Message]]] = []
        """What was taken back, and after which message."""
        self.answer = 0
        """Where the last answer begins."""
        self.began = self.latest = 0
        """The numbers of its first and its last call, by time."""
        self.started = len(ask.given)
        """How many messages its first call was given."""
        self.known: set[int] = set()
        """The words of all that was ever in it."""
        self._file = file

    def grow(self, ask: Ask, given: Iterable[Seen]) -> None:
        """What is new of what a call was given, and its answer."""
        self.asks.append(ask._replace(given=(), said=(), others=()))
        place = Source(self._file, ask.line)
        for number, row in enumerate(given):
            given_here = (
                structs.replace(message, id=f"{ask.place}-{number}", source=place, time=message.time or ask.start)
                for message in row.messages
            )
            self._add(row._replace(messages=tuple(given_here)))
        self.answer = len(self.rows)
        for number, message in enumerate(ask.said):
            told = structs.replace(
                message,
                id=f"{ask.place}-answer-{number}" if number else f"{ask.place}",
                source=place,
                time=ask.end or ask.start,
                model=ask.model,
                usage=None if number else ask.usage,
            )
            self.answers[told.id] = self.asks[-1]
            self._add(seen(message)._replace(messages=(told,)))
        for number, message in enumerate(ask.others):
            other = structs.replace(message, id=f"{ask.place}-choice-{number}", source=place, model=ask.model)
            self._take_back(self.answer, [other])

    def _add(self, row: Seen) -> None:
        self.rows.append(row)
        self.known.add(row.words)
        self.states.append(hash((self.states[-1] if self.states else 0, row.mark)))

    def restate(self, given: Sequence[Seen]) -> None:
        """Know the last answer by the messages that it was given back as."""
        said = [message for row in self.rows[self.answer :] for message in row.messages]
        del self.rows[self.answer :], self.states[self.answer :]
        for number, row in enumerate(given):
            is_last = number == len(given) - 1
            self._add(row._replace(messages=tuple(said[number:] if is_last else said[number : number + 1])))

    def go_back(self, place: int) -> None:
        """Take back what stands from a place on."""
        self._take_back(place, [message for row in self.rows[place:] for message in row.messages])
        del self.rows[place:], self.states[place:]

    def _take_back(self, place: int, messages: list[Message]) -> None:
        before = (self.rows[number].messages for number in range(place - 1, -1, -1))
        after = next((found[-1].id for found in before if found), "")
        if messages:
            self.branches.append((after, messages))

    def go_on_from(self, rows: Sequence[Seen], ask: Ask) -> None:
        """Begin anew with what is left after a compaction."""
        left = self.left_of(rows, ask)
        self.before.append(self.messages)
        self.rows, self.states = [], []
        for row, messages in zip(rows, left, strict=True):
            self._add(row._replace(messages=messages))
        self.answer = len(self.rows)

    def left_of(self, rows: Iterable[Seen], ask: Ask) -> list[tuple[Message, ...]]:
        """What a call was given in the place of this thread: what is known is carried, the rest is its summary."""
        known = {row.words: row.messages for row in self.rows}
        place = Source(self._file, ask.line)
        return [
            tuple(structs.replace(message, carried=True) for message in known[row.words])
            if row.words in known
            else tuple(_summary(message, f"{ask.place}-left-{number}", place, ask.start) for message in row.messages)
            for number, row in enumerate(rows)
        ]

    @property
    def messages(self) -> list[Message]:
        """The messages of the last segment."""
        return [message for row in self.rows for message in row.messages]

    def histories(self) -> list[History]:
        """What the model was given, in segments."""
        found: list[History] = []
        for messages in (*self.before, self.messages):
            found.append(History(tuple(settled(messages, sum(map(len, found)))), self.asks[-1].tools))
        return found

    def taken_back(self) -> Iterator[Branch]:
        """What was taken back."""
        return (Branch(History(tuple(settled(messages))), after) for after, messages in self.branches)


def _summary(message: Message, id_: str, place: Source, time: datetime | None) -> Message:
    told = structs.replace(message, id=id_, source=place, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return told
    return structs.replace(told, role="user", parts=(Summary(message.text),), author="harness")
