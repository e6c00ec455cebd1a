"""Layout of a history in a dialect's rows, for the rules to check without encoding it.

`HistoryIndex` is built once per history. It holds the parts with their places, and matches results to calls.
`DialectLayout` arranges the same parts in the rows that a dialect sends: one row per native message, foreign messages
merged by role, without parts that the dialect cannot represent. Rules skip opaque rows, because only the vendor knows
their meaning.
"""

from collections.abc import Callable
from typing import NamedTuple

from thresher.dialects.extras import is_opaque_message
from thresher.model import History, Message, Place
from thresher.model.open_calls import OpenCalls
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown


class PlacedPart(NamedTuple):
    """A part and its place."""

    place: Place
    part: Part


class RuleFinding(NamedTuple):
    """A rule violation, and the message index and part index where it is."""

    message: int
    part: int | None
    detail: str


class LayoutRow:
    """One message of a request, as its API receives it."""

    __slots__ = ("is_native", "is_opaque", "message", "parts", "role")

    def __init__(
        self, role: str, message: int, pieces: list[PlacedPart], *, native: bool = False, opaque: bool = False
    ):
        """Create a row from its first message, whose index is `message`."""
        self.role = role
        self.message = message
        self.parts = pieces
        self.is_native = native
        self.is_opaque = opaque


class HistoryIndex:
    """Index of a history that is valid for every dialect."""

    def __init__(self, history: History) -> None:
        """Build the index in one pass."""
        self.history = history
        self.parts_by_message: list[list[PlacedPart]] = []
        self.all_portable: list[bool] = []
        """For each message, True if every dialect can represent all its parts."""
        self.empty_texts: list[PlacedPart] = []
        self.blank_texts: list[PlacedPart] = []
        """Texts that contain only whitespace."""
        self.result_by_call: dict[Place, Place] = {}
        """Place of the result of each answered call."""
        self.call_by_result: dict[Place, Place] = {}
        """Place of the call of each matched result."""
        self.orphan_results: set[Place] = set()
        self.repeated_results: set[Place] = set()
        """Places of results whose call already has an earlier result."""
        self.encoding_suspects: list[tuple[int, int | None]] | None = None
        """Positions of possible encoding errors. The encoding rule sets them once for all dialects; None before."""
        self._open_calls = OpenCalls[Place]()
        for index, message in enumerate(history.messages):
            self._add_message(index, message)

    def _add_message(self, index: int, message: Message) -> None:
        pieces: list[PlacedPart] = []
        is_portable = True
        for number, part in enumerate(message.parts):
            place = Place(index, number)
            pieces.append(PlacedPart(place, part))
            kind = type(part)
            if kind is ToolCall:
                self._open_calls.add(part.id, index, place)  # type: ignore[union-attr]
            elif kind is ToolResult:
                self._pair_result(place, part.call_id)  # type: ignore[union-attr]
            elif kind is Thinking or kind is Unknown:
                is_portable = False
            elif kind is not Image:
                text = part.text  # type: ignore[union-attr]
                is_portable = is_portable and bool(text)
                if not text or text.isspace():
                    (self.blank_texts if text else self.empty_texts).append(pieces[-1])
        self.parts_by_message.append(pieces)
        self.all_portable.append(is_portable)

    def _pair_result(self, result: Place, call_id: str) -> None:
        call = self._open_calls.answer(call_id)
        if call is None:
            (self.repeated_results if self._open_calls.was_called(call_id) else self.orphan_results).add(result)
            return
        self.result_by_call[call] = result
        self.call_by_result[result] = call


