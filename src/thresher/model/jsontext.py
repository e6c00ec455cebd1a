"""Decode and encode JSON text as it occurs in real files.

msgspec does the work. The standard library is the fallback for values that msgspec refuses: integers over 64 bits, lone
surrogates, and control characters in strings.
"""

import json
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def load_json(text: str | bytes) -> Any:
    """Decode JSON text; raise `ValueError` if it is invalid."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text, strict=False)


def load_json_object(text: str) -> dict[str, Any]:
    """Decode the fields of a JSON object; return an empty dict for any other text."""
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def dump_json(value: Any) -> str:
    """Encode as compact JSON text and keep the order of the keys."""
    try:
        return _encode(value).decode()
    except (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Encode with sorted keys, so that equal values give equal text."""
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.EncodeError, UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
