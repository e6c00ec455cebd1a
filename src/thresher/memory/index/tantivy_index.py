"""Full-text index in tantivy, derived from the archive.

The index stores terms, and numbers that refer to the archive, but no texts. A state file in its folder names the
archive and the document version. An index that is damaged, outdated or made for another archive counts as missing and
is rebuilt. Tantivy reports damage as an error or as a panic, which Python sees as a `BaseException`.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from hashlib import blake2b
from pathlib import Path
from typing import Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import msgspec
import tantivy
from msgspec import Struct, structs

from thresher.memory.index.integrity import (
    META_FILE,
    FileStamp,
    digest_contents,
    is_segment_damaged,
    read_file_stamps,
)
from thresher.memory.index.share import read_share
from thresher.memory.index.tokenizer import PLAIN, STEMMED, analyzer
from thresher.memory.records import EXCLUSION_REASONS, TEXT_KINDS, TextKind
from thresher.store.errors import StoreError

HEAP = 300_000_000
"""Memory for buffered documents while the index is written, in bytes."""
SMALL_WRITE_BYTES = 16_000_000
"""Upper limit of a small write, and its memory for buffered documents."""
THREADS = 1
"""Number of threads that index documents. One thread keeps up with the workers; two would wait for each other."""
STATE_FILE = "thresher.state"
NUMBERS = ("session", "block", "kind", "reason", "derived", "role")
"""Numeric fields whose exact values queries and removals select."""
REMOVAL_ATTEMPTS = 3
MOST_SESSIONS = 1_000_000
MOST_PLACES = 50_000

P = ParamSpec("P")
R = TypeVar("R")


class IndexState(Struct, frozen=True):
    """Record of the archive data that an index contains."""

    name: str
    """The archive's generation and the document version."""
    last_block: int = 0
    last_tombstone: int = -1
    """Position of the last processed tombstone; -1 if the index has no titles yet."""
    contents: str = ""
    """Digest of tantivy's metadata at the last commit."""
    files: dict[str, FileStamp] = {}
    """Stamps of the segment files that need no check."""
    digest: str = ""
    """Digest of the other fields."""

    def sign(self) -> "IndexState":
        """Return the state with its digest."""
        unsigned = structs.replace(self, digest="")
        return structs.replace(self, digest=blake2b(msgspec.json.encode(unsigned), digest_size=16).hexdigest())


class IndexHit(NamedTuple):
    """A document that matches a query."""

    score: float
    session: int
    at: int
    kind: int
    reason: int
    derived: int
    role: int


@cache
def build_schema() -> tantivy.Schema:
    """Return the index schema."""
    builder = tantivy.SchemaBuilder()
    for field in ("said", "paths"):
        builder.add_text_field(field, tokenizer_name=STEMMED, index_option="position")
    builder.add_text_field("output", tokenizer_name=PLAIN, index_option="freq")
    for field in ("file", "made", "logged"):
        builder.add_text_field(field, tokenizer_name="raw", index_option="basic")
    for field in NUMBERS:
        builder.add_integer_field(field, indexed=True, fast=True)
    for field in ("at", "time"):  # nearly every text has another one, so terms would be slow to write
        builder.add_integer_field(field, fast=True)
    return builder.build()


