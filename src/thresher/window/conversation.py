"""A conversation: the rows that the agent passed in, and the rows that the window sends for them.

The sent rows depend only on the rows of the agent and on the newest replan that covers them. Rows up to that replan are
repaired, edited and encoded; later rows go out unchanged. A conversation that grows parses only its new rows. A
conversation that is rebuilt from the same rows and the same ledger sends the same bytes.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from thresher.dialects.cache_control import copy_cache_breakpoint
from thresher.edits import Plan, apply, get_placeholder_id, repair
from thresher.edits.legality import LegalityTracker
from thresher.edits.repair_history import RepairError
from thresher.model import History, Message, ToolResult
from thresher.model.context_marks import mark_messages
from thresher.model.jsontext import canonical_json
from thresher.model.keep_marks import MARK_FIELD, has_keep_mark
from thresher.tokens import TokenWeights
from thresher.window.ledger import EditsByTarget, ReplanRecord
from thresher.window.request import WindowRequest, digest_row, is_self_contained

PLACEHOLDER_TOKENS = 45
"""Approximate tokens of a placeholder. Only a result of more than twice this size is worth replacing."""
DECAY_PER_CALL = 1.25
"""Average decay of a result per model call, in the units of the policy `decay`."""


class RequestPrompt(Struct, frozen=True):
    """The part of a request before its messages: system text, tools, and other fields of the body."""

    messages: tuple[Message, ...]
    tools: str
    extras: Any
    context_marks: tuple[str, ...] = ()

    def build_history(self, messages: Sequence[Message]) -> History:
        """Return a history of this prompt and `messages`."""
        return History((*self.messages, *messages), self.tools, self.extras, self.context_marks)


class ClearableResult(Struct, frozen=True):
    """A tool result that is sent whole and that a placeholder could replace."""

    message_index: int
    """Index of the result's message among the sent messages."""
    call_number: int
    """Number of model calls before the result."""
    tokens_saved: int


class NewContent(Struct, frozen=True):
    """Messages of a request that the window has not seen before, and edits from another branch."""

    messages: Sequence[Message] = ()
    carried_edits: EditsByTarget = {}
    """Edits from another branch of the conversation. They may still apply to the messages that the branches share."""


class EncodedRow(Struct, frozen=True):
    """A row that the window encoded because an edit or a repair changed it."""

    row: Any
    digest: bytes


