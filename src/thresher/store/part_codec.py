"""Encode parts as bytes and decode them without loss.

The encoding is JSON in UTF-8. Unpaired surrogates are not escaped, because two adjacent escapes would decode to one
character. Vendor extras are not stored, because they are not content.
"""

import json
from collections.abc import Callable

import msgspec
from msgspec import structs

from thresher.model.parts import Part, ToolResult

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Part] = msgspec.json.Decoder(Part).decode


def strip_vendor_extras(part: Part) -> Part:
    """Return a part without vendor extras; in a tool result, also remove the extras of its content."""
    if isinstance(part, ToolResult):
        content = tuple(structs.replace(inner, pocket=None) for inner in part.content)
        return structs.replace(part, content=content, pocket=None)
    return structs.replace(part, pocket=None)


def encode_part(part: Part) -> bytes:
    """Encode a part, without vendor extras."""
    kept = strip_vendor_extras(part)
    try:
        return _encode(kept)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(kept), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_part(data: bytes) -> Part:
    """Decode a part."""
    try:
        return _decode(data)
    except UnicodeDecodeError:
        part: Part = msgspec.convert(json.loads(data.decode("utf-8", "surrogatepass")), Part)
        return part
