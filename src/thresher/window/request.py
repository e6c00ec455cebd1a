"""One pass over what comes in: which rows there are, and by what they will be known when they come again.

A row's digest is of its JSON without cache marks, so that moving a mark changes nothing; the chain says of each row
what came before it, so that equal chains mean equal beginnings. Rows may hold objects of a vendor's SDK.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import blake2b
from math import isfinite
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from thresher.dialects import Dialect
from thresher.dialects.cache_control import strip_cache_breakpoints
from thresher.dialects.intake import CERTAIN_MATCH, convert_sdk_object, require_dialect, to_json_value, to_plain_request
from thresher.dialects.table import find_vendor_dialect, get_native_dialect, load_dialects
from thresher.errors import FormatError, OptionError
from thresher.model import Message
from thresher.model.jsontext import dump_json
from thresher.tokens import find_model
from thresher.transcripts import find_format, sniff

DIGEST_BYTES = 16
CACHE_CONTROL_KEY = b'"cache_control"'
ENCODE_ERRORS = (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError)
"""What the fast encoder raises for values that JSON can hold in another way."""
SNIFFED_ROWS = 6
"""Rows at the end that are looked at for signs of another format."""
EMPTY_DIGEST = b""
"""What the chain begins with."""


class WindowRequest(Struct, frozen=True):
    """What comes in, taken apart."""

    value: Any
    dialect: Dialect
    rows: Sequence[Any]
    """As they were given: objects of a vendor's SDK may be among them."""
    is_body: bool
    row_digests: list[bytes]
    prefix_digests: list[bytes]
    prompt_digest: bytes
    """A digest of what a body says before its first row: system text, tools."""
    has_cache_breakpoints: bool
    """Whether a row carries a cache mark of the user's."""

    def plain_rows(self, start: int = 0) -> list[Any]:
        """The rows from one on, as JSON values and without cache marks."""
        rows: list[Any] = strip_cache_breakpoints([to_json_value(row) for row in self.rows[start:]])
        return rows

    def other_fields(self) -> dict[str, Any]:
        """The other fields of a body."""
        if not self.is_body:
            return {}
        fields: dict[str, Any] = {key: value for key, value in self.value.items() if key != self.dialect.messages_field}
        return fields


def has_nothing_to_fit(value: Any) -> bool:
    """Whether there is nothing to fit: no rows yet, text in their place, or a history that the server keeps."""
    if not isinstance(value, dict):
        return isinstance(value, list) and all(isinstance(row, str) for row in value)
    for dialect in load_dialects():
        rows = value.get(dialect.messages_field)
        if rows in ([], ()) or (dialect.takes_text and isinstance(rows, str | dict)):
            return True
        if any(value.get(key) for key in dialect.server_history_fields):
            return True
    return False


def read_request(value: Any, format: str | None = None, last: "WindowRequest | None" = None) -> WindowRequest:
    """Take messages, or a request body, apart; what the `last` one had in front is not worked out again."""
    found = _detect_dialect(value, format, last)
    is_body = isinstance(value, dict)
    rows = value.get(found.messages_field) if is_body else value
    if not isinstance(rows, list | tuple):
        raise FormatError(f"`{found.name}` messages are a list, or a body with a list under `{found.messages_field}`")
    digests, is_marked = _digest_rows(rows)
    head = {key: value[key] for key in value if key in found.prompt_fields} if is_body else {}
    return WindowRequest(
        value=value,
        dialect=found,
        rows=rows,
        is_body=is_body,
        row_digests=digests,
        prefix_digests=_extend_prefix_digests(last, digests),
        prompt_digest=_hash_bytes(_encode_json(strip_cache_breakpoints(head))) if head else EMPTY_DIGEST,
        has_cache_breakpoints=is_marked,
    )


def _detect_dialect(value: Any, name: str | None, last: WindowRequest | None) -> Dialect:
    """The format of a request: what was named, that of the last one if it may still be, or what it looks like."""
    if name is not None:
        return resolve_window_dialect(name)
    if last is not None:
        few = _sniff_sample(value, few=True)
        certain = [one for one in load_dialects() if one.sniff(few) == CERTAIN_MATCH]
        if last.dialect.sniff(few) and certain in ([], [last.dialect]):
            return last.dialect
    chosen = _sniff_dialect(value) if isinstance(value, list | tuple | dict) else None
    return require_dialect(to_plain_request(value)) if chosen is None else resolve_window_dialect(chosen)


def _sniff_dialect(value: Any) -> str | None:
    """Return what a request looks like; where it could be another's, the vendor of its model decides."""
    seen = _sniff_sample(value)
    chosen = sniff(seen)
    known = find_model(str(value.get("model"))) if isinstance(value, dict) and value.get("model") else None
    found = get_native_dialect(chosen) if chosen and known is not None else None
    if found is None or known is None or known.vendor == found.vendor or found.sniff(seen) == CERTAIN_MATCH:
        return chosen
    shared = find_vendor_dialect("")
    return shared.name if shared.sniff(seen) else chosen


