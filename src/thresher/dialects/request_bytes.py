"""The bytes of a request: parse a body with the position of each field and row, and change only the rows that changed.

A client's bytes carry meaning that a decoder loses: the order of keys, the form of numbers and escapes, spaces. Vendors
bind caches and signatures to them. So `splice` copies everything that did not change, and encodes only the rest.
"""

from json import JSONDecoder
from typing import Any, NamedTuple

from msgspec import Struct

from thresher.model.jsontext import dump_json

_scan = JSONDecoder().raw_decode
_SPACE = " \t\n\r"


class Span(NamedTuple):
    """Start and end of a value in the text."""

    start: int
    stop: int


class RequestBody(Struct, frozen=True):
    """A decoded request body, and the positions of its values in the text."""

    text: str
    value: dict[str, Any]
    fields: dict[str, Span]
    rows: list[Span]
    messages_field: str


def parse_request_body(data: bytes, messages_field: str) -> RequestBody | None:
    """Parse a body; None unless it is a JSON object with a list of messages, or names a field twice."""
    try:
        text = data.decode("utf-8")
        return _Parser(text, messages_field).parse()
    except (ValueError, RecursionError, IndexError):
        return None


class _Parser:
    """Parser of one body. The decoder of the standard library reads each value and returns where it ends."""

    def __init__(self, text: str, messages_field: str) -> None:
        self._text, self._messages_field, self._at = text, messages_field, 0
        self._rows: list[Span] = []

    def parse(self) -> RequestBody | None:
        value: dict[str, Any] = {}
        fields: dict[str, Span] = {}
        self._expect("{")
        while self._next() != "}":
            if fields:
                self._expect(",")
            name, _ = self._read_value()
            self._expect(":")
            self._skip_space()
            start = self._at
            is_messages = name == self._messages_field and self._text[start] == "["
            item = self._read_rows() if is_messages else self._read_value()[0]
            if not isinstance(name, str) or name in value:
                return None
            value[name], fields[name] = item, Span(start, self._at)
        self._at += 1
        self._skip_space()
        if self._at != len(self._text) or not isinstance(value.get(self._messages_field), list):
            return None
        return RequestBody(self._text, value, fields, self._rows, self._messages_field)

    def _read_rows(self) -> list[Any]:
        rows: list[Any] = []
        self._expect("[")
        while self._next() != "]":
            if rows:
                self._expect(",")
            row, span = self._read_value()
            rows.append(row)
            self._rows.append(span)
        self._at += 1
        return rows

    def _read_value(self) -> tuple[Any, Span]:
        self._skip_space()
        start = self._at
        value, self._at = _scan(self._text, start)
        return value, Span(start, self._at)

    def _next(self) -> str:
        self._skip_space()
        return self._text[self._at]

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            raise ValueError(f"expected `{sign}`")
        self._at += 1

    def _skip_space(self) -> None:
        text, at = self._text, self._at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self._at = at


class InsertedField(NamedTuple):
    """A field to add to an object, `owner`, in a request. The object is added if the request has none."""

    owner: str
    name: str
    value: Any


def insert_field(body: RequestBody, fitted: dict[str, Any], inserted: InsertedField) -> bytes:
    """Return the bytes of `fitted` with one more field, and no other change."""
    old = fitted.get(inserted.owner)
    new = {**(old if isinstance(old, dict) else {}), inserted.name: inserted.value}
    sent = splice(body, {**fitted, inserted.owner: new}, inserted)
    assert sent is not None  # the value is a new object
    return sent


def splice(body: RequestBody, fitted: dict[str, Any], inserted: InsertedField | None = None) -> bytes | None:
    """Return the bytes of `fitted`: the client's where a field or row is the client's own object; None for all.

    None means that nothing changed, so that the client's bytes can be sent as they are.
    """
    if fitted is body.value:
        return None

    def encode(name: str) -> str:
        if name == body.messages_field:
            return _splice_rows(body, fitted[name])
        if inserted is not None and name == inserted.owner:
            return _append_field(body.text[slice(*body.fields[name])], inserted)
        return dump_json(fitted[name])

    replaced = [
        (span, encode(name))
        for name, span in body.fields.items()
        if name in fitted and fitted[name] is not body.value[name]
    ]
    removed = body.fields.keys() - fitted.keys()
    added = {name: fitted[name] for name in fitted if name not in body.fields}
    if removed:
        return dump_json(fitted).encode()
    text, pieces, at = body.text, [], 0
    for span, piece in sorted(replaced):
        pieces += [text[at : span.start], piece]
        at = span.stop
    end = text.rindex("}")
    pieces.append(text[at:end])
    pieces += [f",{dump_json(name)}:{dump_json(value)}" for name, value in added.items()]
    return "".join([*pieces, text[end:]]).encode()


def _append_field(text: str, inserted: InsertedField) -> str:
    """Return the text of an object with one more field."""
    end = text.rindex("}")
    comma = "," if text[1:end].strip(_SPACE) else ""
    return f"{text[:end]}{comma}{dump_json(inserted.name)}:{dump_json(inserted.value)}{text[end:]}"


def _splice_rows(body: RequestBody, rows: list[Any]) -> str:
    """Return the list of rows as text, with the client's text for each row that is the client's own object."""
    spans = {id(row): span for row, span in zip(body.value[body.messages_field], body.rows, strict=True)}
    pieces = [body.text[slice(*spans[id(row)])] if id(row) in spans else dump_json(row) for row in rows]
    if not pieces or not body.rows:
        return f"[{','.join(pieces)}]"
    whole = body.fields[body.messages_field]
    text = [body.text[whole.start : body.rows[0].start], pieces[0]]
    for number, piece in enumerate(pieces[1:]):
        between = body.rows[number : number + 2]
        text += [body.text[between[0].stop : between[1].start] if len(between) == 2 else ",", piece]
    return "".join([*text, body.text[body.rows[-1].stop : whole.stop]])