class DialectLayout:
    """A history arranged in the rows of one dialect."""

    def __init__(self, history_index: HistoryIndex, dialect: str, arrange: "ArrangeRows") -> None:
        """Arrange the parts of a history as `dialect` emits them, then index calls and results."""
        self.history_index = history_index
        self.dialect = dialect
        self.messages = history_index.history.messages
        self.rows: list[LayoutRow] = []
        self.system_messages: list[int] = []
        """Indexes of messages that are sent as system text, outside the rows."""
        self.calls: list[tuple[int, PlacedPart]] = []
        self.results: list[tuple[int, PlacedPart]] = []
        self.thinking: list[tuple[int, PlacedPart]] = []
        self.row_by_place: dict[Place, int] = {}
        """Index of the row of each call and result."""
        self.legacy_calls: set[Place] = set()
        """Places of calls in the legacy `function_call` field of Chat Completions."""
        arrange(self)
        self._index_parts()

    def _index_parts(self) -> None:
        # Exact types are faster than `isinstance`: this loop visits every part, once per dialect.
        for number, row in enumerate(self.rows):
            for piece in row.parts:
                kind = type(piece[1])
                if kind is ToolCall:
                    self.calls.append((number, piece))
                    self.row_by_place[piece[0]] = number
                elif kind is ToolResult:
                    self.results.append((number, piece))
                    self.row_by_place[piece[0]] = number
                elif kind is Thinking:
                    self.thinking.append((number, piece))

    def is_native(self, index: int) -> bool:
        """Return True if a message was parsed from this dialect."""
        pocket = self.messages[index].pocket
        return pocket is not None and pocket.format == self.dialect


def portable_parts(history_index: HistoryIndex, index: int) -> list[PlacedPart]:
    """Return the parts of a foreign message that any dialect can represent."""
    if history_index.all_portable[index]:
        return history_index.parts_by_message[index]
    return [piece for piece in history_index.parts_by_message[index] if is_portable_part(piece.part)]


def is_portable_part(part: Part) -> bool:
    """Return True if any dialect can represent a part."""
    if isinstance(part, Text | Summary):
        return bool(part.text)
    return not isinstance(part, Thinking | Unknown)


ArrangeRows = Callable[[DialectLayout], None]


def arrange_by_role(layout: DialectLayout) -> None:
    """Arrange rows of the roles user and assistant, with adjacent foreign messages of one role in one row.

    Leading system text is not in a row.
    """
    can_merge = False
    for index, message in enumerate(layout.messages):
        native = layout.is_native(index)
        if _is_separate_system_text(layout, message, native=native):
            layout.system_messages.append(index)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        pieces = layout.history_index.parts_by_message[index] if native else portable_parts(layout.history_index, index)
        if native:
            layout.rows.append(
                LayoutRow(role, index, pieces, native=True, opaque=is_opaque_message(message, layout.dialect))
            )
            can_merge = False
        elif pieces and can_merge and layout.rows[-1].role == role:
            layout.rows[-1].parts = _merge_row_parts(layout.rows[-1].parts, pieces, role)
        elif pieces:
            layout.rows.append(LayoutRow(role, index, pieces))
            can_merge = True


def _is_separate_system_text(layout: DialectLayout, message: Message, *, native: bool) -> bool:
    if native:
        return message.role == "system" and message.pocket is not None and message.pocket.shape.startswith("system")
    return message.role == "system" and not layout.rows


def _merge_row_parts(before: list[PlacedPart], after: list[PlacedPart], role: str) -> list[PlacedPart]:
    """Merge the parts of two foreign messages, results first for a user row, as the encoders do."""
    merged = [*before, *after]
    if role == "user" and any(isinstance(piece.part, ToolResult) for piece in after):
        merged.sort(key=lambda piece: not isinstance(piece.part, ToolResult))
    return merged


def arrange_in_order(layout: DialectLayout) -> None:
    """Arrange one row per message in order; leading system text and instructions are not in a row."""
    for index, message in enumerate(layout.messages):
        native = layout.is_native(index)
        leading = message.role == "system" and not layout.rows and not native
        if leading or (native and message.pocket and message.pocket.shape == "instructions"):
            layout.system_messages.append(index)
            continue
        pieces = layout.history_index.parts_by_message[index] if native else portable_parts(layout.history_index, index)
        if native or pieces:
            opaque = native and is_opaque_message(message, layout.dialect)
            layout.rows.append(LayoutRow(message.role, index, pieces, native=native, opaque=opaque))
