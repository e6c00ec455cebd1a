"""Replay a recorded conversation call by call: the input of a strategy.

A `ReplayConversation` contains everything up to the current call as rows. A row is one assistant turn, one tool result,
or one other message. Each row has one `RequestPiece` per part, with its text and token count. A strategy that keeps a
row sends the row's own pieces, so thinking or images that a library's message type cannot represent still count, and no
strategy looks cheaper because of a lossy conversion. Only rewritten rows are counted again. Equal pieces are the same
object, so requests can be compared by identity.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from thresher.dialects import emit_with_losses, parse
from thresher.model import History, Message, Part, Text, ToolCall, ToolResult
from thresher.model.identity import content_ids
from thresher.replay.recording import Recording
from thresher.replay.trace import block_text
from thresher.store import ContentStore, exact_id, short_id

REFETCH_TOOL = "restore"
"""The tool that a simulated refetch calls."""


@dataclass(frozen=True, eq=False, slots=True)
class RequestPiece:
    """The text and token count of one part in a request. Equal pieces of a conversation are the same object."""

    text: str
    tokens: int


RequestPieces = Sequence[RequestPiece]
RequestBuilder = Callable[[float | None], RequestPieces]
"""Function that returns the request to send at the time of a call, built from the `ReplayConversation`."""


@dataclass(frozen=True, eq=False, slots=True)
class ConversationRow:
    """One assistant turn, one tool result, or one other message."""

    first_message: int
    """Number of the first message that belongs to this row."""
    role: str
    parts: tuple[Part, ...]
    pieces: tuple[RequestPiece, ...]

    @property
    def tokens(self) -> int:
        """Token count of the row."""
        return sum(piece.tokens for piece in self.pieces)


class ReplayConversation:
    """A recording up to the current call. A strategy may read everything here and keeps its own state elsewhere."""

    def __init__(self, recording: Recording, store: ContentStore) -> None:
        """Start before the first message; only tool definitions are present."""
        self.recording = recording
        self.token_weights = recording.token_weights
        self.store = store
        tools = recording.trace.history.tools
        self.tool_pieces: tuple[RequestPiece, ...] = (
            (RequestPiece(tools, self.token_weights.tools(tools)),) if tools else ()
        )
        self.messages: list[Message] = []
        self.dialect_rows: list[Any] = []
        """The rows of the messages that were added, in the dialect of the recording."""
        self.rows: list[ConversationRow] = []
        self.starts: list[int] = []
        """For each message, the number of its first row."""
        self.message_tokens: list[int] = []
        """Token count of each message."""
        self.result_rows: list[int] = []
        """Numbers of the rows that are tool results."""
        self.safe_starts: list[int] = []
        """Messages that a request may start with: no call before such a message has its result after it."""
        self.head_messages: list[int] = []
        """Numbers of the system messages and of the first user message."""
        self.tool_names: dict[str, str] = {}
        """Tool names by call id."""
        self._piece_cache: dict[tuple[str, bool], RequestPiece] = {}
        self._recorded_count = 0
        self._fetches = 0

    def advance(self, stop: int) -> None:
        """Add the recorded messages before `stop`."""
        start, self._recorded_count = self._recorded_count, stop
        system = self.recording.system_message_count
        self.dialect_rows += self.recording.rows[max(0, start - system) : max(0, stop - system)]
        for message in self.recording.trace.history.messages[start:stop]:
            self._add_message(message)

    def refetch(self, parts: Sequence[Part]) -> tuple[list[RequestPiece], list[ToolResult]]:
        """Append parts again, as results of the refetch tool; return the new pieces and the results."""
        calls, results = [], []
        for part in parts:
            self._fetches += 1
            id_ = f"fetch_{self._fetches}"
            calls.append(ToolCall(id_, REFETCH_TOOL, f'{{"id": "{short_id(exact_id(part))}"}}'))
            results.append(ToolResult(id_, part.content if isinstance(part, ToolResult) else (Text(block_text(part)),)))
        messages = (Message("assistant", tuple(calls)), Message("tool", tuple(results)))
        dialect, key = self.recording.dialect, self.recording.rows_field
        rows = emit_with_losses(History(messages), dialect, body=True).value[key]
        before = len(self.rows)
        self.dialect_rows += rows
        for message in parse({key: rows}, dialect).messages:
            self._add_message(message)
        return list(chain.from_iterable(row.pieces for row in self.rows[before:])), results

    def make_message_pieces(self, message: Message) -> list[RequestPiece]:
        """Return the pieces of a message. The first one includes the message overhead."""
        ids = content_ids(message)
        return [
            self._piece(name, part, first=not number)
            for number, (name, part) in enumerate(zip(ids, message.parts, strict=True))
        ]

    def all_pieces(self) -> list[RequestPiece]:
        """Return the tool definitions and the pieces of all rows."""
        return [*self.tool_pieces, *chain.from_iterable(row.pieces for row in self.rows)]

    def pieces_since(self, start: int) -> list[RequestPiece]:
        """Return the pieces of the tool definitions, the head messages, and all messages from `start` on."""
        head = [range(number, number + 1) for number in self.head_messages if number < start]
        return self.pieces_of([*head, range(start, len(self.messages))])

    def pieces_of(self, ranges: Iterable[range]) -> list[RequestPiece]:
        """Return the tool definitions and the pieces of ranges of messages."""
        starts = [*self.starts, len(self.rows)]
        rows = (self.rows[starts[messages.start] : starts[messages.stop]] for messages in ranges)
        return [*self.tool_pieces, *chain.from_iterable(row.pieces for row in chain.from_iterable(rows))]

    def rewrite_row(self, row: ConversationRow, text: str) -> tuple[RequestPiece, ...]:
        """Return the pieces of a row with its texts or its result replaced by `text`; the other parts stay."""
        old = row.parts[0]
        has_overhead = row.pieces[0].tokens > self.token_weights.part(old)
        new: Part = ToolResult(old.call_id, (Text(text),)) if isinstance(old, ToolResult) else Text(text)
        kept = [p for part, p in zip(row.parts, row.pieces, strict=True) if not isinstance(part, Text | ToolResult)]
        return self._piece(f"{type(new).__name__} {text}", new, first=has_overhead), *kept

    def _add_message(self, message: Message) -> None:
        number = len(self.messages)
        self.messages.append(message)
        self.tool_names.update((call.id, call.name) for call in message.calls)
        is_answer = message.role == "assistant"
        extends_row = is_answer and bool(self.rows) and self.rows[-1].role == "assistant"
        has_prompt = any(self.messages[n].role == "user" for n in self.head_messages)
        if message.role == "system" or (message.role == "user" and not has_prompt):
            self.head_messages.append(number)
        if (is_answer and not extends_row) or (message.role == "user" and not any(message.results)):
            self.safe_starts.append(number)
        self.starts.append(len(self.rows) - extends_row)
        pieces = self.make_message_pieces(message)
        self.message_tokens.append(sum(piece.tokens for piece in pieces))
        self._add_rows(number, message, pieces, extends_row=extends_row)

    def _add_rows(self, number: int, message: Message, pieces: Sequence[RequestPiece], *, extends_row: bool) -> None:
        pairs = list(zip(message.parts, pieces, strict=True))
        for part, piece in pairs:
            if isinstance(part, ToolResult):
                self.result_rows.append(len(self.rows))
                self.rows.append(ConversationRow(number, "tool", (part,), (piece,)))
        rest = [pair for pair in pairs if not isinstance(pair[0], ToolResult)]
        if not rest:
            return
        role = "user" if message.role == "tool" else message.role
        row = ConversationRow(number, role, tuple(part for part, _ in rest), tuple(piece for _, piece in rest))
        if extends_row:
            last = self.rows.pop()
            row = ConversationRow(last.first_message, role, last.parts + row.parts, last.pieces + row.pieces)
        self.rows.append(row)

    def _piece(self, name: str, part: Part, *, first: bool) -> RequestPiece:
        piece = self._piece_cache.get((name, first))
        if piece is None:
            tokens = self.token_weights.part(part) + self.token_weights.message_overhead * first
            piece = self._piece_cache[name, first] = RequestPiece(block_text(part), tokens)
        return piece
