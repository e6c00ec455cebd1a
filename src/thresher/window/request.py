"""A request to a window: its rows, and the digests that identify them in later requests.

The digest of a row covers its JSON without cache breakpoints, so moving a breakpoint changes nothing. A prefix digest
covers a row and all rows before it, so equal prefix digests mean equal prefixes. Rows may hold objects of a vendor's
SDK.
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
"""Errors of the fast encoder for values that the slower one can encode."""
SNIFFED_ROWS = 6
"""Number of last rows to check for a change of dialect."""
EMPTY_DIGEST = b""
"""Digest of the empty prefix."""


class WindowRequest(Struct, frozen=True):
    """A request, split into its parts."""

    value: Any
    dialect: Dialect
    rows: Sequence[Any]
    """The rows as given, perhaps with objects of a vendor's SDK."""
    is_body: bool
    row_digests: list[bytes]
    prefix_digests: list[bytes]
    prompt_digest: bytes
    """Digest of the fields before the first row: system text, tools."""
    has_cache_breakpoints: bool
    """True if the user placed a cache breakpoint in a row."""

    def plain_rows(self, start: int = 0) -> list[Any]:
        """Return the rows from `start` on as JSON values without cache breakpoints."""
        rows: list[Any] = strip_cache_breakpoints([to_json_value(row) for row in self.rows[start:]])
        return rows

    def other_fields(self) -> dict[str, Any]:
        """Return the fields of a body other than its rows."""
        if not self.is_body:
            return {}
        fields: dict[str, Any] = {key: value for key, value in self.value.items() if key != self.dialect.messages_field}
        return fields


def has_nothing_to_fit(value: Any) -> bool:
    """Return True if a request has no rows, has plain text as its input, or refers to a history on the server."""
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
    """Split messages or a request body into a `WindowRequest`; reuse the prefix digests of the `last` request."""
    dialect = _detect_dialect(value, format, last)
    is_body = isinstance(value, dict)
    rows = value.get(dialect.messages_field) if is_body else value
    if not isinstance(rows, list | tuple):
        raise FormatError(
            f"`{dialect.name}` messages must be a list, or a body with a list under `{dialect.messages_field}`"
        )
    digests, has_cache_breakpoints = _digest_rows(rows)
    prompt = {key: value[key] for key in value if key in dialect.prompt_fields} if is_body else {}
    prompt_digest = EMPTY_DIGEST
    if prompt:
        encoded = _encode_json(strip_cache_breakpoints(prompt))
        prompt_digest = blake2b(encoded, digest_size=DIGEST_BYTES).digest()
    return WindowRequest(
        value=value,
        dialect=dialect,
        rows=rows,
        is_body=is_body,
        row_digests=digests,
        prefix_digests=_extend_prefix_digests(last, digests),
        prompt_digest=prompt_digest,
        has_cache_breakpoints=has_cache_breakpoints,
    )


def _detect_dialect(value: Any, name: str | None, last: WindowRequest | None) -> Dialect:
    """Return the named dialect, the last request's dialect if it still matches, or the detected one."""
    if name is not None:
        return resolve_window_dialect(name)
    if last is not None:
        sample = _sniff_sample(value, few=True)
        certain = [dialect for dialect in load_dialects() if dialect.sniff(sample) == CERTAIN_MATCH]
        if last.dialect.sniff(sample) and certain in ([], [last.dialect]):
            return last.dialect
    detected = _sniff_dialect(value) if isinstance(value, list | tuple | dict) else None
    return require_dialect(to_plain_request(value)) if detected is None else resolve_window_dialect(detected)


def _sniff_dialect(value: Any) -> str | None:
    """Return the name of the detected format; if several match, choose by the vendor of the model."""
    sample = _sniff_sample(value)
    name = sniff(sample)
    model = find_model(str(value.get("model"))) if isinstance(value, dict) and value.get("model") else None
    dialect = get_native_dialect(name) if name and model is not None else None
    if dialect is None or model is None or model.vendor == dialect.vendor or dialect.sniff(sample) == CERTAIN_MATCH:
        return name
    shared = find_vendor_dialect("")
    return shared.name if shared.sniff(sample) else name


