"""A conversation as far as it has come: what was given, and what is sent for it.

What is sent is a function of the rows that came in and of the newest epoch for them: the rows up to the epoch are
mended, edited and written; those behind it go out as they came in. A thread that grows works out only what is new,
and one that is built anew from the same rows and the same ledger sends the same bytes.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from thresher.dialects.cache_control import copy_cache_breakpoint
from thresher.edits import Plan, apply, get_placeholder_id, repair
from thresher.edits.legality import LegalityTracker
from thresher.edits.repair_history import RepairError
from thresher.model import History, Message, ToolResult
from thresher.model.jsontext import canonical_json
from thresher.tokens import TokenWeights
from thresher.window.ledger import EditsByTarget, ReplanRecord
from thresher.window.request import WindowRequest, digest_row, is_self_contained, parse_request_rows

PLACEHOLDER_TOKENS = 45
"""About what a pointer weighs, in tokens: a result that weighs less is not worth one."""


DECAY_PER_CALL = 1.25
"""How much a result wears with a call, on average: see the policy `decay`."""


class RequestPrompt(Struct, frozen=True):
    """What stands before the messages: system text, tools, and the rest of the body."""

    messages: tuple[Message, ...]
    tools: str
    extras: Any

    def build_history(self, messages: Sequence[Message]) -> History:
        """A history that begins with it."""
        return History((*self.messages, *messages), self.tools, self.extras)


class ClearableResult(Struct, frozen=True):
    """A tool result that is sent whole, and may become a pointer."""

    message_index: int
    """Its place among the messages that are sent."""
    call_number: int
    """How many calls of the model stand before it."""
    tokens_saved: int


class NewContent(Struct, frozen=True):
    """What is new in a request."""

    messages: Sequence[Message] = ()
    carried_edits: EditsByTarget = {}
    """Edits of before, where the conversation took another turn and its past may still have them."""


class WindowConversation:
    """One conversation: grows with what is new, or is built anew where it took another turn."""

    def __init__(
        self,
        request: WindowRequest,
        epoch: ReplanRecord | None,
        edits: EditsByTarget,
        scale: TokenWeights,
        known: "WindowConversation | None",
    ) -> None:
        """Build what is sent for a request, with the edits of an epoch; `known` lends what it has parsed."""
        self.scale = scale
        self.last_replan = epoch
        self.edits = edits
        self.prefix_digests = request.prefix_digests
        self.row_digests = request.row_digests
        self.prompt_digest = request.prompt_digest
        self.dialect = request.dialect.name
        lent = known._parsed if known is not None and known.dialect == self.dialect else {}
        self._parsed: dict[bytes, Message] = dict(lent)
        self.received: list[Message] = []
        self._needs_joint_parsing = False
        """Whether rows are read together, since some have no ids of their own."""
        self.prompt = parse_request_prompt(request)
        self.received = self._parse_rows(request, 0)
        self._parsed = {one: self._parsed[one] for one in request.row_digests if one in self._parsed}
        self._build(request)

    def _build(self, request: WindowRequest) -> None:
        """Work out what is sent: the epoch's part mended, edited and written; what came later as it is."""
        rows = self.last_replan.rows if self.last_replan is not None else 0
        base = self.prompt.build_history(self.received[:rows])
        base = repair_if_possible(base, request.dialect.name) if rows else base
        after = apply(base, Plan(tuple(self.edits.values()), 0, 0))
        head = len(self.prompt.messages)
        tail = self.received[rows:]
        self.original = structs.replace(base, messages=(*base.messages, *tail))
        self._legality = LegalityTracker(request.dialect.name)
        self.is_legal = self._legality.accepts(self.original)
        self.sent_messages = [*after.messages, *tail]
        written: Any = request.dialect.emit(after, request.is_body).value if rows else []
        self.changed_fields: dict[str, Any] | None = None
        if rows and request.is_body:
            self.changed_fields = _changed_fields(request, written, self.prompt.messages != after.messages[:head])
            written = written[request.dialect.messages_field]
        self.slots = _match_rows(written, request.plain_rows()[:rows] if rows else [])
        self.stable_rows = max(
            (n for n, one in enumerate(self.slots, 1) if type(one) is not int), default=len(self.slots)
        )
        self.is_untouched = self.slots == list(range(rows)) and self.changed_fields is None
        self.slots += range(rows, len(self.received))
        self.calls = 0
        self.clearable_results: list[ClearableResult] = []
        self.tokens_before_message: list[int] = []
        """Tokens before each message that is sent."""
        self._is_last_assistant = False
        self._sent_calls = 0
        for message in self.received:
            self._count_call(message)
        self.tokens = self.scale.tools(self.prompt.tools)
        for index, message in enumerate(self.sent_messages):
            self._count_sent(index, message)

    def is_extended_by(self, request: WindowRequest) -> bool:
        """Whether a request is this conversation, perhaps with more rows."""
        length = len(self.prefix_digests)
        same = request.prompt_digest == self.prompt_digest and request.dialect.name == self.dialect
        return (
            same
            and length <= len(request.prefix_digests)
            and request.prefix_digests[length - 1] == self.prefix_digests[-1]
        )

    def messages_not_in(self, other: "WindowConversation | None") -> list[Message]:
        """The messages from the first on that another thread does not have; none where there is no other."""
        if other is None:
            return []
        pairs = enumerate(zip(self.prefix_digests, other.prefix_digests, strict=False))
        shared = next(
            (row for row, (one, its) in pairs if one != its), min(len(self.prefix_digests), len(other.prefix_digests))
        )
        return self.received[shared:]

    def extend(self, request: WindowRequest) -> list[Message]:
        """Take the rows that are new; says which they are."""
        start = len(self.prefix_digests)
        new = self._parse_rows(request, start)
        if not new:
            return new
        self.prefix_digests = request.prefix_digests
        self.row_digests = request.row_digests
        self.received += new
        self.original = structs.replace(self.original, messages=(*self.original.messages, *new))
        self.is_legal = self.is_legal and self._legality.accepts(self.original)
        for message in new:
            self._count_call(message)
            self._count_sent(len(self.sent_messages), message)
            self.sent_messages.append(message)
        self.slots += range(start, len(self.received))
        return new

    def build_request(self, request: WindowRequest) -> Any:
        """What to send: what came in, itself where nothing in it changes."""
        if self.is_untouched:
            return request.value
        rows = [request.rows[slot] if type(slot) is int else slot.row for slot in self.slots]
        if request.has_cache_breakpoints and type(self.slots[-1]) is not int:
            rows[-1] = copy_cache_breakpoint(rows[-1], request.rows[-1])
        if not request.is_body:
            return rows
        fields = self.changed_fields or {}
        around = {key: fields.get(key, value) for key, value in request.other_fields().items()}
        kept = {key: value for key, value in around.items() if key not in fields or value is not None}
        return {**kept, request.dialect.messages_field: rows}

    def result_age(self, result: ClearableResult) -> float:
        """About how far a result has worn: by the calls since then, and on."""
        return (self._sent_calls - result.call_number) * DECAY_PER_CALL

    def sent_digests(self) -> list[bytes]:
        """What the rows that are sent are known by."""
        return [self.row_digests[slot] if type(slot) is int else slot.digest for slot in self.slots]

    def tokens_before(self, row: int) -> int:
        """Tokens before one of the rows that are sent."""
        message = row + len(self.prompt.messages)
        return self.tokens_before_message[message] if message < len(self.tokens_before_message) else self.tokens

    def _parse_rows(self, request: WindowRequest, start: int) -> list[Message]:
        """The rows from one on as messages; equal rows are the same message, so that nothing is weighed twice."""
        if self._needs_joint_parsing:
            return self._parse_rows_together(request)[start:]
        wanted = request.row_digests[start:]
        missing = [index for index, one in enumerate(wanted, start) if one not in self._parsed]
        if missing:
            rows = request.plain_rows(missing[0])
            found = parse_request_rows(request, [rows[index - missing[0]] for index in missing])
            if not all(map(is_self_contained, found)):
                self._needs_joint_parsing = True
                return self._parse_rows_together(request)[start:]
            self._parsed.update((request.row_digests[index], one) for index, one in zip(missing, found, strict=True))
        return [self._parsed[one] for one in wanted]

    def _parse_rows_together(self, request: WindowRequest) -> list[Message]:
        """All rows as messages, read together: calls without ids are known by what came before them."""
        old = self.received
        found = parse_request_rows(request, request.plain_rows())
        return [old[i] if i < len(old) and old[i] == message else message for i, message in enumerate(found)]

    def _count_call(self, message: Message) -> None:
        """Count the model's calls: a run of its messages is one."""
        speaks = message.role == "assistant"
        self.calls += speaks and not self._is_last_assistant
        self._is_last_assistant = speaks

    def _count_sent(self, index: int, message: Message) -> None:
        self._sent_calls += message.role == "assistant" and not (
            index and self.sent_messages[index - 1].role == "assistant"
        )
        self.tokens_before_message.append(self.tokens)
        self.tokens += self.scale.message(message)
        for part, weight in zip(message.parts, self.scale.parts(message), strict=True):
            if isinstance(part, ToolResult) and weight > 2 * PLACEHOLDER_TOKENS and not get_placeholder_id(part):
                self.clearable_results.append(ClearableResult(index, self._sent_calls, weight - PLACEHOLDER_TOKENS))


