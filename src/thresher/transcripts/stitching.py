"""From single model calls to conversations: each call is told with the whole history that it was given.

A message is known again by a mark: its role and words, and the ids of calls, so that an answer is known in whatever
form it is given back. A system's prompt is known by its beginning: further on it may tell the time, or the open files.

What a call was given is compared with the threads so far, message by message. A call goes on with a thread that it
extends, that it repeats up to the last answer, or whose last message it holds. One that goes back behind an answer
takes back what followed. Anything else begins a thread.

A thread that begins with less than another one had, shares some of it, and is gone on with while the other is not, is
the other after a compaction. All comparisons are by hash, so the time is that of reading the histories once.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from thresher.model import AbandonedBranch, History, Message, SourceLocation
from thresher.transcripts.content import mark_carried
from thresher.transcripts.fingerprints import (
    MarkedMessage,
    fingerprint_message,
    fingerprint_parts,
    make_summary_message,
)
from thresher.transcripts.model_calls import LoggedCall
from thresher.transcripts.pairing import pair_chat_messages


class CallThread:
    """One conversation, as far as it is known."""

    def __init__(self, ask: LoggedCall, number: int, file: str) -> None:
        """An empty one, which the call of that number begins."""
        self.model_calls: list[LoggedCall] = []
        self.calls_by_message_id: dict[str, LoggedCall] = {}
        """The call that each answer came by, by the id of the message."""
        self.agent_key = ask.agent_key
        self.entries: list[MarkedMessage] = []
        self.prefix_hashes: list[int] = []
        """What stands up to each row, as one mark."""
        self.earlier_segments: list[list[Message]] = []
        """What the model was given before each compaction."""
        self.branches: list[tuple[str, list[Message]]] = []
        """What was taken back, and after which message."""
        self.answer_start = 0
        """Where the last answer begins."""
        self.first_call_number = self.last_call_number = number
        """The numbers of its first and its last call, by time."""
        self.initial_input_count = len(ask.input_messages)
        """How many messages its first call was given."""
        self.known_fingerprints: set[int] = set()
        """The words of all that was ever in it."""
        self._file = file

    def append_call(self, ask: LoggedCall, given: Iterable[MarkedMessage]) -> None:
        """What is new of what a call was given, and its answer."""
        self.model_calls.append(ask._replace(input_messages=(), output_messages=(), alternatives=()))
        place = SourceLocation(self._file, ask.line)
        for number, row in enumerate(given):
            facts = {"id": f"{ask.number}-{number}", "source": place}
            came = [replace(message, time=message.time or ask.start, **facts) for message in row.messages]
            self._append_entry(row._replace(messages=tuple(came)))
        self.answer_start = len(self.entries)
        for number, message in enumerate(ask.output_messages):
            told = replace(
                message,
                id=f"{ask.number}-answer-{number}" if number else f"{ask.number}",
                source=place,
                time=ask.end or ask.start,
                model=ask.model,
                usage=None if number else ask.usage,
            )
            self.calls_by_message_id[told.id] = self.model_calls[-1]
            self._append_entry(fingerprint_message(message)._replace(messages=(told,)))
        for number, message in enumerate(ask.alternatives):
            other = replace(message, id=f"{ask.number}-choice-{number}", source=place, model=ask.model)
            self._add_branch(self.answer_start, [other])

    def _append_entry(self, row: MarkedMessage) -> None:
        self.entries.append(row)
        self.known_fingerprints.add(row.text_fingerprint)
        self.prefix_hashes.append(hash((self.prefix_hashes[-1] if self.prefix_hashes else 0, row.fingerprint)))

    def restate_answer(self, given: Sequence[MarkedMessage]) -> None:
        """Know the last answer by the messages that it was given back as."""
        said = [message for row in self.entries[self.answer_start :] for message in row.messages]
        del self.entries[self.answer_start :], self.prefix_hashes[self.answer_start :]
        for number, row in enumerate(given):
            is_last = number == len(given) - 1
            self._append_entry(row._replace(messages=tuple(said[number:] if is_last else said[number : number + 1])))

    def rewind_to(self, place: int) -> None:
        """Take back what stands from a place on."""
        self._add_branch(place, [message for row in self.entries[place:] for message in row.messages])
        del self.entries[place:], self.prefix_hashes[place:]

    def _add_branch(self, place: int, messages: list[Message]) -> None:
        before = (self.entries[number].messages for number in range(place - 1, -1, -1))
        after = next((found[-1].id for found in before if found), "")
        self.branches += [(after, messages)] if messages else []

    def start_segment_after_compaction(self, rows: Sequence[MarkedMessage], ask: LoggedCall) -> None:
        """Begin anew with what is left after a compaction."""
        left = self.build_compacted_messages(rows, ask)
        self.earlier_segments.append(self.messages)
        self.entries, self.prefix_hashes = [], []
        for row, messages in zip(rows, left, strict=True):
            self._append_entry(row._replace(messages=messages))
        self.answer_start = len(self.entries)

    def build_compacted_messages(self, rows: Iterable[MarkedMessage], ask: LoggedCall) -> list[tuple[Message, ...]]:
        """What a call was given in the place of this thread: what is known is carried, the rest is its summary."""
        known = {row.text_fingerprint: row.messages for row in self.entries}
        place = SourceLocation(self._file, ask.line)
        return [
            tuple(mark_carried(known[row.text_fingerprint]))
            if row.text_fingerprint in known
            else tuple(
                make_summary_message(message, f"{ask.number}-left-{number}", place, ask.start)
                for message in row.messages
            )
            for number, row in enumerate(rows)
        ]

    @property
    def messages(self) -> list[Message]:
        """The messages of the last segment."""
        return [message for row in self.entries for message in row.messages]

    def histories(self) -> list[History]:
        """What the model was given, in segments."""
        found, before = [], 0
        for messages in (*self.earlier_segments, self.messages):
            found.append(History(tuple(pair_chat_messages(messages, before)), self.model_calls[-1].tools))
            before += len(found[-1])
        return found

    def iter_rewound_branches(self) -> Iterator[AbandonedBranch]:
        """What was taken back."""
        found = ((after, tuple(pair_chat_messages(messages))) for after, messages in self.branches)
        return (AbandonedBranch(History(messages), after) for after, messages in found)


class ThreadStitcher:
    """All conversations of a file; calls are added in the order of time."""

    def __init__(self, file: str) -> None:
        """None yet."""
        self._threads: list[CallThread] = []
        self._count = 0
        self._file = file
        self._threads_by_prefix: dict[tuple[str, str, int], CallThread] = {}
        """Thread by conversation, agent, and what stands up to any of its rows."""
        self._threads_by_end: dict[tuple[str, int], CallThread] = {}
        self._threads_by_last_message: dict[tuple[str, str, int], CallThread] = {}
        """Thread by conversation, agent, and last message."""
        self._threads_by_call_id: dict[tuple[str, str], CallThread] = {}
        self._agent_aliases: dict[str, str] = {}
        """The agent that began what another goes on with: a run each turn of one conversation."""
        self._newest_by_conversation: dict[str, CallThread] = {}
        """Thread by conversation: the one that was gone on with last."""

    def add(self, ask: LoggedCall) -> None:
        """Add a call to the thread that it belongs to."""
        given = [fingerprint_message(message) for message in ask.input_messages]
        thread = self._continue_thread(ask, given)
        if thread is None:
            thread = CallThread(ask, self._count, self._file)
            self._threads.append(thread)
            thread.append_call(ask, given)
        thread.last_call_number = self._count
        self._count += 1
        self._index_thread(thread, ask)

    def _index_thread(self, thread: CallThread, ask: LoggedCall) -> None:
        """Make a thread known by what it is now."""
        agent = self._agent_aliases[ask.agent_key] = thread.agent_key
        for place in range(len(thread.prefix_hashes) - 1, -1, -1):
            key = (ask.conversation_id, agent, thread.prefix_hashes[place])
            if self._threads_by_prefix.get(key) is thread:
                break
            self._threads_by_prefix[key] = thread
        if thread.entries:
            self._threads_by_end[ask.conversation_id, thread.prefix_hashes[-1]] = thread
            for row in (thread.entries[thread.answer_start - 1 : thread.answer_start], thread.entries[-1:]):
                self._threads_by_last_message |= {(ask.conversation_id, agent, one.fingerprint): thread for one in row}
        self._threads_by_call_id |= {
            (ask.conversation_id, call.id): thread
            for message in ask.output_messages
            for call in message.calls
            if call.id
        }
        if ask.conversation_id:
            self._newest_by_conversation[ask.conversation_id] = thread

    def _continue_thread(self, ask: LoggedCall, given: Sequence[MarkedMessage]) -> CallThread | None:
        """The thread that a call goes on with, after it has."""
        states = [0]
        for row in given:
            states.append(hash((states[-1], row.fingerprint)))
        thread, shared = self._find_longest_prefix(ask, states)
        if thread and shared == len(thread.entries):
            thread.append_call(ask, given[shared:])
            return thread
        if thread and shared >= thread.answer_start and _continue_after_answer(thread, ask, given, thread.answer_start):
            return thread
        for place in range(len(given), 0, -1):
            other = self._threads_by_end.get((ask.conversation_id, states[place]))
            if other and other.prefix_hashes[-1:] == [states[place]] and _is_sibling_agent(other, ask):
                other.append_call(ask, given[place:])
                return other
        if other := self._continue_by_last_message(ask, given):
            return other
        if thread and any(row.role == "assistant" for row in given[:shared]):
            thread.rewind_to(shared)
            thread.append_call(ask, given[shared:])
            return thread
        return self._continue_by_call_id(ask, given) or self._continue_by_conversation_id(ask, given)

    def _find_longest_prefix(self, ask: LoggedCall, states: Sequence[int]) -> tuple[CallThread | None, int]:
        """The agent's thread that shares the longest beginning, and how long that is."""
        agent = self._agent_aliases.get(ask.agent_key, ask.agent_key)
        for place in range(len(states) - 1, 0, -1):
            thread = self._threads_by_prefix.get((ask.conversation_id, agent, states[place]))
            if thread and len(thread.prefix_hashes) >= place and thread.prefix_hashes[place - 1] == states[place]:
                return thread, place
        return None, 0

    def _continue_by_last_message(self, ask: LoggedCall, given: Sequence[MarkedMessage]) -> CallThread | None:
        """A thread whose last message, or the last before its answer, was given: what stands before it was changed."""
        agent = self._agent_aliases.get(ask.agent_key, ask.agent_key)
        for place in range(len(given) - 1, -1, -1):
            thread = self._threads_by_last_message.get((ask.conversation_id, agent, given[place].fingerprint))
            if not thread or (not ask.is_truncated and given[0].fingerprint != thread.entries[0].fingerprint):
                continue
            is_last = thread.entries[-1].fingerprint == given[place].fingerprint
            if not is_last and (
                not thread.answer_start
                or thread.entries[thread.answer_start - 1].fingerprint != given[place].fingerprint
            ):
                continue
            if not is_last:
                if _continue_after_answer(thread, ask, given, place + 1):
                    return thread
                continue
            is_new = any(row.text_fingerprint not in thread.known_fingerprints for row in given[:place])
            if is_new and place + 1 < len(thread.entries) and not ask.is_truncated:
                thread.start_segment_after_compaction(given[: place + 1], ask)
            thread.append_call(ask, given[place + 1 :])
            return thread
        return None

    def _continue_by_call_id(self, ask: LoggedCall, given: Sequence[MarkedMessage]) -> CallThread | None:
        """A thread whose call is answered by the first message: some APIs are given only what is new."""
        new = [row for row in given if row.role != "system"]
        results = (result for row in new[:1] for message in row.messages for result in message.results)
        first = next((result.call_id for result in results if result.call_id), "")
        thread = self._threads_by_call_id.get((ask.conversation_id, first))
        if not thread or not (thread.agent_key == ask.agent_key or _is_sibling_agent(thread, ask)):
            return None
        thread.append_call(ask, new)
        return thread

    def _continue_by_conversation_id(self, ask: LoggedCall, given: Sequence[MarkedMessage]) -> CallThread | None:
        """The conversation that is told, where a later trace holds only what is new."""
        is_top = bool(ask.conversation_id) and not ask.enclosing_agents
        thread = self._newest_by_conversation.get(ask.conversation_id) if is_top else None
        if not thread or thread.model_calls[-1].trace_id == ask.trace_id or thread.model_calls[-1].enclosing_agents:
            return None
        known = {row.fingerprint for row in takewhile(lambda row: row.role == "system", thread.entries)}
        other = {row.fingerprint for row in given if row.role == "system"} - known
        if other or any(row.role == "assistant" for row in given):
            return None
        thread.append_call(ask, [row for row in given if row.fingerprint not in known])
        return thread

    def merge_threads(self) -> list[CallThread]:
        """All threads, those that a compaction parted joined again."""
        kept: dict[tuple[str, int], CallThread] = {}
        found: list[CallThread] = []
        for thread in self._threads:
            key = (thread.agent_key, thread.entries[0].fingerprint) if thread.entries else ("", 0)
            earlier = kept.get(key)
            if earlier and _is_compaction_of(earlier, thread):
                _join_compacted(earlier, thread)
            else:
                kept[key] = thread
                found.append(thread)
        return found