def is_for_vendor(request: "WindowRequest") -> bool:
    """Whether a request surely goes to the dialect's own vendor: by its model, or by blocks that no other has."""
    model = request.value.get("model") if request.is_body else None
    if isinstance(model, str) and model:
        known = find_model(model)
        dialect = request.dialect
        return known.vendor == dialect.vendor if known is not None else dialect.model_name_part in model.lower()
    return request.dialect.sniff(_sniff_sample(request.value, few=True)) == CERTAIN_MATCH


def resolve_window_dialect(name: str) -> Dialect:
    """The wire format of that name."""
    found = find_format(name)
    if not isinstance(found, Dialect):
        raise FormatError(f"a window takes messages of an API; `{name}` is a transcript: read it, and emit it first")
    return found


def _sniff_sample(value: Any, *, few: bool = False) -> Any:
    """A request as JSON values, as far as one looks at it to tell its format; a few rows tell whether it changed."""
    if isinstance(value, dict):
        fields = {one.messages_field for one in load_dialects()}
        keys = [key for key in fields if isinstance(value.get(key), list | tuple)]
        return {**value, **{key: _sniff_sample(value[key], few=few) for key in keys}}
    rows = [*value[:2], *value[2:][-SNIFFED_ROWS:]] if few else value
    return [to_json_value(row) for row in rows] if isinstance(rows, list | tuple) else value


def _extend_prefix_digests(last: WindowRequest | None, digests: list[bytes]) -> list[bytes]:
    known = 0 if last is None else len(last.row_digests)
    if last is None or digests[:known] != last.row_digests:
        return compute_prefix_digests(digests)
    return last.prefix_digests + compute_prefix_digests(digests[known:], last.prefix_digests[-1])


def compute_prefix_digests(digests: Sequence[bytes], before: bytes = EMPTY_DIGEST) -> list[bytes]:
    """For each row, a digest of it and of all before it."""
    chain: list[bytes] = []
    for one in digests:
        before = blake2b(before + one, digest_size=DIGEST_BYTES).digest()
        chain.append(before)
    return chain


def _digest_rows(rows: Sequence[Any]) -> tuple[list[bytes], bool]:
    """What the rows are known by, and whether any carries a mark: the one loop that every call runs over all rows."""
    encode, digests, is_marked = _encoder().encode, [], False
    for given in rows:
        row = given if type(given) is dict else to_json_value(given)
        content = row.get("content") if type(row) is dict else None
        try:
            data = encode(_collapse_single_text(row) if type(content) is list and len(content) == 1 else row)
        except ENCODE_ERRORS:
            data = _encode_json(_collapse_single_text(row))
        if CACHE_CONTROL_KEY in data:
            is_marked = True
            data = _encode_json(_collapse_single_text(strip_cache_breakpoints([to_json_value(row)])[0]))
        digests.append(blake2b(data, digest_size=DIGEST_BYTES).digest())
    return digests, is_marked


def digest_row(row: Any) -> bytes:
    """What a row is known by."""
    return _digest_rows((row,))[0][0]


def _hash_bytes(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def _collapse_single_text(row: Any) -> Any:
    """A lone text block means what a plain string means, and a cache mark makes the one of the other."""
    content = row.get("content") if type(row) is dict else None
    if type(content) is list and len(content) == 1:
        block = content[0] if type(content[0]) is dict else to_json_value(content[0])
        if type(block) is dict and block.get("type") == "text" and len(block) == 2 and type(block.get("text")) is str:
            return {**row, "content": block["text"]}
    return row


def _encode_json(value: Any) -> bytes:
    try:
        return _encoder().encode(value)
    except ENCODE_ERRORS:
        return dump_json(to_json_value(value)).encode("utf-8", "surrogatepass")


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=convert_sdk_object)


def parse_request_rows(request: WindowRequest, rows: list[Any]) -> tuple[Message, ...]:
    """Some of the rows as messages, one each."""
    return request.dialect.parse(rows).messages


def is_self_contained(message: Message) -> bool:
    """Whether a row can be read without those before it: its calls and results bring ids of their own."""
    pockets = (owner.pocket for owner in (message, *message.parts))
    return not any("no-id" in pocket.shape or "function_call" in pocket.shape for pocket in pockets if pocket)


def to_epoch_seconds(at: datetime | float | None) -> float:
    """The time of a call, in seconds since the epoch; by default now."""
    if at is None:
        return time()
    if isinstance(at, datetime):
        return at.timestamp()
    if isinstance(at, int | float) and isfinite(at):
        return float(at)
    raise OptionError(f"`at` is a datetime, or seconds since the epoch; not {at!r}")
