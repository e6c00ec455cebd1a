"""Stitch logged model calls into threads, one per conversation. The log of a call has the whole input history.

The stitcher compares messages by fingerprint, a hash of the role and the content. The fingerprint of a system prompt
covers only the start, since the rest can contain the time or a list of open files.

The stitcher compares the input of each call with the existing threads. A call continues a thread in these cases:

- The input starts with all messages of the thread, or with all messages before the last answer.
- The input contains the last message of the thread, or the last message before the last answer.
- The input starts with the first messages of the thread, and one of these is an answer. The other messages of the
  thread are rewound.
- The input has only new messages, and answers a tool call of the thread or has the same conversation id.

Any other call starts a new thread. Afterwards, a thread that continues an earlier thread after a compaction becomes
the next segment of the earlier thread. Such a thread starts after the earlier thread ends. Its first input has fewer
messages than the earlier thread, and repeats at least one message of that thread. Comparisons use hashes, so the time
is linear in the size of the input.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile

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
    """The model calls of one conversation."""

    def __init__(self, call: LoggedCall, number: int, file: str) -> None:
        """Create an empty thread. `call` will be its first call, and is call `number` of the file by time."""
        self.model_calls: list[LoggedCall] = []
        self.calls_by_message_id: dict[str, LoggedCall] = {}
        """Message id → the model call whose answer contains the message."""
        self.agent_key = call.agent_key
        self.entries: list[MarkedMessage] = []
        self.prefix_hashes: list[int] = []
        """For each entry, the hash of all entries up to and including it."""
        self.earlier_segments: list[list[Message]] = []
        """Messages of every segment before the last one."""
        self.branches: list[tuple[str, list[Message]]] = []
        """Rewound branches: the id of the message before the branch, and the messages of the branch."""
        self.answer_start = 0
        """Index of the first entry of the last answer."""
        self.first_call_number = self.last_call_number = number
        """Numbers of the first call and the last call in order of time."""
        self.initial_input_count = len(call.input_messages)
        """Number of input messages of the first call."""
        self.known_fingerprints: set[int] = set()
        """Text fingerprints of all entries, including the entries that were rewound."""
        self._file = file

    def append_call(self, call: LoggedCall, new_input: Iterable[MarkedMessage]) -> None:
        """Append the new input messages of a call, and its answer."""
        self.model_calls.append(call._replace(input_messages=(), output_messages=(), alternatives=()))
        location = SourceLocation(self._file, call.line)
        for number, entry in enumerate(new_input):
            id_ = f"{call.number}-{number}"
            messages = [
                replace(message, id=id_, source=location, time=message.time or call.start) for message in entry.messages
            ]
            self._append_entry(entry._replace(messages=tuple(messages)))
        self.answer_start = len(self.entries)
        for number, message in enumerate(call.output_messages):
            answer = replace(
                message,
                id=f"{call.number}-answer-{number}" if number else f"{call.number}",
                source=location,
                time=call.end or call.start,
                model=call.model,
                usage=None if number else call.usage,
            )
            self.calls_by_message_id[answer.id] = self.model_calls[-1]
            self._append_entry(fingerprint_message(message)._replace(messages=(answer,)))
        for number, message in enumerate(call.alternatives):
            choice = replace(message, id=f"{call.number}-choice-{number}", source=location, model=call.model)
            self._add_branch(self.answer_start, [choice])

    def _append_entry(self, entry: MarkedMessage) -> None:
        self.entries.append(entry)
        self.known_fingerprints.add(entry.text_fingerprint)
        self.prefix_hashes.append(hash((self.prefix_hashes[-1] if self.prefix_hashes else 0, entry.fingerprint)))

    def restate_answer(self, restated: Sequence[MarkedMessage]) -> None:
        """Replace the entries of the last answer by `restated`, the form in which a later input repeats the answer.

        The messages of the original answer stay: they become the messages of the new entries.
        """
        answer = [message for entry in self.entries[self.answer_start :] for message in entry.messages]
        del self.entries[self.answer_start :], self.prefix_hashes[self.answer_start :]
        for number, entry in enumerate(restated):
            end = None if number == len(restated) - 1 else number + 1
            self._append_entry(entry._replace(messages=tuple(answer[number:end])))

    def rewind_to(self, index: int) -> None:
        """Move all entries from `index` to the end into a branch."""
        self._add_branch(index, [message for entry in self.entries[index:] for message in entry.messages])
        del self.entries[index:], self.prefix_hashes[index:]

    def _add_branch(self, index: int, messages: list[Message]) -> None:
        before = (self.entries[number].messages for number in reversed(range(index)))
        after = next((earlier[-1].id for earlier in before if earlier), "")
        self.branches += [(after, messages)] if messages else []

    def start_segment_after_compaction(self, entries: Sequence[MarkedMessage], call: LoggedCall) -> None:
        """Begin a segment. `entries` are the start of the input of `call`, the first call after a compaction."""
        remaining = self.build_compacted_messages(entries, call)
        self.earlier_segments.append(self.messages)
        self.entries, self.prefix_hashes = [], []
        for entry, messages in zip(entries, remaining, strict=True):
            self._append_entry(entry._replace(messages=messages))
        self.answer_start = len(self.entries)

    def build_compacted_messages(self, entries: Iterable[MarkedMessage], call: LoggedCall) -> list[tuple[Message, ...]]:
        """Return the messages of each entry of an input after a compaction.

        Messages that the thread already has are marked as carried. All other messages become summaries.
        """
        known = {entry.text_fingerprint: entry.messages for entry in self.entries}
        location = SourceLocation(self._file, call.line)
        return [
            tuple(mark_carried(known[entry.text_fingerprint]))
            if entry.text_fingerprint in known
            else tuple(
                make_summary_message(message, f"{call.number}-left-{number}", location, call.start)
                for message in entry.messages
            )
            for number, entry in enumerate(entries)
        ]

    @property
    def messages(self) -> list[Message]:
        """Messages of the last segment."""
        return [message for entry in self.entries for message in entry.messages]

    def histories(self) -> list[History]:
        """Return the history of each segment."""
        histories: list[History] = []
        before = 0
        for messages in (*self.earlier_segments, self.messages):
            histories.append(History(tuple(pair_chat_messages(messages, before)), self.model_calls[-1].tools))
            before += len(histories[-1])
        return histories

    def iter_rewound_branches(self) -> Iterator[AbandonedBranch]:
        """Yield the rewound branches."""
        for after, messages in self.branches:
            yield AbandonedBranch(History(tuple(pair_chat_messages(messages))), after)


class ThreadStitcher:
    """The threads of a file. Callers must add the model calls in order of time."""

    def __init__(self, file: str) -> None:
        """Start without threads."""
        self._threads: list[CallThread] = []
        self._count = 0
        self._file = file
        self._threads_by_prefix: dict[tuple[str, str, int], CallThread] = {}
        """Conversation id, agent key and the prefix hash of any entry → thread."""
        self._threads_by_end: dict[tuple[str, int], CallThread] = {}
        """Conversation id and the prefix hash of the last entry → thread."""
        self._threads_by_last_message: dict[tuple[str, str, int], CallThread] = {}
        """Conversation id, agent key and a fingerprint → thread.

        The fingerprint is of the thread's last message, or of the last message before the last answer.
        """
        self._threads_by_call_id: dict[tuple[str, str], CallThread] = {}
        """Conversation id and the id of a tool call in an answer → thread."""
        self._agent_aliases: dict[str, str] = {}
        """Agent key → key of the agent that started the thread. Some agents get a new key for each turn."""
        self._newest_by_conversation: dict[str, CallThread] = {}
        """Conversation id → the thread that received the latest call."""

    def add(self, call: LoggedCall) -> None:
        """Add a model call to the matching thread, or to a new one."""
        entries = [fingerprint_message(message) for message in call.input_messages]
        thread = self._continue_thread(call, entries)
        if thread is None:
            thread = CallThread(call, self._count, self._file)
            self._threads.append(thread)
            thread.append_call(call, entries)
        thread.last_call_number = self._count
        self._count += 1
        self._index_thread(thread, call)

    def _index_thread(self, thread: CallThread, call: LoggedCall) -> None:
        """Update the indexes for the current state of a thread."""
        agent = self._agent_aliases[call.agent_key] = thread.agent_key
        for prefix_hash in reversed(thread.prefix_hashes):
            key = (call.conversation_id, agent, prefix_hash)
            if self._threads_by_prefix.get(key) is thread:
                break
            self._threads_by_prefix[key] = thread
        if thread.entries:
            self._threads_by_end[call.conversation_id, thread.prefix_hashes[-1]] = thread
            for entry in (*thread.entries[thread.answer_start - 1 : thread.answer_start], thread.entries[-1]):
                self._threads_by_last_message[call.conversation_id, agent, entry.fingerprint] = thread
        for message in call.output_messages:
            for tool_call in message.calls:
                if tool_call.id:
                    self._threads_by_call_id[call.conversation_id, tool_call.id] = thread
        if call.conversation_id:
            self._newest_by_conversation[call.conversation_id] = thread

    def _continue_thread(self, call: LoggedCall, entries: Sequence[MarkedMessage]) -> CallThread | None:
        """Append a call to the thread that the call continues, and return this thread; None if no thread matches."""
        hashes = [0]
        for entry in entries:
            hashes.append(hash((hashes[-1], entry.fingerprint)))
        thread, shared = self._find_longest_prefix(call, hashes)
        if thread and shared == len(thread.entries):
            thread.append_call(call, entries[shared:])
            return thread
        start = thread.answer_start if thread else 0
        if thread and shared >= start and _continue_after_answer(thread, call, entries, start):
            return thread
        for index in range(len(entries), 0, -1):
            other = self._threads_by_end.get((call.conversation_id, hashes[index]))
            if other and other.prefix_hashes[-1:] == [hashes[index]] and _is_sibling_agent(other, call):
                other.append_call(call, entries[index:])
                return other
        if other := self._continue_by_last_message(call, entries):
            return other
        if thread and any(entry.role == "assistant" for entry in entries[:shared]):
            thread.rewind_to(shared)
            thread.append_call(call, entries[shared:])
            return thread
        return self._continue_by_call_id(call, entries) or self._continue_by_conversation_id(call, entries)

    def _find_longest_prefix(self, call: LoggedCall, hashes: Sequence[int]) -> tuple[CallThread | None, int]:
        """Return the thread of the calling agent that shares the longest prefix with the input, and the length."""
        agent = self._agent_aliases.get(call.agent_key, call.agent_key)
        for length in range(len(hashes) - 1, 0, -1):
            thread = self._threads_by_prefix.get((call.conversation_id, agent, hashes[length]))
            if thread and len(thread.prefix_hashes) >= length and thread.prefix_hashes[length - 1] == hashes[length]:
                return thread, length
        return None, 0

    def _continue_by_last_message(self, call: LoggedCall, entries: Sequence[MarkedMessage]) -> CallThread | None:
        """Continue a thread if the input contains the thread's last message, or the last message before the answer.

        The messages before this message may differ from the messages of the thread.
        """
        agent = self._agent_aliases.get(call.agent_key, call.agent_key)
        for index in range(len(entries) - 1, -1, -1):
            fingerprint = entries[index].fingerprint
            thread = self._threads_by_last_message.get((call.conversation_id, agent, fingerprint))
            if not thread or (not call.is_truncated and entries[0].fingerprint != thread.entries[0].fingerprint):
                continue
            if thread.entries[-1].fingerprint != fingerprint:
                start = thread.answer_start
                is_before_answer = start > 0 and thread.entries[start - 1].fingerprint == fingerprint
                if is_before_answer and _continue_after_answer(thread, call, entries, index + 1):
                    return thread
                continue
            has_new = any(entry.text_fingerprint not in thread.known_fingerprints for entry in entries[:index])
            if has_new and index + 1 < len(thread.entries) and not call.is_truncated:
                thread.start_segment_after_compaction(entries[: index + 1], call)
            thread.append_call(call, entries[index + 1 :])
            return thread
        return None

    def _continue_by_call_id(self, call: LoggedCall, entries: Sequence[MarkedMessage]) -> CallThread | None:
        """Continue a thread if the first new message answers a tool call of the thread.

        This happens with APIs that receive only new messages.
        """
        new = [entry for entry in entries if entry.role != "system"]
        results = (result for entry in new[:1] for message in entry.messages for result in message.results)
        call_id = next((result.call_id for result in results if result.call_id), "")
        thread = self._threads_by_call_id.get((call.conversation_id, call_id))
        if not thread or not (thread.agent_key == call.agent_key or _is_sibling_agent(thread, call)):
            return None
        thread.append_call(call, new)
        return thread

    def _continue_by_conversation_id(self, call: LoggedCall, entries: Sequence[MarkedMessage]) -> CallThread | None:
        """Continue the latest thread with the same conversation id, if the call has only new messages.

        The call must belong to another trace than the last call of the thread.
        """
        is_top = bool(call.conversation_id) and not call.enclosing_agents
        thread = self._newest_by_conversation.get(call.conversation_id) if is_top else None
        if not thread or thread.model_calls[-1].trace_id == call.trace_id or thread.model_calls[-1].enclosing_agents:
            return None
        known = {entry.fingerprint for entry in takewhile(lambda entry: entry.role == "system", thread.entries)}
        has_new_system = any(entry.role == "system" and entry.fingerprint not in known for entry in entries)
        if has_new_system or any(entry.role == "assistant" for entry in entries):
            return None
        thread.append_call(call, [entry for entry in entries if entry.fingerprint not in known])
        return thread

    def merge_threads(self) -> list[CallThread]:
        """Merge the threads that a compaction separated, and return all threads."""
        latest: dict[tuple[str, int], CallThread] = {}
        merged: list[CallThread] = []
        for thread in self._threads:
            key = (thread.agent_key, thread.entries[0].fingerprint) if thread.entries else ("", 0)
            earlier = latest.get(key)
            if earlier and _is_compaction_of(earlier, thread):
                _join_compacted(earlier, thread)
            else:
                latest[key] = thread
                merged.append(thread)
        return merged


def _is_compaction_of(earlier: CallThread, later: CallThread) -> bool:
    """Return whether `later` continues `earlier` after a compaction.

    The first input of `later` must be shorter than `earlier`, and repeat a message of `earlier`.
    """
    if (
        len(later.model_calls) < 2
        or later.initial_input_count >= len(earlier.entries)
        or earlier.last_call_number > later.first_call_number
    ):
        return False
    initial = later.entries[: later.initial_input_count]
    return any(entry.text_fingerprint in earlier.known_fingerprints for entry in initial if entry.role != "system")


def _join_compacted(earlier: CallThread, later: CallThread) -> None:
    """Append the segments of the thread `later` to the thread `earlier`."""
    segments = [*later.earlier_segments, later.messages]
    initial = map(fingerprint_message, segments[0][: later.initial_input_count])
    remaining = earlier.build_compacted_messages(initial, later.model_calls[0])
    segments[0] = [*chain.from_iterable(remaining), *segments[0][later.initial_input_count :]]
    earlier.earlier_segments += [earlier.messages, *segments[:-1]]
    earlier.entries = [fingerprint_message(message) for message in segments[-1]]
    earlier.model_calls += later.model_calls
    earlier.calls_by_message_id |= later.calls_by_message_id
    earlier.last_call_number = later.last_call_number
    earlier.known_fingerprints |= later.known_fingerprints
    earlier.branches += later.branches


def _continue_after_answer(thread: CallThread, call: LoggedCall, entries: Sequence[MarkedMessage], index: int) -> bool:
    """Continue a thread if the input repeats the last answer or requests it again. Return whether it does.

    The input before `index` matches the messages before the last answer. A repeated answer starts at `index` and can
    have another form. An input that ends at `index` requests the answer again.
    """
    if index == len(entries):
        answer = [fingerprint_message(message).fingerprint for message in call.output_messages]
        if [entry.fingerprint for entry in thread.entries[thread.answer_start :]] != answer:
            thread.rewind_to(thread.answer_start)
            thread.append_call(call, [])
        return True  # if the answer is the same, two loggers recorded one call
    if entries[index].role != "assistant":
        return False
    answers = (message for entry in thread.entries[thread.answer_start :] for message in entry.messages)
    known = {part for message in answers for part in fingerprint_parts(message.parts)}
    end = index + 1
    while end < len(entries) and entries[end].role == "assistant":
        if not known.issuperset(part for message in entries[end].messages for part in fingerprint_parts(message.parts)):
            break
        end += 1
    thread.restate_answer(entries[index:end])
    thread.append_call(call, entries[end:])
    return True


def _is_sibling_agent(thread: CallThread, call: LoggedCall) -> bool:
    """Return whether another agent can continue a thread: the thread has an answer, and the agents are not nested."""
    has_answer = any(entry.role == "assistant" for entry in thread.entries)
    first = thread.model_calls[0]
    is_nested = thread.agent_key in call.enclosing_agents or call.agent_key in first.enclosing_agents
    return has_answer and not is_nested
