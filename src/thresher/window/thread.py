"""A conversation as far as it has come: what was given, and what is sent for it.

What is sent is a function of the rows that came in and of the newest epoch for them: the rows up to the epoch are
mended, edited and written; those behind it go out as they came in. A thread that grows works out only what is new,
and one that is built anew from the same rows and the same ledger sends the same bytes.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from thresher.edits import Plan, apply, is_pointer, repair
from thresher.edits.legality import Growing
from thresher.edits.repair import RepairError
from thresher.model import History, Message, ToolResult
from thresher.model.jsontext import canonical
from thresher.tokens import Scale
from thresher.window.intake import PROMPT, Request, digest, is_alone, parsed
from thresher.window.ledger import Edits, Epoch
from thresher.window.marks import with_mark_of

POINTER = 45
"""About what a pointer weighs, in tokens: a result that weighs less is not worth one."""


WEAR = 1.25
"""How much a result wears with a call, on average: see the policy `fading`."""


class Prompt(Struct, frozen=True):
    """What stands before the messages: system text, tools, and the rest of the body."""

    messages: tuple[Message, ...]
    tools: str
    pocket: Any

    def history(self, messages: Sequence[Message]) -> History:
        """A history that begins with it."""
        return History((*self.messages, *messages), self.tools, self.pocket)


class Result(Struct, frozen=True):
    """A tool result that is sent whole, and may become a pointer."""

    message: int
    """Its place among the messages that are sent."""
    call: int
    """How many calls of the model stand before it."""
    saving: int


class Came(Struct, frozen=True):
    """What is new in a request."""

    new: Sequence[Message] = ()
    carried: Edits = {}
    """Edits of before, where the conversation took another turn and its past may still have them."""


class Thread:
    """One conversation: grows with what is new, or is built anew where it took another turn."""

    def __init__(
        self, request: Request, epoch: Epoch | None, edits: Edits, scale: Scale, known: "Thread | None"
    ) -> None:
        """Build what is sent for a request, with the edits of an epoch; `known` lends what it has parsed."""
        self.scale = scale
        self.epoch = epoch
        self.edits = edits
        self.chain = request.chain
        self.came = request.digests
        self.head = request.head
        self.dialect = request.format.name
        lent = known._parsed if known is not None and known.dialect == self.dialect else {}
        self._parsed: dict[bytes, Message] = dict(lent)
        self.raw: list[Message] = []
        self._are_tied = False
        """Whether rows are read together, since some have no ids of their own."""
        self.prompt = prompt_of(request)
        self.raw = self._messages(request, 0)
        self._parsed = {one: self._parsed[one] for one in request.digests if one in self._parsed}
        self._settle(request)

    def _settle(self, request: Request) -> None:
        """Work out what is sent: the epoch's part mended, edited and written; what came later as it is."""
        rows = self.epoch.rows if self.epoch is not None else 0
        base = self.prompt.history(self.raw[:rows])
        base = mended(base, request.format.name) if rows else base
        after = apply(base, Plan(tuple(self.edits.values()), 0, 0))
        head = len(self.prompt.messages)
        tail = self.raw[rows:]
        self.original = structs.replace(base, messages=(*base.messages, *tail))
        self._growing = Growing(request.format.name)
        self.is_legal = self._growing.takes(self.original)
        self.sent = [*after.messages, *tail]
        written: Any = request.format.emit(after, request.is_body).value if rows else []
        self.fields: dict[str, Any] | None = None
        if rows and request.is_body:
            self.fields = _changed_fields(request, written, self.prompt.messages != after.messages[:head])
            written = written[request.format.rows]
        self.slots = _slots(written, request.plain()[:rows] if rows else [])
        self.stable = max((n for n, one in enumerate(self.slots, 1) if type(one) is not int), default=len(self.slots))
        self.is_untouched = self.slots == list(range(rows)) and self.fields is None
        self.slots += range(rows, len(self.raw))
        self.calls = 0
        self.results: list[Result] = []
        self.before: list[int] = []
        """Tokens before each message that is sent."""
        self._speaks = False
        self._spoken = 0
        for message in self.raw:
            self._hear(message)
        self.tokens = self.scale.tools(self.prompt.tools)
        for index, message in enumerate(self.sent):
            self._count(index, message)

    def extends(self, request: Request) -> bool:
        """Whether a request is this conversation, perhaps with more rows."""
        length = len(self.chain)
        same = request.head == self.head and request.format.name == self.dialect
        return same and length <= len(request.chain) and request.chain[length - 1] == self.chain[-1]

    def unlike(self, other: "Thread | None") -> list[Message]:
        """The messages from the first on that another thread does not have; none where there is no other."""
        if other is None:
            return []
        pairs = enumerate(zip(self.chain, other.chain, strict=False))
        shared = next((row for row, (one, its) in pairs if one != its), min(len(self.chain), len(other.chain)))
        return self.raw[shared:]

    def grow(self, request: Request) -> list[Message]:
        """Take the rows that are new; says which they are."""
        start = len(self.chain)
        new = self._messages(request, start)
        if not new:
            return new
        self.chain = request.chain
        self.came = request.digests
        self.raw += new
        self.original = structs.replace(self.original, messages=(*self.original.messages, *new))
        self.is_legal = self.is_legal and self._growing.takes(self.original)
        for message in new:
            self._hear(message)
            self._count(len(self.sent), message)
            self.sent.append(message)
        self.slots += range(start, len(self.raw))
        return new

    def request(self, request: Request) -> Any:
        """What to send: what came in, itself where nothing in it changes."""
        if self.is_untouched:
            return request.value
        rows = [request.rows[slot] if type(slot) is int else slot.row for slot in self.slots]
        if request.is_marked and type(self.slots[-1]) is not int:
            rows[-1] = with_mark_of(rows[-1], request.rows[-1])
        if not request.is_body:
            return rows
        fields = self.fields or {}
        around = {key: fields.get(key, value) for key, value in request.around().items()}
        kept = {key: value for key, value in around.items() if key not in fields or value is not None}
        return {**kept, request.format.rows: rows}

    def age(self, result: Result) -> float:
        """About how far a result has worn: by the calls since then, and on."""
        return (self._spoken - result.call) * WEAR

    def digests(self) -> list[bytes]:
        """What the rows that are sent are known by."""
        return [self.came[slot] if type(slot) is int else slot.digest for slot in self.slots]

    def tokens_before(self, row: int) -> int:
        """Tokens before one of the rows that are sent."""
        message = row + len(self.prompt.messages)
        return self.before[message] if message < len(self.before) else self.tokens

    def _messages(self, request: Request, start: int) -> list[Message]:
        """The rows from one on as messages; equal rows are the same message, so that nothing is weighed twice."""
        if self._are_tied:
            return self._paired(request)[start:]
        wanted = request.digests[start:]
        missing = [index for index, one in enumerate(wanted, start) if one not in self._parsed]
        if missing:
            rows = request.plain(missing[0])
            found = parsed(request, [rows[index - missing[0]] for index in missing])
            if not all(map(is_alone, found)):
                self._are_tied = True
                return self._paired(request)[start:]
            self._parsed.update((request.digests[index], one) for index, one in zip(missing, found, strict=True))
        return [self._parsed[one] for one in wanted]

    def _paired(self, request: Request) -> list[Message]:
        """All rows as messages, read together: calls without ids are known by what came before them."""
        old = self.raw
        found = parsed(request, request.plain())
        return [old[i] if i < len(old) and old[i] == message else message for i, message in enumerate(found)]

    def _hear(self, message: Message) -> None:
        """Count the model's calls: a run of its messages is one."""
        speaks = message.role == "assistant"
        self.calls += speaks and not self._speaks
        self._speaks = speaks

    def _count(self, index: int, message: Message) -> None:
        self._spoken += message.role == "assistant" and not (index and self.sent[index - 1].role == "assistant")
        self.before.append(self.tokens)
        self.tokens += self.scale.message(message)
        for part, weight in zip(message.parts, self.scale.parts(message), strict=True):
            if isinstance(part, ToolResult) and weight > 2 * POINTER and not is_pointer(part):
                self.results.append(Result(index, self._spoken, weight - POINTER))


