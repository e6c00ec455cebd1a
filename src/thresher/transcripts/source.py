"""Read a file of records. The file may be compressed or damaged.

The reader streams the lines. A bad line becomes a problem with its line number and the action taken, and the reader
continues with the next line. Only a file that cannot be opened raises an error.
"""

import io
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from thresher.errors import OptionError, ReadError
from thresher.model import Problem, SourceLocation
from thresher.model.jsontext import load_json
from thresher.transcripts.broken_json import decode_text, encode_clean_json, split_json_values

RowT = TypeVar("RowT")

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SQLITE_MAGIC = b"SQLite format 3\0"
HEAD_LINES = 12
MAX_PROBLEMS = 1_000
"""Maximum number of problems of a file that are listed one by one."""
MEBIBYTE = 1 << 20
UNPACKED_VARIABLE = "THRESHER_MAX_UNPACKED_MB"
BYTES_PER_VALUE = 64
"""Estimated memory of a small decoded value, such as an empty list."""
BLOCK_BYTES = 1 << 18  # larger blocks are slower: the system supplies new memory pages for each one
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ReadLimits(msgspec.Struct, frozen=True):
    """Size limits that protect against damaged or hostile files."""

    line: int = 64 * MEBIBYTE
    """Maximum bytes of a line. Longer lines are skipped."""
    unpacked: int = msgspec.field(default_factory=lambda: _default_unpacked(os.environ))
    """Maximum decompressed bytes of a compressed file. The reader ignores the rest. The default is 1 GiB, or the number
    of MiB in the environment variable `THRESHER_MAX_UNPACKED_MB`."""


def _default_unpacked(environment: Mapping[str, str]) -> int:
    value = environment.get(UNPACKED_VARIABLE) or "1024"
    if not (value.isascii() and value.isdigit() and int(value)):
        raise OptionError(f"{UNPACKED_VARIABLE} must be a number of MiB above 0, such as 4096; got `{value}`")
    return int(value) * MEBIBYTE


