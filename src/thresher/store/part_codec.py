"""A part as bytes and back, the same to the last character.

JSON as UTF-8, with lone surrogates let through as they are: escaped, two that happen to stand side by side would
come back as one character. Pockets stay out: they are the vendor's, and no part of what was said.
"""

import json
from collections.abc import Callable

import msgspec
from msgspec import structs

from thresher.model.parts import Part, ToolResult

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Part] = msgspec.json.Decoder(Part).decode


def strip_vendor_extras(part: Part) -> Part:
    """The part without its pocket, and without those inside it."""
    if isinstance(part, ToolResult):
        content = tuple(structs.replace(inner, pocket=None) for inner in part.content)
        return structs.replace(part, content=content, pocket=None)
    return structs.replace(part, pocket=None)


def encode_part(part: Part) -> bytes:
    """The bytes of a part, pockets left out."""
    kept = strip_vendor_extras(part)
    try:
        return _encode(kept)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(kept), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_part(data: bytes) -> Part:
    """The part of these bytes."""
    try:
        return _decode(data)
    except UnicodeDecodeError:
        part: Part = msgspec.convert(json.loads(data.decode("utf-8", "surrogatepass")), Part)
        return part
