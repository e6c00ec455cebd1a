"""Read the usage of an answer from a copy of its bytes. The answer itself is never held back or changed."""

import zlib
from collections.abc import Iterator
from typing import Any

from thresher.errors import OptionError
from thresher.model.jsontext import load_json
from thresher.model.message import Usage
from thresher.window.usage import parse_provider_usage

MAX_JSON_BYTES = 32 * 1024 * 1024
"""Maximum size of an answer, or of one event, that is read for its usage."""


class UsageReader:
    """Reader of one answer: a JSON object, or a stream of server-sent events."""

    def __init__(self, content_type: str, encoding: str, kept_fields: tuple[str, ...] = ()) -> None:
        """Also keep the fields of the answer that have these names."""
        self.kept: dict[str, Any] = {}
        self._kept_fields = kept_fields
        self._is_stream = content_type.startswith("text/event-stream")
        name = encoding.strip().lower()
        self._inflate = zlib.decompressobj(47) if name in ("gzip", "x-gzip", "deflate") else None
        self._is_readable = name in ("", "identity", "gzip", "x-gzip", "deflate")
        self._buffer = b""
        self._fields: dict[str, Any] = {}

    def feed(self, chunk: bytes) -> None:
        """Read a copy of a chunk. An error ends the reading, not the answer."""
        if not self._is_readable:
            return
        try:
            self._buffer += self._inflate.decompress(chunk) if self._inflate is not None else chunk
            if self._is_stream:
                self._read_events()
        except (zlib.error, ValueError, RecursionError):
            self._is_readable = False
        if len(self._buffer) > MAX_JSON_BYTES:
            self._is_readable = False
        if not self._is_readable:
            self._buffer = b""

    def _read_events(self) -> None:
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and b"usage" in line:
                self._read_object(line[5:].strip())

    def _read_object(self, data: bytes) -> None:
        try:
            value = load_json(data)
        except ValueError:
            return  # a damaged event: the client sees it, too
        for owner in _find_owners(value):
            fields = owner.get("usage") or owner.get("usageMetadata")
            if isinstance(fields, dict):
                self._fields.update({name: field for name, field in fields.items() if field is not None})
            self.kept.update({name: owner[name] for name in self._kept_fields if name in owner})

    def finish(self) -> Usage | None:
        """Return the usage of the whole answer; None if it has none."""
        if not self._is_stream and self._is_readable and b"usage" in self._buffer:
            self._read_object(self._buffer)
        self._buffer = b""
        return self.current()

    def current(self) -> Usage | None:
        """Return the usage that was read so far; None if there is none."""
        if not self._fields:
            return None
        try:
            return parse_provider_usage(self._fields)
        except (OptionError, TypeError, ValueError):
            return None


def _find_owners(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects that may have the usage: an answer, an event, and the answer in an event."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            owners = (item, item.get("message"), item.get("response"))
            yield from (owner for owner in owners if isinstance(owner, dict))
