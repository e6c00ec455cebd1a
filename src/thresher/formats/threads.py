"""From single model calls to conversations: each call is told with the whole history that it was given.

What a call was given is compared with the threads so far, message by message. A call goes on with a thread that it
extends, that it repeats up to the last answer, or whose last message it holds. One that goes back behind an answer
takes back what followed. Anything else begins a thread.

A thread that begins with less than another one had, shares some of it, and is gone on with while the other is not, is
the other after a compaction. All comparisons are by hash, so the time is that of reading the histories once.
"""

from collections.abc import Sequence
from itertools import takewhile

from thresher.formats.thread import Ask, Seen, Thread, pieces, seen


class Threads:
    """All conversations of a file; calls are added in the order of time."""

    def __init__(self, file: str) -> None:
        """None yet."""
        self.all: list[Thread] = []
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
        """The thread of each conversation that was gone on with last."""

    def add(self, ask: Ask) -> None:
        """Add a call to the thread that it belongs to."""
        given = [seen(message) for message in ask.given]
        thread = self._continued(ask, given)
        if thread is None:
            thread = Thread(ask, self._file)
            self.all.append(thread)
            thread.grow(ask, given)
            thread.began = self._count
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
        for message in ask.said:
            self._calls |= {(ask.talk, call.id): thread for call in message.calls if call.id}
        if ask.talk:
            self._newest[ask.talk] = thread

    def _continued(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """The thread that a call goes on with, after it has."""
        states = [0]
        for row in given:
            states.append(hash((states[-1], row.mark)))
        thread, shared = self._longest(ask, states)
        if thread and _repeats(thread, ask, given, shared):
            return thread
        for place in range(len(given), 0, -1):
            other = self._ends.get((ask.talk, states[place]))
            if other and other.states[-1:] == [states[place]] and _is_beside(other, ask):
                other.grow(ask, given[place:])
                return other
        if found := self._by_last(ask, given):
            return found
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
        """A thread whose last message is among what was given, or the last one before its answer: all that stands
        before it was changed, shortened, or is missing.
        """
        agent = self._agents.get(ask.scope, ask.scope)
        for place in range(len(given) - 1, -1, -1):
            thread = self._last.get((ask.talk, agent, given[place].mark))
            if not thread or (not ask.is_cut and given[0].mark != thread.rows[0].mark):
                continue
            is_last = thread.rows[-1].mark == given[place].mark
            if not is_last and (not thread.answer or thread.rows[thread.answer - 1].mark != given[place].mark):
                continue
            is_new = any(row.words not in thread.known for row in given[:place])
            if is_new and is_last and place + 1 < len(thread.rows) and not ask.is_cut:
                thread.go_on_from(given[: place + 1], ask)
            if is_last:
                thread.grow(ask, given[place + 1 :])
                return thread
            if _answers(thread, ask, given, place + 1):
                return thread
        return None

    def _by_call(self, ask: Ask, given: Sequence[Seen]) -> Thread | None:
        """A thread whose call is answered by the first message: some APIs are given only what is new."""
        new = [row for row in given if row.role != "system"]
        results = (result for row in new[:1] for message in row.messages for result in message.results)
        first = next((result.call_id for result in results if result.call_id), "")
        thread = self._calls.get((ask.talk, first)) if first else None
        if thread and (thread.scope == ask.scope or _is_beside(thread, ask)):
            thread.grow(ask, new)
            return thread
        return None

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
        for thread in self.all:
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
    left = earlier.left_of(map(seen, parts[0][: later.started]), later.asks[0])
    parts[0] = [*(message for messages in left for message in messages), *parts[0][later.started :]]
    earlier.before += [earlier.messages, *parts[:-1]]
    earlier.rows = [seen(message) for message in parts[-1]]
    earlier.asks += later.asks
    earlier.answers |= later.answers
    earlier.latest = later.latest
    earlier.known |= later.known
    earlier.branches += later.branches


def _repeats(thread: Thread, ask: Ask, given: Sequence[Seen], shared: int) -> bool:
    """Go on where a call was given all of a thread, or all up to its last answer."""
    if shared == len(thread.rows):
        thread.grow(ask, given[shared:])
        return True
    return shared >= thread.answer and _answers(thread, ask, given, thread.answer)


def _answers(thread: Thread, ask: Ask, given: Sequence[Seen], place: int) -> bool:
    """Go on where a call was given all up to the last answer: with that in another form, or asking again for it."""
    if place == len(given):
        if [row.mark for row in thread.rows[thread.answer :]] != [seen(message).mark for message in ask.said]:
            thread.go_back(thread.answer)
            thread.grow(ask, [])
        return True  # else it is the same call, told by two instruments
    if given[place].role != "assistant":
        return False
    parts = {piece for row in thread.rows[thread.answer :] for m in row.messages for piece in pieces(m.parts)}
    end = place + 1
    while end < len(given) and given[end].role == "assistant":
        if not parts.issuperset(piece for message in given[end].messages for piece in pieces(message.parts)):
            break
        end += 1
    thread.restate(given[place:end])
    thread.grow(ask, given[end:])
    return True


def _is_beside(thread: Thread, ask: Ask) -> bool:
    """Whether a thread of another agent may be gone on with: not by one that works inside it."""
    answered = any(row.role == "assistant" for row in thread.rows)
    return answered and thread.scope not in ask.around and ask.scope not in thread.asks[0].around