def is_for_vendor(request: WindowRequest) -> bool:
    """Return True if the request goes to the dialect's vendor, judged by the model or by blocks of this dialect."""
    model = request.value.get("model") if request.is_body else None
    if isinstance(model, str) and model:
        info = find_model(model)
        dialect = request.dialect
        return info.vendor == dialect.vendor if info is not None else dialect.model_name_part in model.lower()
    return request.dialect.sniff(_sniff_sample(request.value, few=True)) == CERTAIN_MATCH


def is_one_shot(request: WindowRequest) -> bool:
    """Return True for a request that no later one extends, such as for a title: one message and no tools."""
    return request.is_body and len(request.rows) < 2 and not request.value.get("tools")


def resolve_window_dialect(name: str) -> Dialect:
    """Return the dialect with this name; raise `FormatError` for a transcript format."""
    dialect = find_format(name)
    if not isinstance(dialect, Dialect):
        raise FormatError(
            f"a window accepts API messages only, but `{name}` is a transcript format; "
            "read the transcript and emit its history first"
        )
    return dialect


def _sniff_sample(value: Any, *, few: bool = False) -> Any:
    """Return the JSON values to detect a dialect from. With `few`, keep only the first and last rows."""
    if isinstance(value, dict):
        fields = {dialect.messages_field for dialect in load_dialects()}
        lists = [field for field in fields if isinstance(value.get(field), list | tuple)]
        return {**value, **{field: _sniff_sample(value[field], few=few) for field in lists}}
    rows = [*value[:2], *value[2:][-SNIFFED_ROWS:]] if few else value
    return [to_json_value(row) for row in rows] if isinstance(rows, list | tuple) else value


def _extend_prefix_digests(last: WindowRequest | None, digests: list[bytes]) -> list[bytes]:
    if last is None or digests[: len(last.row_digests)] != last.row_digests:
        return compute_prefix_digests(digests)
    return last.prefix_digests + compute_prefix_digests(digests[len(last.row_digests) :], last.prefix_digests[-1])


def compute_prefix_digests(digests: Sequence[bytes], before: bytes = EMPTY_DIGEST) -> list[bytes]:
    """Return, for each row, the digest of this row and all rows before it."""
    prefixes: list[bytes] = []
    for digest in digests:
        before = blake2b(before + digest, digest_size=DIGEST_BYTES).digest()
        prefixes.append(before)
    return prefixes


def _digest_rows(rows: Sequence[Any]) -> tuple[list[bytes], bool]:
    """Return the digests of all rows, and True if any row has a cache breakpoint. Every call digests all rows."""
    encode, digests, has_cache_breakpoints = _encoder().encode, [], False
    for value in rows:
        row = value if type(value) is dict else to_json_value(value)
        content = row.get("content") if type(row) is dict else None
        try:
            data = encode(_collapse_single_text(row) if type(content) is list and len(content) == 1 else row)
        except ENCODE_ERRORS:
            data = _encode_json(_collapse_single_text(row))
        if CACHE_CONTROL_KEY in data:
            has_cache_breakpoints = True
            data = _encode_json(_collapse_single_text(strip_cache_breakpoints([to_json_value(row)])[0]))
        digests.append(blake2b(data, digest_size=DIGEST_BYTES).digest())
    return digests, has_cache_breakpoints


def digest_row(row: Any) -> bytes:
    """Return the digest of one row."""
    return _digest_rows((row,))[0][0]


def _collapse_single_text(row: Any) -> Any:
    """Replace a single text block by its string, because a string becomes a block when it gets a cache breakpoint."""
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


def is_self_contained(message: Message) -> bool:
    """Return True if a row can be parsed without earlier rows, because its calls and results have ids."""
    pockets = (owner.pocket for owner in (message, *message.parts))
    return not any("no-id" in pocket.shape or "function_call" in pocket.shape for pocket in pockets if pocket)


def to_epoch_seconds(at: datetime | float | None) -> float:
    """Return the time of a call in seconds since the epoch; the default is now."""
    if at is None:
        return time()
    if isinstance(at, datetime):
        return at.timestamp()
    if isinstance(at, int | float) and isfinite(at):
        return float(at)
    raise OptionError(f"`at` must be a datetime or seconds since the epoch, got {at!r}")
