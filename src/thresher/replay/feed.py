"""What a way of keeping requests small is fed with: a conversation that grows from call to call.

A feed holds the conversation up to the call that is made now, in rows (what a model said in one go, a tool's result,
any other message) with one piece for each part: its text, and its weight on one scale for all. Whoever keeps a row
sends that row's own pieces, whatever its types can hold, so that nobody is cheaper for what a conversion lost
(thinking, pictures); only what was rewritten is weighed anew. Equal pieces are one object, so two requests are
compared by identity.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from thresher.formats import emission, parse
from thresher.model import History, Message, Part, Text, ToolCall, ToolResult
from thresher.model.identity import content_ids
from thresher.replay.recording import Recording
from thresher.replay.trace import block_text
from thresher.store import Store, exact_id, short_id

FETCH = "restore"
"""The tool that brings a text back."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """One part as it is sent: its words and its weight. Equal pieces of a feed are one object."""

    text: str
    tokens: int


Sent = Sequence[Piece]
Ask = Callable[[float | None], Sent]
"""When a call is made, to what is sent with it; what it could send stands in the feed."""


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """What a model said in one go, a tool's result, or another message."""

    message: int
    """The first that it is of."""
    role: str
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        """What it weighs."""
        return sum(piece.tokens for piece in self.pieces)


class Feed:
    """A recording, as far as it has come; a way may read all of it, and keeps its own memory."""

    def __init__(self, recording: Recording, store: Store) -> None:
        """Nothing has come but what stands beside the rows."""
        self.recording = recording
        self.scale = recording.scale
        self.store = store
        tools = recording.trace.history.tools
        self.tools: tuple[Piece, ...] = (Piece(tools, self.scale.tools(tools)),) if tools else ()
        self.messages: list[Message] = []
        self.wire: list[Any] = []
        """The rows of the wire format that have come."""
        self.rows: list[Row] = []
        self.starts: list[int] = []
        """The row that each message begins with."""
        self.weights: list[int] = []
        """Of each message."""
        self.results: list[int] = []
        """The rows that are tools' results."""
        self.safe: list[int] = []
        """Messages that a request may begin with: no call before them waits for a result after them."""
        self.head: list[int] = []
        """System text and the first request."""
        self.names: dict[str, str] = {}
        """The tool's name by the id of a call."""
        self._known: dict[tuple[str, bool], Piece] = {}
        self._taken = 0
        self._fetches = 0

    def advance(self, stop: int) -> None:
        """Let the recording come up to this message."""
        recording = self.recording
        start, self._taken = self._taken, stop
        self.wire += recording.rows[max(0, start - recording.beside) : max(0, stop - recording.beside)]
        for message in recording.trace.history.messages[start:stop]:
            self._take(message)

    def fetch(self, parts: Sequence[Part]) -> tuple[list[Piece], list[ToolResult]]:
        """Let parts of the past come once more, as a tool hands them over: the pieces, and the parts that they are."""
        calls, results = [], []
        for part in parts:
            self._fetches += 1
            id_ = f"fetch_{self._fetches}"
            calls.append(ToolCall(id_, FETCH, f'{{"id": "{short_id(exact_id(part))}"}}'))
            results.append(ToolResult(id_, part.content if isinstance(part, ToolResult) else (Text(block_text(part)),)))
        said = (Message("assistant", tuple(calls)), Message("tool", tuple(results)))
        wire, key = self.recording.wire, self.recording.key
        rows = emission(History(said), wire, body=True).value[key]
        before = len(self.rows)
        self.wire += rows
        for message in parse({key: rows}, wire).messages:
            self._take(message)
        return list(chain.from_iterable(row.pieces for row in self.rows[before:])), results

    def message(self, message: Message) -> list[Piece]:
        """The pieces of a message; the first carries what frames the message."""
        ids = content_ids(message)
        return [
            self._piece(name, part, first=not number)
            for number, (name, part) in enumerate(zip(ids, message.parts, strict=True))
        ]

    def whole(self) -> list[Piece]:
        """All that has come."""
        return [*self.tools, *chain.from_iterable(row.pieces for row in self.rows)]

    def since(self, start: int) -> list[Piece]:
        """The head, and the messages from one on."""
        head = (row for number in self.head if number < start for row in self._rows_of(number))
        rest = self.rows[self.starts[start] :] if start < len(self.starts) else ()
        return [*self.tools, *chain.from_iterable(row.pieces for row in (*head, *rest))]

    def rewritten(self, row: Row, words: str) -> tuple[Piece, ...]:
        """A row with other words in place of its own; what is no text in it stays."""
        first = row.pieces[0].tokens > self.scale.part(row.parts[0])
        old = row.parts[0]
        changed: Part = ToolResult(old.call_id, (Text(words),)) if isinstance(old, ToolResult) else Text(words)
        kept = [p for part, p in zip(row.parts, row.pieces, strict=True) if not isinstance(part, Text | ToolResult)]
        return self._piece(f"{type(changed).__name__} {words}", changed, first=first), *kept

    def _take(self, message: Message) -> None:
        number = len(self.messages)
        self.messages.append(message)
        self.names.update((call.id, call.name) for call in message.calls)
        spoken = message.role == "assistant"
        goes_on = spoken and bool(self.rows) and self.rows[-1].role == "assistant"
        if message.role == "system" or (
            message.role == "user" and not any(self.messages[n].role == "user" for n in self.head)
        ):
            self.head.append(number)
        if (spoken and not goes_on) or (message.role == "user" and not any(message.results)):
            self.safe.append(number)
        self.starts.append(len(self.rows) - goes_on)
        pieces = self.message(message)
        self.weights.append(sum(piece.tokens for piece in pieces))
        self._add_rows(number, message, pieces, goes_on=goes_on)

    def _add_rows(self, number: int, message: Message, pieces: Sequence[Piece], *, goes_on: bool) -> None:
        pairs = list(zip(message.parts, pieces, strict=True))
        for part, piece in pairs:
            if isinstance(part, ToolResult):
                self.results.append(len(self.rows))
                self.rows.append(Row(number, "tool", (part,), (piece,)))
        rest = [pair for pair in pairs if not isinstance(pair[0], ToolResult)]
        if not rest:
            return
        role = "user" if message.role == "tool" else message.role
        row = Row(number, role, tuple(part for part, _ in rest), tuple(piece for _, piece in rest))
        if goes_on:
            last = self.rows.pop()
            row = Row(last.message, role, last.parts + row.parts, last.pieces + row.pieces)
        self.rows.append(row)

    def _rows_of(self, number: int) -> Iterable[Row]:
        stop = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.rows)
        return self.rows[self.starts[number] : stop]

    def _piece(self, name: str, part: Part, *, first: bool) -> Piece:
        found = self._known.get((name, first))
        if found is None:
            weight = self.scale.part(part) + self.scale.overhead * first
            found = self._known[name, first] = Piece(block_text(part), weight)
        return found
