"""From single model calls to conversations: each call is told with the whole history that it was given.

A message is known again by a mark: its role and words, and the ids of calls, so that an answer is known in whatever
form it is given back. A system's prompt is known by its beginning: further on it may tell the time, or the open files.

What a call was given is compared with the threads so far, message by message. A call goes on with a thread that it
extends, that it repeats up to the last answer, or whose last message it holds. One that goes back behind an answer
takes back what followed. Anything else begins a thread.

A thread that begins with less than another one had, shares some of it, and is gone on with while the other is not, is
the other after a compaction. All comparisons are by hash, so the time is that of reading the histories once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from msgspec import structs

from thresher.formats.settling import settled
from thresher.model import Branch, History, Message, Role, Source, Usage
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

PROMPT = 200
"""Characters by which a system's prompt is known."""
_NUMBER = re.compile(r"\d+")


class Ask(NamedTuple):
    """One call of a model."""

    place: int
    """Its number in the file."""
    line: int
    """Where it stands there."""
    scope: str = ""
    """The agent it was made by."""
    around: frozenset[str] = frozenset()
    """The agents around that one."""
    talk: str = ""
    """The conversation it belongs to, if that is told."""
    trace: str = ""
    given: Sequence[Message] = ()
    said: Sequence[Message] = ()
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


def _seen(message: Message) -> Seen:
    """A message with its marks."""
    words = hash(_NUMBER.sub("", message.text[:PROMPT]) if message.role == "system" else tuple(_pieces(message.parts)))
    return Seen((message,), message.role, hash((message.role, words)), words)


