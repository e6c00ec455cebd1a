"""A file of records, read as it is: packed or not, torn or not.

Lines are streamed. Whatever is wrong with one of them becomes a problem with its place and what was done, and the
rest is read. Only a file that cannot be opened at all is an error.
"""

import io
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from copy import copy
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from thresher.errors import ReadError
from thresher.model import Problem, SourceLocation
from thresher.model.jsontext import load_json

RowT = TypeVar("RowT")

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SQLITE_MAGIC = b"SQLite format 3\0"
HEAD_LINES = 12
_NON_SPACE = re.compile(r"\S")
_SURROGATE_ESCAPES = re.compile(r"(\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2}")
MEBIBYTE = 1 << 20
BLOCK_BYTES = 1 << 18  # larger ones cost fresh pages from the system every time


_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ReadLimits(msgspec.Struct, frozen=True):
    """How much of one file is read before it is taken for damaged or hostile."""

    line: int = 64 * MEBIBYTE
    """The longest line, in bytes."""
    unpacked: int = 4096 * MEBIBYTE
    """The most that a packed file may unpack to, in bytes."""


class CachedIterable:
    """Values that are made when they are asked for, and then kept."""

    def __init__(self, values: Iterator[Any]) -> None:
        """Nothing is made yet."""
        self._cached: list[Any] = []
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        yield from self._cached
        for value in self._values:
            self._cached.append(value)
            yield value


_RENAMED_METHODS = {
    "apart": "copy_for_session",
    "mend": "repair_line",
    "problem": "report",
    "rows": "records",
    "take_document": "read_document",
}