class CachedIterable:
    """The values of an iterator, which can be iterated several times. Values are cached when they are first read."""

    def __init__(self, values: Iterator[Any]) -> None:
        """Wrap `values` without consuming any."""
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
    """A file to read, and the problems found in it."""

    def __init__(
        self, path: Path, limits: ReadLimits | None = None, is_wanted: Callable[[str], bool] | None = None
    ) -> None:
        """Store the path without opening the file. `is_wanted` selects sessions of a database by id (default: all)."""
        self.path = path
        self.file = str(path)
        self.stem = path.name.split(".")[0]
        """File name without suffixes."""
        self.limits = limits or ReadLimits()
        self.is_wanted = is_wanted or (lambda _: True)
        self.problems: list[Problem] = []
        self.document_problems: list[Problem] = []
        """Problems found while decoding `document`."""
        self._unlisted_problems = self._unlisted_place = 0
        self._is_cut_off = False
        self._is_only_line = False
        """True if the first line is the whole file, and valid JSON."""
        self._decompression_errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)

    def copy_for_session(self) -> "SourceFile":
        """Return a copy for one of the file's sessions, with an empty list of problems."""
        other = copy(self)
        other.problems, other._unlisted_problems = [], 0
        return other

    def report(self, what: str, done: str, line: int = 0) -> None:
        """Record a problem: what is wrong (`what`), the action taken (`done`), and the line.

        Problems beyond `MAX_PROBLEMS` are only counted, in the last entry, so that they take no memory.
        """
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(what, done, self.file, line))
            return
        if not self._unlisted_problems:
            self._unlisted_place = len(self.problems)
            self.problems.append(Problem("", ""))
        self._unlisted_problems += 1
        what = f"{self._unlisted_problems:,} more problems up to line {line:,}"
        self.problems[self._unlisted_place] = Problem(what, "not listed", self.file)

    def at(self, line: int) -> SourceLocation:
        """Return the location of a line, or of a numbered item in a document."""
        return SourceLocation(self.file, line)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Resolve old method names that third-party formats still use."""
            if name not in _RENAMED_METHODS:
                raise AttributeError(f"'SourceFile' object has no attribute {name!r}")
            current = _RENAMED_METHODS[name]
            warnings.warn(f"`source.{name}` is deprecated; use `source.{current}`", DeprecationWarning, stacklevel=2)
            return getattr(self, current)

    def lines(self, *, keep_blank: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield every line that is not blank, or every line, with its number from 1 and without its line break."""
        for batch in self._batches(keep_blank=keep_blank):
            yield from batch

    def _batches(self, *, keep_blank: bool) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the lines of each block. Splitting blocks is twice as fast as reading line by line.

        Unless blank lines are wanted, a block without text is only counted.
        """
        rest: list[bytes] = []
        size, number = 0, 1
        for block in self._blocks():
            if not (size or keep_blank) and block.isspace():
                number += block.count(b"\n")
                continue
            batch = block.split(b"\n")
            rest.append(batch[0])
            size += len(batch[0])
            if len(batch) == 1:
                if size > self.limits.line:
                    rest = []
                continue
            batch[0] = self._drop_overlong_line(b"".join(rest), size, number)
            rest.clear()  # before the line is decoded, to free the memory
            last = batch.pop()
            if self.limits.line < BLOCK_BYTES:
                batch = [self._drop_overlong_line(line, len(line), n) for n, line in enumerate(batch, number)]
            yield [(n, line) for n, line in enumerate(batch, number) if keep_blank or (line and not line.isspace())]
            number += len(batch)
            rest, size = [last], len(last)
        line = self._drop_overlong_line(b"".join(rest), size, number)
        rest.clear()
        if line and (keep_blank or not line.isspace()):
            yield [(number, line)]

    def _drop_overlong_line(self, line: bytes, size: int, number: int) -> bytes:
        if size <= self.limits.line:
            return line
        self.report(f"a line of {size:,} bytes is over the limit of {self.limits.line:,}", "skipped", number)
        return b""

    def _blocks(self) -> Iterator[bytes]:
        size = 0
        with closing(self._open()) as stream:
            is_compressed = not isinstance(stream, io.FileIO)
            # On a compressed stream, `read` waits for a whole block, and loses a partial block if the data is damaged.
            read_block = cast(io.BufferedReader, stream).read1 if is_compressed else stream.read
            while True:
                try:
                    block = read_block(BLOCK_BYTES)
                except self._decompression_errors as error:
                    self.report(f"the compressed file is damaged after {size:,} bytes ({error})", "ignored the rest")
                    return
                if not block:
                    return
                if is_compressed and size + len(block) > self.limits.unpacked:
                    self._is_cut_off = True
                    what = f"the file decompresses to more than {self.limits.unpacked:,} bytes ({UNPACKED_VARIABLE})"
                    self.report(what, "ignored the rest")
                    yield block[: self.limits.unpacked - size]
                    return
                yield block
                size += len(block)

    def records(
        self, decoder: "msgspec.json.Decoder[RowT]", lenient: "msgspec.json.Decoder[RowT] | None" = None
    ) -> Iterator[tuple[int, bytes, RowT]]:
        """Yield the line number, the raw line and the decoded row of every record.

        `lenient` decodes lines that `decoder` rejects. A line that both decoders reject is repaired if possible.
        """
        decode, decode_leniently = decoder.decode, (lenient or decoder).decode
        for number, line in self.lines():
            try:
                row = decode(line)
            except _DECODE_ERRORS:
                yield from self._decode_rejected_line(number, line, decode_leniently)
            else:
                yield number, line, row

    def _decode_rejected_line(
        self, number: int, line: bytes, decode: Callable[[bytes], RowT]
    ) -> Iterator[tuple[int, bytes, RowT]]:
        try:
            yield number, line, decode(line)
        except _DECODE_ERRORS:
            for text in self.repair_line(number, line):
                yield number, text, decode(text)

    def repair_line(self, number: int, line: bytes) -> list[bytes]:
        """Return the JSON objects in a line that a decoder rejected, each as valid JSON."""
        text = decode_text(line)
        if not text:
            self.report("a line of NUL bytes", "skipped", number)
            return []
        values, rest = split_json_values(text)
        if not values:
            self.report(f"a line is not a JSON object, or is truncated: {text[:60]!r}", "skipped", number)
            return []
        done = f"{len(values)} records read from it" if len(values) > 1 else "read without the invalid parts"
        self.report("a line is not valid JSON" + (f", and ends in {rest[:40]!r}" if rest else ""), done, number)
        return [encode_clean_json(value) for value in values]

    @cached_property
    def head(self) -> "CachedIterable":
        """The first lines as JSON values, to detect the format. A line that cannot be repaired is omitted."""
        return CachedIterable(self._read_head())

    @cached_property
    def is_database(self) -> bool:
        """True if the file is a SQLite database."""
        try:
            if not self.path.is_file():  # reading from a pipe would consume the data
                return False
            with self.path.open("rb") as file:
                return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
        except OSError:
            return False

    @cached_property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """The columns of each table; empty if the file is not a readable database."""
        if not self.is_database:
            return {}
        from thresher.transcripts.sqlite_source import open_read_only, read_table_columns  # noqa: PLC0415 - imports sqlite3 and tempfile

        try:
            with open_read_only(self.path) as connection:
                return read_table_columns(connection)
        except ReadError:
            return {}

    def has_tables(self, **wanted: str) -> bool:
        """Return whether a database has these tables, each with at least these space-separated columns."""
        return all(frozenset(names.split()) <= self.tables.get(table, frozenset()) for table, names in wanted.items())

    def _read_head(self) -> Iterator[Any]:
        if self.is_database:
            return
        whole = SourceFile(self.path, self.limits)
        self._is_only_line = True
        for number, line in whole.lines():
            self._is_only_line = number == 1 and not whole.problems
            try:
                yield load_json(line)
            except (ValueError, RecursionError):
                self._is_only_line = False
                if line.strip() in (b"{", b"["):
                    return
                values, rest = split_json_values(decode_text(line))
                yield from [] if rest else values
            if number >= HEAD_LINES:
                return
        self._is_only_line = self._is_only_line and not whole.problems

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value; None if the file is a database, a list of records, or not JSON."""
        head = list(self.head)
        if self.is_database or (len(head) > 1 and all(isinstance(value, dict | list) for value in head)):
            return None
        if self._is_only_line and len(head) == 1:
            return head[0] if isinstance(head[0], dict | list) else None
        whole = SourceFile(self.path, self.limits)
        # Test the first block, not the first line: a document on one line may exceed the limit for a line.
        first = next(SourceFile(self.path, self.limits)._blocks(), b"").lstrip()
        if not decode_text(first[:100]).startswith(("{", "[")):
            return None
        data = whole._read_bytes()
        self.document_problems = whole.problems
        if whole._is_cut_off or whole._has_too_many_values(data):
            return None
        with suppress(ValueError):  # whose error holds the text, so it must be gone before the repair
            try:
                return load_json(data)
            except RecursionError:
                return None
        return self._repair_document(whole, data) if len(data) <= self.limits.line else None

    def _read_bytes(self) -> bytes:
        data = bytearray()  # a list of blocks, joined, would need twice the memory
        for block in self._blocks():
            data += block
        return bytes(data)

    def _has_too_many_values(self, data: bytes) -> bool:
        """Return True if a document of small values, such as `[[],[],…]`, would fill the memory many times its size."""
        values = sum(map(data.count, (b",", b"[", b"{")))
        if values * BYTES_PER_VALUE <= 3 * self.limits.unpacked:
            return False
        self.report(f"the document has about {values:,} values, too many for the memory", "not read")
        return True

    def _repair_document(self, whole: "SourceFile", data: bytes) -> Any:
        values, rest = split_json_values(decode_text(data), kinds=dict | list)
        if len(values) != 1 or rest:
            return None
        try:
            clean = load_json(encode_clean_json(values[0]))
        except RecursionError:
            return None
        whole.report("the file is not valid JSON", "read without the invalid parts")
        return clean

    def read_document(self) -> Any:
        """Return `document`. Add the problems found while decoding it to `problems`."""
        document = self.document
        self.problems += self.document_problems
        return document

    def _open(self) -> IO[bytes]:
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
            if magic.startswith(GZIP_MAGIC):
                import gzip  # noqa: PLC0415 - only needed for compressed files

                return cast(IO[bytes], gzip.open(self.path, "rb"))
            if magic == ZSTD_MAGIC:
                zstd = import_zstd()
                self._decompression_errors = (OSError, EOFError, zstd.ZstdError)
                return cast(IO[bytes], zstd.open(self.path, "rb"))
            return cast(IO[bytes], self.path.open("rb", buffering=0))
        except IsADirectoryError as error:
            raise ReadError(f"`{self.path}` is a folder; pass a file in it") from error
        except OSError as error:
            raise ReadError(f"`{self.path}` cannot be read: {error.strerror or error}") from error


def import_zstd() -> Any:
    """Import zstd from the standard library (Python 3.14 and later) or from the backport."""
    try:
        from compression import zstd  # noqa: PLC0415 - from Python 3.14 on
    except ImportError:
        from backports import zstd  # noqa: PLC0415 - only needed for compressed files
    return zstd