def _translate_errors(
    method: "Callable[Concatenate[TantivyIndex, P], R]",
) -> "Callable[Concatenate[TantivyIndex, P], R]":
    """Convert tantivy's exceptions into `StoreError`."""

    @wraps(method)
    def inner(self: "TantivyIndex", /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _panics_as_errors():
                return method(self, *args, **kwargs)
        except _PanicError as error:
            self.mark_damaged()
            advice = "run the command again: the next sync rebuilds the index from the archive"
            raise StoreError(f"{self.folder}: the search index is damaged ({error}); {advice}") from error
        except (ValueError, OSError) as error:
            advice = "free disk space; the archive is safe, and the next sync repairs or rebuilds the index"
            raise StoreError(f"{self.folder}: cannot use the search index ({error}); {advice}") from error

    return inner


class _PanicError(Exception):
    """Tantivy panicked, because a file of the index is damaged."""


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a class that no module exports
            raise
        raise _PanicError(str(error)) from None


class TantivyIndex:
    """An index in a folder."""

    def __init__(self, folder: Path, inner: tantivy.Index) -> None:
        self.folder = folder
        self.is_usable = True
        """False after `mark_damaged`."""
        self.schema = inner.schema
        self._inner = inner
        self._writer: tantivy.IndexWriter | None = None
        self._is_committed = False
        self._last_block = 0
        self._searcher: tantivy.Searcher | None = None
        self._loaded_version: tuple[int, int] | None = None
        self._session_lengths: dict[int, int] = {}
        inner.register_tokenizer(STEMMED, analyzer(STEMMED))
        inner.register_tokenizer(PLAIN, analyzer(PLAIN))
        inner.config_reader(reload_policy="manual")

    @classmethod
    def open_existing(cls, folder: Path, name: str) -> "TantivyIndex | None":
        """Open the index; return None if it is missing, has another name or is damaged."""
        try:
            with _panics_as_errors():
                index = cls(folder, tantivy.Index.open(str(folder)))
                state = index.read_state()
                if state.name != name or is_segment_damaged(folder, state.files):
                    return None
                _ = index.searcher.num_docs
        except (ValueError, OSError, LookupError, TypeError, StoreError, _PanicError):
            return None
        return index

    def is_damaged(self) -> bool:
        """Return whether files of the index changed since the last commit.

        While another process writes to the index, the result may be wrong.
        """
        try:
            state = self.read_state()
            return state.contents != digest_contents(self.folder) or is_segment_damaged(self.folder, state.files)
        except (ValueError, OSError, LookupError, TypeError):
            return True

    def mark_damaged(self) -> None:
        """Make the index unusable for every process, so that the next sync rebuilds it."""
        self.is_usable = False
        with suppress(OSError):
            (self.folder / STATE_FILE).unlink(missing_ok=True)

    @classmethod
    def create(cls, folder: Path, name: str) -> "TantivyIndex":
        """Create an empty index, replacing any existing one."""
        try:
            remove_index(folder)
            folder.mkdir(mode=0o700, parents=True)
            index = cls(folder, tantivy.Index(build_schema(), path=str(folder)))
            index._write_state(IndexState(name, contents=digest_contents(folder)))
        except (ValueError, OSError) as error:
            raise StoreError(f"{folder}: cannot create the search index ({error}); free disk space") from error
        return index

    def read_state(self) -> IndexState:
        """Return the state of the index, or a state without a name if the file is unreadable."""
        try:
            state = msgspec.json.decode((self.folder / STATE_FILE).read_bytes(), type=IndexState)
        except (OSError, ValueError):
            return IndexState("")
        return state if state == state.sign() else IndexState("")

    def _write_state(self, state: IndexState) -> None:
        """Replace the state file atomically."""
        part = self.folder / f"{STATE_FILE}.part"
        part.write_bytes(msgspec.json.encode(state.sign()))
        part.chmod(0o600)
        part.replace(self.folder / STATE_FILE)

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def searcher(self) -> tantivy.Searcher:
        """Searcher for the latest commit, including commits of other processes."""
        stat = (self.folder / META_FILE).stat()
        version = (stat.st_mtime_ns, stat.st_ino)
        if self._searcher is None or version != self._loaded_version:
            self._inner.reload()
            self._searcher, self._loaded_version = self._inner.searcher(), version
            self._session_lengths = {}
        return self._searcher

    @property
    def session_lengths(self) -> dict[int, int]:
        """Cache of the lengths of sessions for their scores, which a new commit empties."""
        _ = self.searcher
        return self._session_lengths

    @_translate_errors
    def search(self, query: tantivy.Query, limit: int) -> list[IndexHit]:
        """Return the matching documents with the highest scores, best first."""
        searcher = self.searcher
        return _build_hits(searcher, searcher.search(query, limit, count=False).hits)

    @_translate_errors
    def count_by_field(self, query: tantivy.Query, field: str = "session") -> dict[int, int]:
        """Return the number of matching documents by the value of a numeric field."""
        terms = {"terms": {"field": field, "size": MOST_SESSIONS}}
        buckets = self.searcher.aggregate(query, {"by": terms})["by"]["buckets"]
        return {bucket["key"]: bucket["doc_count"] for bucket in buckets}

    @_translate_errors
    def times_by_session(self, query: tantivy.Query, which: Literal["min", "max"]) -> dict[int, int]:
        """Return the earliest or latest time of matching documents by session; 0 if none has a time."""
        time_value = {"one": {which: {"field": "time"}}}
        terms = {"by": {"terms": {"field": "session", "size": MOST_SESSIONS}, "aggs": time_value}}
        buckets = self.searcher.aggregate(query, terms)["by"]["buckets"]
        return {bucket["key"]: int(bucket["one"]["value"] or 0) for bucket in buckets}

    @_translate_errors
    def search_messages(
        self, query: tantivy.Query, best: int = 0, each: int = 0
    ) -> tuple[Counter[int], list[IndexHit]]:
        """Count the matching messages of each session, and return the best documents.

        A message counts once, even if several of its documents match. The result has the `best` highest-ranked
        documents of all sessions, then further documents up to `each` per session.
        """
        searcher = self.searcher
        hits = searcher.search(query, MOST_PLACES, count=False).hits
        addresses = [address for _, address in hits]
        sessions, messages = (_numbers(searcher, field, addresses) for field in ("session", "at"))
        counts = Counter(session for session, _ in set(zip(sessions, messages, strict=True)))
        selected, hits_per_session = hits[:best], Counter(sessions[:best])
        for hit, session in zip(hits[best:], sessions[best:], strict=True) if each else ():
            if hits_per_session[session] < each:
                hits_per_session[session] += 1
                selected.append(hit)
        return counts, _build_hits(searcher, selected)

    @_translate_errors
    def terms_with_prefix(self, field: str, prefix: str, limit: int) -> list[str]:
        """Return the words of a field with this prefix, most frequent first."""
        return [word for word, _ in self.searcher.terms_with_prefix(field, prefix, limit=limit)]

    @_translate_errors
    def document_frequency(self, word: str) -> int:
        """Return the number of documents that contain a word, not counting tool output."""
        return self.searcher.doc_freq("said", word)

    @_translate_errors
    def kind_frequency(self, kind: TextKind) -> int:
        """Return the number of documents of this kind, whether or not a search covers them."""
        return self.searcher.doc_freq("kind", TEXT_KINDS.index(kind))

    @_translate_errors
    def count_sessions(self, query: tantivy.Query) -> float:
        """Estimate the number of sessions with a matching document."""
        return self.searcher.cardinality(query, "session")

    def count_by_reason(self) -> dict[str, int]:
        """Return the number of texts by exclusion reason; `""` counts the texts that a search covers."""
        messages = tantivy.Query.range_query(self.schema, "block", tantivy.FieldType.Integer, lower_bound=1)
        counts = self.count_by_field(messages, "reason").items()
        return {EXCLUSION_REASONS[code]: count for code, count in counts}

    # --- writing -------------------------------------------------------------------------------------------------

    @_translate_errors
    def begin_writing(self, size: int) -> None:
        """Open a writer for about `size` bytes, and remove what an interrupted writer left."""
        if self._writer is None:
            self._last_block = self.read_state().last_block
            memory = SMALL_WRITE_BYTES if size < SMALL_WRITE_BYTES else HEAP
            self._writer = self._inner.writer(memory, THREADS)
            # A killed writer leaves files whose names the next writer would reuse.
            self._writer.garbage_collect_files()
            first = self._last_block + 1
            stale = tantivy.Query.range_query(self.schema, "block", tantivy.FieldType.Integer, lower_bound=first)
            self._writer.delete_documents_by_query(stale)

    @_translate_errors
    def add_documents(self, session: int, block: int, documents: Iterable[str]) -> None:
        """Add the encoded documents of a session's block."""
        assert self._writer is not None
        self._is_committed = False
        self._last_block = max(self._last_block, block)
        owner = f'{{"session":{session},"block":{block},'
        for document in documents:
            self._writer.add_json(owner + document)

    @_translate_errors
    def remove_block(self, block: int) -> None:
        """Remove the documents of a block."""
        assert self._writer is not None
        self._writer.delete_documents_by_term("block", block)

    @_translate_errors
    def commit(self, last_tombstone: int) -> None:
        """Commit the changes and save the position of the last tombstone."""
        assert self._writer is not None
        self._writer.commit()
        self._is_committed = True
        contents, files = digest_contents(self.folder), read_file_stamps(self.folder)
        self._write_state(IndexState(self.read_state().name, self._last_block, last_tombstone, contents, files))
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # background merges delete files
                path.chmod(0o600)

    def close(self) -> None:
        """Close the writer: discard uncommitted changes, and wait for merge threads if the index is complete."""
        writer, self._writer = self._writer, None
        if writer is not None and self._is_committed and read_share(self.folder) == 1:
            with suppress(ValueError, OSError, _PanicError), _panics_as_errors():
                writer.wait_merging_threads()
                files = read_file_stamps(self.folder)
                self._write_state(structs.replace(self.read_state(), files=files))


def _build_hits(searcher: tantivy.Searcher, hits: "list[tuple[float, tantivy.DocAddress]]") -> list[IndexHit]:
    """Build hits with the searcher that found them; in another searcher, the addresses may be invalid."""
    addresses = [address for _, address in hits]
    columns = [_numbers(searcher, field, addresses) for field in IndexHit._fields[1:]]
    return [*map(IndexHit, [score for score, _ in hits], *columns)]


def _numbers(searcher: tantivy.Searcher, field: str, addresses: "list[tantivy.DocAddress]") -> list[int]:
    """Return a numeric field of each document; 0 if missing."""
    values = cast("list[int | None]", searcher.fast_field_values(field, addresses))
    return [value or 0 for value in values]


def remove_index(folder: Path) -> None:
    """Remove an index if it exists."""
    for _ in range(REMOVAL_ATTEMPTS - 1):  # a thread of tantivy may still create a lock file
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)