def _is_compaction_of(earlier: CallThread, later: CallThread) -> bool:
    """Whether a thread is what is left of another: shorter, not all new, and the only one that is gone on with."""
    if (
        len(later.model_calls) < 2
        or later.initial_input_count >= len(earlier.entries)
        or earlier.last_call_number > later.first_call_number
    ):
        return False
    given = later.entries[: later.initial_input_count]
    return any(row.text_fingerprint in earlier.known_fingerprints for row in given if row.role != "system")


def _join_compacted(earlier: CallThread, later: CallThread) -> None:
    """Make a thread the next segment of another."""
    parts = [*later.earlier_segments, later.messages]
    given = map(fingerprint_message, parts[0][: later.initial_input_count])
    left = earlier.build_compacted_messages(given, later.model_calls[0])
    parts[0] = [*(message for messages in left for message in messages), *parts[0][later.initial_input_count :]]
    earlier.earlier_segments += [earlier.messages, *parts[:-1]]
    earlier.entries = [fingerprint_message(message) for message in parts[-1]]
    earlier.model_calls += later.model_calls
    earlier.calls_by_message_id |= later.calls_by_message_id
    earlier.last_call_number = later.last_call_number
    earlier.known_fingerprints |= later.known_fingerprints
    earlier.branches += later.branches


