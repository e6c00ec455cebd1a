"""What one agent of Copilot CLI was told, said and did: its messages by segment, results right behind their calls.

Tools run side by side, so what they give comes in any order, and other events in between.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from thresher.model import AbandonedBranch, History, Message
from thresher.transcripts.content import mark_carried


class CopilotAgent:
    """What one agent was told, said and did."""

    def __init__(self, id_: str = "", call_id: str = "") -> None:
        """Nothing yet."""
        self.id = id_
        self.call_id = call_id
        self.parent = ""
        self.title = ""
        self.model = ""
        self.system_prompt: Message | None = None
        """The system prompt, which stands before all others."""
        self.messages: list[Message] = []
        self.segments: list[list[Message]] = []
        self.branches: list[AbandonedBranch] = []
        self.compactions = 0
        self.call_counts: Counter[str] = Counter()
        self.results: dict[str, list[Message]] = {}
        self.requested_calls: set[str] = set()
        self.early_call_messages: dict[str, str] = {}
        """Calls that were seen to start before they were asked for, each with the id of the message made of it."""
        self.superseded_messages: set[str] = set()
        """Such messages of calls that were asked for after all."""
        self.continuation_ids: set[str] = set()
        """Messages that are more of the response before, each with the bill of the whole."""
        self.event_positions: dict[str, int] = {}
        """Where each event of this segment stands among its messages."""
        self.compaction_start: int | None = None
        self.pending_reasoning = ""
        self.last_request_id = ""
        self.last_notice = ""

    def replace_system_prompt(self, message: Message) -> bool:
        """Take a system prompt in the place of the last one; whether that was another."""
        known = self.system_prompt
        if known is None or known.parts != message.parts:
            self.system_prompt = message
        return known is not None and known.parts != message.parts

    def begin_segment(self, *first: Message, kept: int | None = None) -> None:
        """Start a segment: what opens it, and what stays in view of the last one."""
        stay = self.messages[kept:] if kept is not None else []
        self.segments.append(self._visible_messages())
        self.system_prompt = replace(self.system_prompt, carried=True) if self.system_prompt else None
        self.messages = [*first, *mark_carried(stay)]
        self.event_positions, self.compaction_start = {}, None

    def _visible_messages(self) -> list[Message]:
        return [*([self.system_prompt] if self.system_prompt else ()), *self.messages]

    def rewind_to(self, event: str) -> bool:
        """Take back what came from an event on; whether the event is known."""
        place = self.event_positions.get(event)
        if place is None:
            return False
        left = [message for message in self._with_results(self.messages[place:]) if not message.carried]
        del self.messages[place:]
        if left:
            self.branches.append(AbandonedBranch(History(tuple(left)), self.messages[-1].id if self.messages else ""))
        return True

    def note_requested_call(self, call: str) -> None:
        """A model asks for a call."""
        if call in self.early_call_messages and call not in self.requested_calls:
            self.superseded_messages.add(self.early_call_messages[call])
        else:
            self.call_counts[call] += 1
        self.requested_calls.add(call)

    def add_result(self, call: str, message: Message) -> None:
        """A result: it stands behind its call, or where it came if there is none, or none without a result."""
        results = self.results.setdefault(call, [])
        (results if len(results) < self.call_counts[call] else self.messages).append(message)

    def build_histories(self) -> tuple[History, ...]:
        """Every segment, results right behind their calls."""
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
        """One message for each response, and none for what was made too early."""
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