class SourceFile:
    """One file that is being read, with the problems met so far."""

    def __init__(
        self, path: Path, limits: ReadLimits | None = None, is_wanted: Callable[[str], bool] | None = None
    ) -> None:
        """Nothing is opened yet. In a store of many sessions, `is_wanted` says by its id which are to be read."""
        self.path = path
        self.file = str(path)
        self.stem = path.name.split(".")[0]
        """The name without any of its endings."""
        self.limits = limits or ReadLimits()
        self.is_wanted = is_wanted or (lambda _: True)
        self.problems: list[Problem] = []
        self._document_problems: list[Problem] = []
        self._unpack_errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)

    def copy_for_session(self) -> "SourceFile":
        """The same file, for one of its sessions: with problems of its own."""
        other = copy(self)
        other.problems = []
        return other

    def report(self, what: str, done: str, line: int = 0) -> None:
        """Note something that is not as it should be."""
        self.problems.append(Problem(what, done, self.file, line))

    def at(self, line: int) -> SourceLocation:
        """The place of what is read there: a line, or a number in a document."""
        return SourceLocation(self.file, line)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Find what third-party formats still call by an old name."""
            if name not in _RENAMED_METHODS:
                raise AttributeError(f"'SourceFile' object has no attribute {name!r}")
            current = _RENAMED_METHODS[name]
            warnings.warn(f"`source.{name}` is deprecated; use `source.{current}`", DeprecationWarning, stacklevel=2)
            return getattr(self, current)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line that is not blank, with its number from 1."""
        for first, batch in self._batches():
            for number, line in enumerate(batch, first):
                if line and not line.isspace():
                    yield number, line

    def _batches(self) -> Iterator[tuple[int, list[bytes]]]:
        """Lines without their ends, those of one block together, and the number of the first.

        Splitting blocks is twice as fast as asking line by line.
        """
        rest: list[bytes] = []
        size, number = 0, 1
        for block in self._blocks():
            batch = block.split(b"\n")
            rest.append(batch[0])
            size += len(batch[0])
            if len(batch) == 1:
                if size > self.limits.line:
                    rest = []
                continue
            batch[0] = self._drop_overlong_line(b"".join(rest), size, number)
            last = batch.pop()
            if self.limits.line < BLOCK_BYTES:
                batch = [self._drop_overlong_line(line, len(line), n) for n, line in enumerate(batch, number)]
            yield number, batch
            number += len(batch)
            rest, size = [last], len(last)
        if size:
            yield number, [self._drop_overlong_line(b"".join(rest), size, number)]

    def _drop_overlong_line(self, line: bytes, size: int, number: int) -> bytes:
        if size <= self.limits.line:
            return line
        self.report(f"a line of {size:,} bytes is over the limit of {self.limits.line:,}", "skipped", number)
        return b""

    def _blocks(self) -> Iterator[bytes]:
        read = 0
        with closing(self._open()) as stream:
            packed = not isinstance(stream, io.FileIO)
            # `read` of a packed stream waits for a whole block, and loses what it has where the packing is damaged.
            read_block = cast(io.BufferedReader, stream).read1 if packed else stream.read
            while True:
                try:
                    block = read_block(BLOCK_BYTES)
                except self._unpack_errors as error:
                    self.report(f"the packed file is damaged after {read:,} bytes ({error})", "the rest was not read")
                    return
                if not block:
                    return
                yield block
                read += len(block)
                if packed and read > self.limits.unpacked:
                    self.report(f"unpacks to more than {self.limits.unpacked:,} bytes", "the rest was not read")
                    return

    def records(
        self, decoder: "msgspec.json.Decoder[RowT]", loose: "msgspec.json.Decoder[RowT] | None" = None
    ) -> Iterator[tuple[int, bytes, RowT]]:
        """Every record: line number, the line as it stands, the decoded row; `loose` takes what `decoder` refuses."""
        decode, decode_loosely = decoder.decode, (loose or decoder).decode
        for first, batch in self._batches():
            for number, line in enumerate(batch, first):
                try:
                    yield number, line, decode(line)
                except _DECODE_ERRORS:
                    if line and not line.isspace():
                        yield from self._decode_refused_line(number, line, decode_loosely)

    def _decode_refused_line(
        self, number: int, line: bytes, decode: Callable[[bytes], RowT]
    ) -> Iterator[tuple[int, bytes, RowT]]:
        try:
            yield number, line, decode(line)
        except _DECODE_ERRORS:
            for text in self.repair_line(number, line):
                yield number, text, decode(text)

    def repair_line(self, number: int, line: bytes) -> list[bytes]:
        """What can be saved of a line that does not decode: the JSON objects in it, as clean text."""
        text = _decode_text(line)
        if not text:
            self.report("a line of NUL bytes", "skipped", number)
            return []
        found, rest = _split_json_values(text)
        if not found:
            self.report(f"a line is not a JSON object, or torn: {text[:60]!r}", "skipped", number)
            return []
        done = f"{len(found)} records read from it" if len(found) > 1 else "read without what is wrong in it"
        self.report("a line is not clean JSON" + (f", and ends in {rest[:40]!r}" if rest else ""), done, number)
        return [_clean_json(value) for value in found]

    @cached_property
    def head(self) -> "CachedIterable":
        """The first few lines as JSON values, for a look at what this is; what does not decode is left out."""
        return CachedIterable(self._read_head())

    @cached_property
    def is_database(self) -> bool:
        """Whether it is a SQLite file: one without lines."""
        try:
            if not self.path.is_file():  # what is taken from a pipe is gone
                return False
            with self.path.open("rb") as peek:
                return peek.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
        except OSError:
            return False

    @cached_property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """The columns of each table of a database; nothing where it is none, or cannot be read."""
        if not self.is_database:
            return {}
        from thresher.transcripts.sqlite_source import open_read_only, read_table_columns  # noqa: PLC0415 - it brings libraries of its own

        try:
            with open_read_only(self.path) as connection:
                return read_table_columns(connection)
        except ReadError:
            return {}

    def has_tables(self, **wanted: str) -> bool:
        """Whether a database has these tables, each with at least these columns; names have spaces between."""
        return all(frozenset(names.split()) <= self.tables.get(table, frozenset()) for table, names in wanted.items())

    def _read_head(self) -> Iterator[Any]:
        if self.is_database:
            return
        for number, line in SourceFile(self.path, self.limits).lines():
            try:
                yield load_json(line)
            except (ValueError, RecursionError):
                if line.strip() in (b"{", b"["):
                    return
                found, rest = _split_json_values(_decode_text(line))
                yield from [] if rest else found
            if number >= HEAD_LINES:
                return

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value, or None where it is a row of records or no JSON at all."""
        head = list(self.head)
        if self.is_database:
            return None
        if len(head) > 1 and all(isinstance(value, dict | list) for value in head):
            return None
        whole = SourceFile(self.path, self.limits)
        # Not its first line: a document may be one line, longer than any record.
        first = next(SourceFile(self.path, self.limits)._blocks(), b"").lstrip()
        if not _decode_text(first[:100]).startswith(("{", "[")):
            return None
        data = b"".join(whole._blocks())
        self._document_problems = whole.problems
        try:
            return load_json(data)
        except RecursionError:
            return None
        except ValueError:
            return self._repair_document(whole, data)

    def _repair_document(self, whole: "SourceFile", data: bytes) -> Any:
        found, rest = _split_json_values(_decode_text(data), kinds=dict | list)
        if len(found) != 1 or rest:
            return None
        try:
            clean = load_json(_clean_json(found[0]))
        except RecursionError:
            return None
        whole.report("the file is not clean JSON", "read without what is wrong in it")
        return clean

    def read_document(self) -> Any:
        """The document, for good: what was wrong with it is now a problem of this reading."""
        document = self.document
        self.problems += self._document_problems
        return document

    def _open(self) -> IO[bytes]:
        try:
            with self.path.open("rb") as peek:
                magic = peek.read(4)
            if magic.startswith(GZIP_MAGIC):
                import gzip  # noqa: PLC0415 - only where a packed file is met

                return cast(IO[bytes], gzip.open(self.path, "rb"))
            if magic == ZSTD_MAGIC:
                packing = import_zstd()
                self._unpack_errors = (OSError, EOFError, packing.ZstdError)
                return cast(IO[bytes], packing.open(self.path, "rb"))
            return cast(IO[bytes], self.path.open("rb", buffering=0))
        except IsADirectoryError as error:
            raise ReadError(f"`{self.path}` is a folder; name a file in it") from error
        except OSError as error:
            raise ReadError(f"`{self.path}` cannot be read: {error.strerror or error}") from error


def import_zstd() -> Any:
    """The library that packs and unpacks zstd: part of Python from 3.14 on."""
    try:
        from compression import zstd  # noqa: PLC0415 - from Python 3.14 on
    except ImportError:
        from backports import zstd  # noqa: PLC0415 - only where a packed file is met
    return zstd


def _decode_text(data: bytes) -> str:
    """Text without a byte order mark and NULs, wrong bytes replaced."""
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").decode("utf-8", "replace").strip()


def _split_json_values(text: str, kinds: Any = dict) -> tuple[list[Any], str]:
    """The JSON values that stand one after another at the start of a text, and what is left."""
    decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None, parse_float=_parse_finite_float)
    values: list[Any] = []
    start = 0
    while found := _NON_SPACE.search(text, start):
        start = found.start()
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
    """JSON has no infinity: a number past what a float holds becomes null."""
    number = float(text)
    return number if isfinite(number) else None


def _clean_json(value: Any) -> bytes:
    """The value as JSON text without lone surrogates, which no file or request can hold."""
    return _SURROGATE_ESCAPES.sub(lambda found: found[0] if found[1] else r"\ufffd", json.dumps(value)).encode()