class WrittenRow(Struct, frozen=True):
    """A row that we wrote."""

    row: Any
    digest: bytes


def _match_rows(written: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    """For each row to send: the number of the row that came in, where it says the same; else the row itself."""
    places: dict[str, list[int]] = {}
    for index in range(len(rows) - 1, -1, -1):
        places.setdefault(canonical_json(rows[index]), []).append(index)
    slots: list[Any] = []
    after = -1
    for row in written:
        spots = places.get(canonical_json(row), [])
        while spots and spots[-1] <= after:
            spots.pop()
        if spots:
            after = spots.pop()
            slots.append(after)
        else:
            slots.append(WrittenRow(row, digest_row(row)))
    return slots


def parse_request_prompt(request: WindowRequest) -> RequestPrompt:
    """What a body says beside its rows."""
    around = request.other_fields()
    history = request.dialect.parse({**around, request.dialect.messages_field: []} if request.is_body else [])
    return RequestPrompt(history.messages, history.tools, history.pocket)


def _changed_fields(request: WindowRequest, written: dict[str, Any], changed: bool) -> dict[str, Any] | None:
    """What the body says before its rows, where an edit or a repair has changed it; None: nothing any more."""
    return {key: written.get(key) for key in request.dialect.prompt_fields if key in request.value} if changed else None


def repair_if_possible(history: History, dialect: str) -> History:
    """A history as its API takes it; as it came where that cannot be had."""
    try:
        return repair(history, dialect).history
    except RepairError:
        return history
