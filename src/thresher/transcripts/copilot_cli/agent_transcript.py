"""Collect the messages of one Copilot CLI agent by segment, with results directly after their calls.

Tools run in parallel, so results arrive in any order, with other events in between.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from thresher.model import AbandonedBranch, History, Message
from thresher.transcripts.content import mark_carried


class CopilotAgent:
    """Messages and state of the main agent or of a sub-agent."""

    def __init__(self, id_: str = "", call_id: str = "") -> None:
        """Start without messages. `id_` and `call_id` are empty for the main agent."""
        self.id = id_
        self.call_id = call_id
        self.parent = ""
        self.title = ""
        self.model = ""
        self.system_prompt: Message | None = None
        """System prompt, which precedes all other messages of the segment."""
        self.messages: list[Message] = []
        self.segments: list[list[Message]] = []
        self.branches: list[AbandonedBranch] = []
        self.compactions = 0
        self.call_counts: Counter[str] = Counter()
        self.results: dict[str, list[Message]] = {}
        self.requested_calls: set[str] = set()
        self.early_call_messages: dict[str, str] = {}
        """Id of the message for each call that started before the model requested it, by call id."""
        self.superseded_messages: set[str] = set()
        """Ids of the messages for early calls that the model requested later. Histories omit these messages."""
        self.continuation_ids: set[str] = set()
        """Ids of messages that continue the previous response. Each repeats the response's usage."""
        self.event_positions: dict[str, int] = {}
        """Number of messages in this segment before each event, by event id."""
        self.compaction_start: int | None = None
        self.pending_reasoning = ""
        self.last_request_id = ""
        self.last_notice = ""

    def replace_system_prompt(self, message: Message) -> bool:
        """Set the system prompt. Return True if it replaces a different one."""
        known = self.system_prompt
        if known is None or known.parts != message.parts:
            self.system_prompt = message
        return known is not None and known.parts != message.parts

    def begin_segment(self, *first: Message, kept: int | None = None) -> None:
        """Start a segment with the messages `first`. If `kept` is an index, carry over the messages from there on."""
        carried = mark_carried(self.messages[kept:]) if kept is not None else []
        self.segments.append(self._visible_messages())
        self.system_prompt = replace(self.system_prompt, carried=True) if self.system_prompt else None
        self.messages = [*first, *carried]
        self.event_positions, self.compaction_start = {}, None

    def _visible_messages(self) -> list[Message]:
        return [*([self.system_prompt] if self.system_prompt else ()), *self.messages]

    def rewind_to(self, event: str) -> bool:
        """Move all messages from an event onward to a branch; return False for an unknown event."""
        index = self.event_positions.get(event)
        if index is None:
            return False
        removed = [message for message in self._with_results(self.messages[index:]) if not message.carried]
        del self.messages[index:]
        if removed:
            parent = self.messages[-1].id if self.messages else ""
            self.branches.append(AbandonedBranch(History(tuple(removed)), parent))
        return True

    def note_requested_call(self, call: str) -> None:
        """Record a call that the model requests."""
        if call in self.early_call_messages and call not in self.requested_calls:
            self.superseded_messages.add(self.early_call_messages[call])
        else:
            self.call_counts[call] += 1
        self.requested_calls.add(call)

    def add_result(self, call: str, message: Message) -> None:
        """Add a result to its call. A result without an open call becomes a separate message."""
        results = self.results.setdefault(call, [])
        (results if len(results) < self.call_counts[call] else self.messages).append(message)

    def build_histories(self) -> tuple[History, ...]:
        """Return all segments, with results directly after their calls."""
        return tuple(History(tuple(self._with_results(part))) for part in (*self.segments, self._visible_messages()))

    def _with_results(self, messages: list[Message]) -> Iterator[Message]:
        seen: Counter[str] = Counter()
        for message in self._merge_responses(messages):
            yield message
            for call in message.calls:
                for result in self.results.get(call.id, [])[seen[call.id] : seen[call.id] + 1]:
                    yield replace(result, carried=message.carried)
                seen[call.id] += 1

    def _merge_responses(self, messages: list[Message]) -> Iterator[Message]:
        """Yield one message per response, without the messages of superseded early calls."""
        responses: list[list[Message]] = []
        for message in messages:
            if message.id in self.continuation_ids and responses and responses[-1][0].author == "model":
                responses[-1].append(message)
            elif message.id not in self.superseded_messages:
                responses.append([message])
        for pieces in responses:
            parts = tuple(part for piece in pieces for part in piece.parts)
            records = tuple(record for piece in pieces for record in piece.records)
            yield replace(pieces[0], parts=parts, records=records)