def _pieces(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
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

    def __init__(self, ask: Ask, number: int, file: str) -> None:
        """An empty one, which the call of that number begins."""
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
        self.began = self.latest = number
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
            facts = {"id": f"{ask.place}-{number}", "source": place}
            came = [structs.replace(message, time=message.time or ask.start, **facts) for message in row.messages]
            self._add(row._replace(messages=tuple(came)))
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
            self._add(_seen(message)._replace(messages=(told,)))
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
        self.branches += [(after, messages)] if messages else []

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
        found, before = [], 0
        for messages in (*self.before, self.messages):
            found.append(History(tuple(settled(messages, before)), self.asks[-1].tools))
            before += len(found[-1])
        return found

    def taken_back(self) -> Iterator[Branch]:
        """What was taken back."""
        return (Branch(History(tuple(settled(messages))), after) for after, messages in self.branches)


def _summary(message: Message, id_: str, place: Source, time: datetime | None) -> Message:
    told = structs.replace(message, id=id_, source=place, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return told
    return structs.replace(told, role="user", parts=(Summary(message.text),), author="harness")


class Threads:
    """All conversations of a file; calls are added in the order of time."""

    def __init__(self, file: str) -> None:
        """None yet."""
        self._all: list[Thread] = []
        self._count = 0
        self._file = file
        self._states: dict[tuple[str, str, int], Thread] = {}
        """Thread by conversation, agent, and what stands up to any of its rows."""
        self._ends: dict[tuple[str, int], Thread] = {}
        self._last: dict[tuple[str, str, int], Thread] = {}
        """Thread by conversation, agent, and last message."""
        self._calls: dict[tuple[str, str], Thread] = {}
        self._agents: dict[str, str] = {}
        """The agent that began what another goes on with: a run each turn of one conversation."""
        self._newest: dict[str, Thread] = {}
        """Thread by conversation: the one that was gone on with last."""

    def add(self, ask: Ask) -> None:
        """Add a call to the thread that it belongs to."""
        given = [_seen(message) for message in ask.given]
        thread = self._continued(ask, given)
        if thread is None:
            thread = Thread(ask, self._count, self._file)
            self._all.append(thread)
            thread.grow(ask, given)
        thread.latest = self._count
        self._count += 1
        self._note(thread, ask)

    def _note(self, thread: Thread, ask: Ask) -> None:
        """Make a thread known by what it is now."""
        agent = self._agents[ask.scope] = thread.scope
        for place in range(len(thread.states) - 1, -1, -1):
            key = (ask.talk, agent, thread.states[place])
            if self._states.get(key) is thread:
                break
            self._states[key] = thread
        if thread.rows:
            self._ends[ask.talk, thread.states[-1]] = thread
            for row in (thread.rows[thread.answer - 1 : thread.answer], thread.rows[-1:]):
                self._last |= {(ask.talk, agent, one.mark): thread for one in row}
        self._calls |= {(ask.talk, call.id): thread for message in ask.said for call in message.calls if call.id}
        if ask.talk:
            self._newest[ask.talk] = thread

    def _continued(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """The thread that a call goes on with, after it has."""
        states = [0]
        for row in given:
            states.append(hash((states[-1], row.mark)))
        thread, shared = self._longest(ask, states)
        if thread and shared == len(thread.rows):
            thread.grow(ask, given[shared:])
            return thread
        if thread and shared >= thread.answer and _answers(thread, ask, given, thread.answer):
            return thread
        for place in range(len(given), 0, -1):
            other = self._ends.get((ask.talk, states[place]))
            if other and other.states[-1:] == [states[place]] and _is_beside(other, ask):
                other.grow(ask, given[place:])
                return other
        if other := self._by_last(ask, given):
            return other
        if thread and any(row.role == "assistant" for row in given[:shared]):
            thread.go_back(shared)
            thread.grow(ask, given[shared:])
            return thread
        return self._by_call(ask, given) or self._by_conversation(ask, given)

    def _longest(self, ask: Ask, states: Sequence[int]) -> tuple[Thread | None, int]:
        """The agent's thread that shares the longest beginning, and how long that is."""
        agent = self._agents.get(ask.scope, ask.scope)
        for place in range(len(states) - 1, 0, -1):
            thread = self._states.get((ask.talk, agent, states[place]))
            if thread and len(thread.states) >= place and thread.states[place - 1] == states[place]:
                return thread, place
        return None, 0

    def _by_last(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """A thread whose last message, or the last before its answer, was given: what stands before it was changed."""
        agent = self._agents.get(ask.scope, ask.scope)
        for place in range(len(given) - 1, -1, -1):
            thread = self._last.get((ask.talk, agent, given[place].mark))
            if not thread or (not ask.is_cut and given[0].mark != thread.rows[0].mark):
                continue
            is_last = thread.rows[-1].mark == given[place].mark
            if not is_last and (not thread.answer or thread.rows[thread.answer - 1].mark != given[place].mark):
                continue
            if not is_last:
                if _answers(thread, ask, given, place + 1):
                    return thread
                continue
            is_new = any(row.words not in thread.known for row in given[:place])
            if is_new and place + 1 < len(thread.rows) and not ask.is_cut:
                thread.go_on_from(given[: place + 1], ask)
            thread.grow(ask, given[place + 1 :])
            return thread
        return None

    def _by_call(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """A thread whose call is answered by the first message: some APIs are given only what is new."""
        new = [row for row in given if row.role != "system"]
        results = (result for row in new[:1] for message in row.messages for result in message.results)
        first = next((result.call_id for result in results if result.call_id), "")
        thread = self._calls.get((ask.talk, first))
        if not thread or not (thread.scope == ask.scope or _is_beside(thread, ask)):
            return None
        thread.grow(ask, new)
        return thread

    def _by_conversation(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """The conversation that is told, where a later trace holds only what is new."""
        thread = self._newest.get(ask.talk) if ask.talk and not ask.around else None
        if not thread or thread.asks[-1].trace == ask.trace or thread.asks[-1].around:
            return None
        known = {row.mark for row in takewhile(lambda row: row.role == "system", thread.rows)}
        other = {row.mark for row in given if row.role == "system"} - known
        if other or any(row.role == "assistant" for row in given):
            return None
        thread.grow(ask, [row for row in given if row.mark not in known])
        return thread

    def conversations(self) -> list[Thread]:
        """All threads, those that a compaction parted joined again."""
        kept: dict[tuple[str, int], Thread] = {}
        found: list[Thread] = []
        for thread in self._all:
            key = (thread.scope, thread.rows[0].mark) if thread.rows else ("", 0)
            earlier = kept.get(key)
            if earlier and _was_compacted(earlier, thread):
                _join(earlier, thread)
            else:
                kept[key] = thread
                found.append(thread)
        return found


def _was_compacted(earlier: Thread, later: Thread) -> bool:
    """Whether a thread is what is left of another: shorter, not all new, and the only one that is gone on with."""
    if len(later.asks) < 2 or later.started >= len(earlier.rows) or earlier.latest > later.began:
        return False
    return any(row.words in earlier.known for row in later.rows[: later.started] if row.role != "system")


def _join(earlier: Thread, later: Thread) -> None:
    """Make a thread the next segment of another."""
    parts = [*later.before, later.messages]
    left = earlier.left_of(map(_seen, parts[0][: later.started]), later.asks[0])
    parts[0] = [*(message for messages in left for message in messages), *parts[0][later.started :]]
    earlier.before += [earlier.messages, *parts[:-1]]
    earlier.rows = [_seen(message) for message in parts[-1]]
    earlier.asks += later.asks
    earlier.answers |= later.answers
    earlier.latest = later.latest
    earlier.known |= later.known
    earlier.branches += later.branches


def _answers(thread: Thread, ask: Ask, given: Sequence[Seen], place: int) -> bool:
    """Go on where a call was given all up to the last answer: with that in another form, or asking again for it."""
    if place == len(given):
        if [row.mark for row in thread.rows[thread.answer :]] != [_seen(message).mark for message in ask.said]:
            thread.go_back(thread.answer)
            thread.grow(ask, [])
        return True  # else it is the same call, told by two instruments
    if given[place].role != "assistant":
        return False
    parts = {piece for row in thread.rows[thread.answer :] for m in row.messages for piece in _pieces(m.parts)}
    end = place + 1
    while end < len(given) and given[end].role == "assistant":
        if not parts.issuperset(piece for message in given[end].messages for piece in _pieces(message.parts)):
            break
        end += 1
    thread.restate(given[place:end])
    thread.grow(ask, given[end:])
    return True


def _is_beside(thread: Thread, ask: Ask) -> bool:
    """Whether a thread of another agent may be gone on with: not by one that works inside it."""
    answered = any(row.role == "assistant" for row in thread.rows)
    return answered and thread.scope not in ask.around and ask.scope not in thread.asks[0].around
