"""One pass over what comes in: which rows there are, and by what they will be known when they come again.

A row's digest is of its JSON without cache marks, so that moving a mark changes nothing; the chain says of each row
what came before it, so that equal chains mean equal beginnings. Rows may hold objects of a vendor's SDK.
"""

from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import blake2b
from math import isfinite
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from thresher.errors import FormatError, OptionError
from thresher.formats import WireFormat, find_format, sniff
from thresher.formats.table import wire_formats
from thresher.model import Message
from thresher.model.jsontext import dump
from thresher.tokens import model_named
from thresher.window.marks import without_marks

SIZE = 16
MARK = b'"cache_control"'
UNWRITABLE = (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError)
"""What the fast encoder raises for values that JSON can hold in another way."""
PROMPT = frozenset(
    {"system", "tools", "instructions", "systemInstruction", "system_instruction", "functions", "config"}
)
"""Fields of a body that are part of the prompt, and stand before the messages."""
ROWS = ("messages", "input", "contents")
KEPT_ELSEWHERE = ("previous_response_id", "conversation")
"""Fields of a body of the Responses API that name a history on the server."""
LOOKED_AT = 6
"""Rows at the end that are looked at for signs of another format."""
CERTAIN = 3
START = b""
"""What the chain begins with."""


class Request(Struct, frozen=True):
    """What comes in, taken apart."""

    value: Any
    format: WireFormat
    rows: Sequence[Any]
    """As they were given: objects of a vendor's SDK may be among them."""
    is_body: bool
    digests: list[bytes]
    chain: list[bytes]
    head: bytes
    """A digest of what a body says before its first row: system text, tools."""
    is_marked: bool
    """Whether a row carries a cache mark of the user's."""

    def plain(self, start: int = 0) -> list[Any]:
        """The rows from one on, as JSON values and without cache marks."""
        rows: list[Any] = without_marks([_as_json(row) for row in self.rows[start:]])
        return rows

    def around(self) -> dict[str, Any]:
        """The other fields of a body."""
        if not self.is_body:
            return {}
        fields: dict[str, Any] = {key: value for key, value in self.value.items() if key != self.format.rows}
        return fields


def is_empty(value: Any) -> bool:
    """Whether there is nothing to be fitted: no rows yet, words in their place, or a history that the server keeps."""
    if isinstance(value, dict):
        words = any(isinstance(value.get(key), str | dict) for key in ("input", "contents"))
        elsewhere = any(value.get(key) for key in KEPT_ELSEWHERE)
        return words or elsewhere or any(value.get(key) in ([], ()) for key in ROWS)
    return isinstance(value, list | tuple) and all(isinstance(row, str) for row in value)


def read_request(value: Any, format: str | None = None, last: "Request | None" = None) -> Request:
    """Take messages, or a request body, apart; what the `last` one had in front is not worked out again."""
    found = _format_of(value, format, last)
    is_body = isinstance(value, dict)
    rows = value.get(found.rows) if is_body else value
    if not isinstance(rows, list | tuple):
        raise FormatError(f"`{found.name}` messages are a list, or a body with a list under `{found.rows}`")
    digests, is_marked = _digested(rows)
    head = {key: value[key] for key in value if key in PROMPT} if is_body else {}
    return Request(
        value=value,
        format=found,
        rows=rows,
        is_body=is_body,
        digests=digests,
        chain=_chain_after(last, digests),
        head=_hashed(_encoded(without_marks(head))) if head else START,
        is_marked=is_marked,
    )


def _format_of(value: Any, name: str | None, last: Request | None) -> WireFormat:
    """The format of a request: what was named, that of the last one if it may still be, or what it looks like."""
    if name is not None:
        return wire_format(name)
    if last is not None:
        few = _looked_at(value, few=True)
        certain = [one for one in wire_formats() if one.sniff(few) == CERTAIN]
        if last.format.sniff(few) and certain in ([], [last.format]):
            return last.format
    chosen = _sniffed(value) if isinstance(value, list | tuple | dict) else None
    if chosen is None:
        raise FormatError(
            f"a window takes a list of messages, or a request body, of an API that it knows; this "
            f"{type(value).__name__} is none: name its format (`format=`), or use `th.fit` for a history or a session"
        )
    return wire_format(chosen)


def _sniffed(value: Any) -> str | None:
    """What a request looks like; where it could be anyone's, the model that it names decides."""
    seen = _looked_at(value)
    chosen = sniff(seen)
    known = model_named(str(value.get("model"))) if isinstance(value, dict) and value.get("model") else None
    if chosen == "anthropic" and known is not None and known.vendor != "anthropic":
        chat = wire_format("openai-chat")
        return chat.name if wire_format(chosen).sniff(seen) < CERTAIN and chat.sniff(seen) else chosen
    return chosen


def is_claude(request: "Request") -> bool:
    """Whether a request is surely for Anthropic's API: by its model, or by blocks that no other has."""
    model = request.value.get("model") if request.is_body else None
    if isinstance(model, str) and model:
        known = model_named(model)
        return known.vendor == "anthropic" if known is not None else "claude" in model.lower()
    return request.format.sniff(_looked_at(request.value, few=True)) == CERTAIN