class Written(Struct, frozen=True):
    """A row that we wrote."""

    row: Any
    digest: bytes


def _slots(written: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
    """For each row to send: the number of the row that came in, where it says the same; else the row itself."""
    places: dict[str, list[int]] = {}
    for index in range(len(rows) - 1, -1, -1):
        places.setdefault(canonical(rows[index]), []).append(index)
    slots: list[Any] = []
    after = -1
    for row in written:
        spots = places.get(canonical(row), [])
        while spots and spots[-1] <= after:
            spots.pop()
        if spots:
            after = spots.pop()
            slots.append(after)
        else:
            slots.append(Written(row, digest(row)))
    return slots


def prompt_of(request: Request) -> Prompt:
    """What a body says beside its rows."""
    around = request.around()
    history = request.format.parse({**around, request.format.rows: []} if request.is_body else [])
    return Prompt(history.messages, history.tools, history.pocket)


def _changed_fields(request: Request, written: dict[str, Any], changed: bool) -> dict[str, Any] | None:
    """What the body says before its rows, where an edit or a repair has changed it; None: nothing any more."""
    return {key: written.get(key) for key in PROMPT if key in request.value} if changed else None


def mended(history: History, dialect: str) -> History:
    """A history as its API takes it; as it came where that cannot be had."""
    try:
        return repair(history, dialect).history
    except RepairError:
        return history