def _continue_after_answer(thread: CallThread, ask: LoggedCall, given: Sequence[MarkedMessage], place: int) -> bool:
    """Go on where a call was given all up to the last answer: with that in another form, or asking again for it."""
    if place == len(given):
        if [row.fingerprint for row in thread.entries[thread.answer_start :]] != [
            fingerprint_message(message).fingerprint for message in ask.output_messages
        ]:
            thread.rewind_to(thread.answer_start)
            thread.append_call(ask, [])
        return True  # else it is the same call, told by two instruments
    if given[place].role != "assistant":
        return False
    answers = (message for row in thread.entries[thread.answer_start :] for message in row.messages)
    parts = {piece for message in answers for piece in fingerprint_parts(message.parts)}
    end = place + 1
    while end < len(given) and given[end].role == "assistant":
        if not parts.issuperset(piece for message in given[end].messages for piece in fingerprint_parts(message.parts)):
            break
        end += 1
    thread.restate_answer(given[place:end])
    thread.append_call(ask, given[end:])
    return True


def _is_sibling_agent(thread: CallThread, ask: LoggedCall) -> bool:
    """Whether a thread of another agent may be gone on with: not by one that works inside it."""
    answered = any(row.role == "assistant" for row in thread.entries)
    first = thread.model_calls[0]
    is_inside = thread.agent_key in ask.enclosing_agents or ask.agent_key in first.enclosing_agents
    return answered and not is_inside