class WindowConversation:
    """One conversation. It grows with new rows, and the window rebuilds it after a replan or a change of its rows."""

    def __init__(
        self,
        request: WindowRequest,
        replan: ReplanRecord | None,
        edits: EditsByTarget,
        token_weights: TokenWeights,
        parsed_before: "WindowConversation | None",
        context_marks: tuple[str, ...] = (),
    ) -> None:
        """Build the rows to send for a request with the edits of a replan; reuse the messages of `parsed_before`."""
        self.token_weights = token_weights
        self.last_replan = replan
        self.edits = edits
        self.prefix_digests = request.prefix_digests
        self.row_digests = request.row_digests
        self.prompt_digest = request.prompt_digest
        self.dialect = request.dialect.name
        self._parsed: dict[bytes, Message] = {}
        if parsed_before is not None and parsed_before.dialect == self.dialect:
            self._parsed = dict(parsed_before._parsed)
        self.received: list[Message] = []
        self._needs_joint_parsing = False
        """True if all rows must be parsed together, because a call or result lacks an id."""
        self.prompt = structs.replace(parse_request_prompt(request), context_marks=context_marks)
        self.received = self._parse_rows(request, 0)
        self._parsed = {digest: self._parsed[digest] for digest in request.row_digests if digest in self._parsed}
        self._build(request)

    def _build(self, request: WindowRequest) -> None:
        """Repair, edit and encode the rows that the replan covers, and append the later rows unchanged."""
        rows = self.last_replan.rows if self.last_replan is not None else 0
        base = self.prompt.build_history(self.received[:rows])
        base = repair_if_possible(base, request.dialect.name) if rows else base
        edited = apply(base, Plan(tuple(self.edits.values()), 0, 0))
        tail = self.received[rows:]
        self.original = structs.replace(base, messages=(*base.messages, *tail))
        self._legality = LegalityTracker(request.dialect.name)
        self.is_legal = self._legality.accepts(self.original)
        self.sent_messages = [*edited.messages, *tail]
        encoded: Any = request.dialect.emit(edited, request.is_body).value if rows else []
        self.changed_fields: dict[str, Any] | None = None
        if rows and request.is_body:
            if self.prompt.messages != edited.messages[: len(self.prompt.messages)]:
                fields = [key for key in request.dialect.prompt_fields if key in request.value]
                self.changed_fields = {key: encoded.get(key) for key in fields}
            encoded = encoded[request.dialect.messages_field]
        self.slots = _match_rows(encoded, request.plain_rows()[:rows] if rows else [])
        """Rows to send: each is an encoded row, or the index of a request row that is sent unchanged."""
        self.stable_rows = max(
            (count for count, slot in enumerate(self.slots, 1) if type(slot) is not int), default=len(self.slots)
        )
        self.is_untouched = self.slots == list(range(rows)) and self.changed_fields is None
        self.slots += range(rows, len(self.received))
        self.calls = 0
        self.clearable_results: list[ClearableResult] = []
        self.tokens_before_message: list[int] = []
        """Tokens before each sent message."""
        self._is_last_assistant = False
        self._sent_calls = 0
        for message in self.received:
            self._count_call(message)
        self.tokens = self.token_weights.tools(self.prompt.tools)
        prompt_tokens = sum(map(self.token_weights.message, self.prompt.messages))
        self.original_tokens = self.tokens + prompt_tokens + sum(map(self.token_weights.message, self.received))
        """Tokens of the request as the agent passed it in."""
        for index, message in enumerate(self.sent_messages):
            self._count_sent(index, message)

    def is_extended_by(self, request: WindowRequest) -> bool:
        """Return True if a request starts with the rows of this conversation and has the same prompt and dialect."""
        length = len(self.prefix_digests)
        return (
            request.prompt_digest == self.prompt_digest
            and request.dialect.name == self.dialect
            and length <= len(request.prefix_digests)
            and request.prefix_digests[length - 1] == self.prefix_digests[-1]
        )

    def messages_not_in(self, other: "WindowConversation") -> list[Message]:
        """Return the messages after the prefix that this conversation shares with another one."""
        return self.received[count_shared_items(self.prefix_digests, other.prefix_digests) :]

    def extend(self, request: WindowRequest) -> list[Message]:
        """Append the new rows of a request and return their messages."""
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
            self.original_tokens += self.token_weights.message(message)
            self._count_sent(len(self.sent_messages), message)
            self.sent_messages.append(message)
        self.slots += range(start, len(self.received))
        return new

    @property
    def has_keep_marks(self) -> bool:
        """True if a tool or a message is marked to stay."""
        return f'"{MARK_FIELD}"' in self.prompt.tools or any(map(has_keep_mark, self.received))

    def build_request(self, request: WindowRequest) -> Any:
        """Return the value to send; this is the user's own object if nothing changes."""
        if self.is_untouched:
            return request.value
        rows = [request.rows[slot] if type(slot) is int else slot.row for slot in self.slots]
        if request.has_cache_breakpoints and self.slots and type(self.slots[-1]) is not int:
            rows[-1] = copy_cache_breakpoint(rows[-1], request.rows[-1])
        if not request.is_body:
            return rows
        changed = {**(self.changed_fields or {}), request.dialect.messages_field: rows}
        fields = {**request.value, **changed}
        return {key: value for key, value in fields.items() if key not in changed or value is not None}

    def result_age(self, result: ClearableResult) -> float:
        """Estimate the decay of a result from the number of model calls after it."""
        return (self._sent_calls - result.call_number) * DECAY_PER_CALL

    def sent_digests(self) -> list[bytes]:
        """Return the digests of the rows to send."""
        return [self.row_digests[slot] if type(slot) is int else slot.digest for slot in self.slots]

    def tokens_before(self, row: int) -> int:
        """Count the tokens before one of the rows to send."""
        message = row + len(self.prompt.messages)
        return self.tokens_before_message[message] if message < len(self.tokens_before_message) else self.tokens

    def _parse_rows(self, request: WindowRequest, start: int) -> list[Message]:
        """Parse the rows from `start` on. Equal rows share one message object, so its tokens are counted only once."""
        if self._needs_joint_parsing:
            return self._parse_rows_together(request)[start:]
        digests = request.row_digests[start:]
        missing = [index for index, digest in enumerate(digests, start) if digest not in self._parsed]
        if missing:
            rows = request.plain_rows(missing[0])
            messages = self._parse_messages(request, [rows[index - missing[0]] for index in missing])
            if not all(map(is_self_contained, messages)):
                self._needs_joint_parsing = True
                return self._parse_rows_together(request)[start:]
            self._parsed.update(
                (request.row_digests[index], message) for index, message in zip(missing, messages, strict=True)
            )
        return [self._parsed[digest] for digest in digests]

    def _parse_rows_together(self, request: WindowRequest) -> list[Message]:
        """Parse all rows together, since a call without an id is identified by the rows before it."""
        old = self.received
        messages = self._parse_messages(request, request.plain_rows())
        return [old[i] if i < len(old) and old[i] == message else message for i, message in enumerate(messages)]

    def _parse_messages(self, request: WindowRequest, rows: list[Any]) -> tuple[Message, ...]:
        marks = self.prompt.context_marks
        messages = request.dialect.parse(rows).messages
        return mark_messages(messages, marks) if marks else messages

    def _count_call(self, message: Message) -> None:
        """Count model calls: consecutive assistant messages are one call."""
        is_assistant = message.role == "assistant"
        self.calls += is_assistant and not self._is_last_assistant
        self._is_last_assistant = is_assistant

    def _count_sent(self, index: int, message: Message) -> None:
        follows_assistant = index > 0 and self.sent_messages[index - 1].role == "assistant"
        self._sent_calls += message.role == "assistant" and not follows_assistant
        self.tokens_before_message.append(self.tokens)
        self.tokens += self.token_weights.message(message)
        for part, weight in zip(message.parts, self.token_weights.parts(message), strict=True):
            if isinstance(part, ToolResult) and weight > 2 * PLACEHOLDER_TOKENS and not get_placeholder_id(part):
                self.clearable_results.append(ClearableResult(index, self._sent_calls, weight - PLACEHOLDER_TOKENS))


def _match_rows(encoded: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    """Return, for each encoded row, the index of an equal request row, or an `EncodedRow` if none is equal."""
    indexes_by_json: dict[str, list[int]] = {}
    for index in range(len(rows) - 1, -1, -1):
        indexes_by_json.setdefault(canonical_json(rows[index]), []).append(index)
    slots: list[Any] = []
    last = -1
    for row in encoded:
        indexes = indexes_by_json.get(canonical_json(row), [])
        while indexes and indexes[-1] <= last:
            indexes.pop()
        if indexes:
            last = indexes.pop()
            slots.append(last)
        else:
            slots.append(EncodedRow(row, digest_row(row)))
    return slots


def parse_request_prompt(request: WindowRequest) -> RequestPrompt:
    """Parse the fields of a request body other than its rows."""
    body = {**request.other_fields(), request.dialect.messages_field: []} if request.is_body else []
    history = request.dialect.parse(body)
    return RequestPrompt(history.messages, history.tools, history.pocket)


def repair_if_possible(history: History, dialect: str) -> History:
    """Return a history that is legal for a dialect, or the history itself if no repair is possible."""
    try:
        return repair(history, dialect).history
    except RepairError:
        return history


def count_shared_items(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(first), len(second)))
