"""JSON text to values and back, for what real files hold.

msgspec does the work; the standard library takes over for what msgspec refuses and Python can hold: integers
past 64 bits, lone surrogates, control characters inside strings.
"""

import json
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def load_json(text: str | bytes) -> Any:
    """Decode JSON text; raises `ValueError` where it is none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text, strict=False)


def load_json_object(text: str) -> dict[str, Any]:
    """The fields of the JSON object that a text says; none where it says no object."""
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def dump_json(value: Any) -> str:
    """Encode as compact JSON text, keys in the order they came."""
    try:
        return _encode(value).decode()
    except (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Encode with sorted keys: the same value gives the same text, whoever wrote it."""
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