def wire_format(name: str) -> WireFormat:
    """The wire format of that name."""
    found = find_format(name)
    if not isinstance(found, WireFormat):
        raise FormatError(f"a window takes messages of an API; `{name}` is a transcript: read it, and emit it first")
    return found


def _looked_at(value: Any, *, few: bool = False) -> Any:
    """A request as JSON values, as far as one looks at it to tell its format; a few rows tell whether it changed."""
    if isinstance(value, dict):
        keys = [key for key in ROWS if isinstance(value.get(key), list | tuple)]
        return {**value, **{key: _looked_at(value[key], few=few) for key in keys}}
    rows = [*value[:2], *value[2:][-LOOKED_AT:]] if few else value
    return [_as_json(row) for row in rows] if isinstance(rows, list | tuple) else value


def _chain_after(last: Request | None, digests: list[bytes]) -> list[bytes]:
    known = 0 if last is None else len(last.digests)
    if last is None or digests[:known] != last.digests:
        return chained(digests)
    return last.chain + chained(digests[known:], last.chain[-1])


def chained(digests: Sequence[bytes], before: bytes = START) -> list[bytes]:
    """For each row, a digest of it and of all before it."""
    chain: list[bytes] = []
    for one in digests:
        before = blake2b(before + one, digest_size=SIZE).digest()
        chain.append(before)
    return chain


def _digested(rows: Sequence[Any]) -> tuple[list[bytes], bool]:
    """What the rows are known by, and whether any carries a mark: the one loop that every call runs over all rows."""
    encode, digests, is_marked = _encoder().encode, [], False
    for given in rows:
        row = given if type(given) is dict else _as_json(given)
        content = row.get("content") if type(row) is dict else None
        try:
            data = encode(_as_said(row) if type(content) is list and len(content) == 1 else row)
        except UNWRITABLE:
            data = _encoded(_as_said(row))
        if MARK in data:
            is_marked = True
            data = _encoded(_as_said(without_marks([_as_json(row)])[0]))
        digests.append(blake2b(data, digest_size=SIZE).digest())
    return digests, is_marked


def digest(row: Any) -> bytes:
    """What a row is known by."""
    return _digested((row,))[0][0]


def _hashed(data: bytes) -> bytes:
    return blake2b(data, digest_size=SIZE).digest()


def _as_said(row: Any) -> Any:
    """A lone text block means what a plain string means, and a cache mark makes the one of the other."""
    content = row.get("content") if type(row) is dict else None
    if type(content) is list and len(content) == 1:
        block = content[0] if type(content[0]) is dict else _as_json(content[0])
        if type(block) is dict and block.get("type") == "text" and len(block) == 2 and type(block.get("text")) is str:
            return {**row, "content": block["text"]}
    return row


def _encoded(value: Any) -> bytes:
    try:
        return _encoder().encode(value)
    except UNWRITABLE:
        return dump(_as_json(value)).encode("utf-8", "surrogatepass")


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=_said_by)


def _said_by(thing: Any) -> Any:
    """An object of a vendor's SDK as a value."""
    if hasattr(thing, "model_dump"):
        return _as_json(thing.model_dump(mode="json", by_alias=True, exclude_none=True))
    if hasattr(thing, "to_dict"):
        return _as_json(thing.to_dict())
    raise FormatError(f"a message holds a {type(thing).__name__}, which is no JSON value: give dicts, lists and texts")


def _as_json(row: Any) -> Any:
    """A row as JSON values; the same object where it is made of them already."""
    if type(row) is dict:
        changed = {key: value for key, old in row.items() if (value := _as_json(old)) is not old}
        return {**row, **changed} if changed else row
    if isinstance(row, tuple):
        return [_as_json(item) for item in row]
    if isinstance(row, bytes):
        return b64encode(row).decode()
    if type(row) is list:
        items = [_as_json(item) for item in row]
        return items if any(a is not b for a, b in zip(items, row, strict=True)) else row
    return row if row is None or isinstance(row, str | int | float | bool | dict | list) else _said_by(row)


def parsed(request: Request, rows: list[Any]) -> tuple[Message, ...]:
    """Some of the rows as messages, one each."""
    return request.format.parse(rows).messages


def is_alone(message: Message) -> bool:
    """Whether a row can be read without those before it: its calls and results bring ids of their own."""
    pockets = (owner.pocket for owner in (message, *message.parts))
    return not any("no-id" in pocket.shape or "function_call" in pocket.shape for pocket in pockets if pocket)


def seconds(at: datetime | float | None) -> float:
    """The time of a call, in seconds since the epoch; by default now."""
    if at is None:
        return time()
    if isinstance(at, datetime):
        return at.timestamp()
    if isinstance(at, int | float) and isfinite(at):
        return float(at)
    raise OptionError(f"`at` is a datetime, or seconds since the epoch; not {at!r}")
