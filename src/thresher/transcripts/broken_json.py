"""Decode and encode JSON that is almost valid: with invalid characters, numbers out of range, or text after it."""

import json
import re
from math import isfinite
from typing import Any

_NON_SPACE = re.compile(r"\S")
_SURROGATE_ESCAPES = re.compile(r"(\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2}")


def decode_text(data: bytes) -> str:
    """Decode UTF-8: remove a byte order mark, NULs and outer whitespace; replace invalid bytes."""
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").decode("utf-8", "replace").strip()


def split_json_values(text: str, kinds: Any = dict) -> tuple[list[Any], str]:
    """Decode the JSON values at the start of a text. Return these values and the rest of the text."""
    if kinds is dict and not text.startswith("{"):
        return [], text  # without the cost of a decoder, because a damaged file may have millions of such lines
    decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None, parse_float=_parse_finite_float)
    values: list[Any] = []
    start = 0
    while match := _NON_SPACE.search(text, start):
        start = match.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, kinds):
            break
        values.append(value)
        start = end
    return values, text[start:].strip()


def _parse_finite_float(text: str) -> float | None:
    """Parse a float. Return None for a number that is too large for a float, since JSON cannot encode infinity."""
    number = float(text)
    return number if isfinite(number) else None


def encode_clean_json(value: Any) -> bytes:
    """Encode a value as JSON, and replace lone surrogates, which UTF-8 cannot encode."""
    return _SURROGATE_ESCAPES.sub(lambda match: match[0] if match[1] else r"\ufffd", json.dumps(value)).encode()
