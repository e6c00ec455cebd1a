"""Read the body of a request into memory, up to a limit, and decode its compression."""

import gzip
import io
import zlib
from collections.abc import AsyncIterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from aiohttp import web

from thresher.serve.app import MAX_BODY_BYTES

_ZSTD_MODULES = ("compression.zstd", "backports.zstd", "zstandard")


class ReceivedBody(NamedTuple):
    """A body, or its first bytes if it exceeds the limit."""

    data: bytes
    is_complete: bool


async def receive_body(request: web.Request) -> ReceivedBody:
    """Read the body of a request; stop at the limit."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return ReceivedBody(b"".join(chunks), is_complete=False)
    return ReceivedBody(b"".join(chunks), is_complete=True)


async def stream_rest(request: web.Request, start: bytes) -> AsyncIterator[bytes]:
    """Yield the bytes that were read, and then the rest of the body."""
    yield start
    async for chunk in request.content.iter_any():
        yield chunk


def decode_body(data: bytes, encoding: str) -> bytes | None:
    """Decompress a body; None if the encoding is not known, the data is damaged, or the result exceeds the limit."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return data
    try:
        with _open_stream(name, io.BytesIO(data)) as stream:
            plain: bytes = stream.read(MAX_BODY_BYTES + 1)
    except Exception:  # noqa: BLE001 - each decoder has errors of its own, and the body then passes as it came
        return None
    return plain if len(plain) <= MAX_BODY_BYTES else None


def _open_stream(name: str, data: io.BytesIO) -> Any:
    if name in ("gzip", "x-gzip"):
        return gzip.GzipFile(fileobj=data)
    if name == "deflate":
        return io.BytesIO(zlib.decompressobj().decompress(data.getvalue(), MAX_BODY_BYTES + 1))
    if name == "zstd":
        module = _import_zstd()
        if module.__name__ == "zstandard":
            return module.ZstdDecompressor().stream_reader(data)
        return module.ZstdFile(data)
    raise ValueError(f"unknown encoding {name}")


@cache
def _import_zstd() -> Any:
    """Return a module for Zstandard: part of Python from 3.14 on."""
    for name in _ZSTD_MODULES:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ValueError("no decoder for zstd")
