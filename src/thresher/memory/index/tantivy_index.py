"""The full-text index: made from the archive, and never more than that.

Nothing is stored in it but numbers that lead back to the archive. A folder holds it, with a file beside that says
which archive it was made for and by which version; an index that is damaged, of another archive or older is
taken for none, and is built anew.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import msgspec
import tantivy
from msgspec import Struct

from thresher.memory.index.documents import IndexDocument, path_suffixes
from thresher.memory.index.tokenizer import PLAIN, STEMMED, analyzer, separate_words
from thresher.memory.records import EXCLUSION_REASONS, TEXT_KINDS
from thresher.store.errors import StoreError

HEAP = 400_000_000
"""Bytes of entries that are held in memory while an index is written."""
SMALL_WRITE_BYTES = 16_000_000
"""What takes fewer bytes is written by one thread, so that it becomes one segment."""
STATE_FILE = "thresher.state"
META = "meta.json"
NUMBERS = ("session", "block", "kind", "reason", "derived", "role", "time")
MOST_SESSIONS = 1_000_000
MOST_PLACES = 50_000

P = ParamSpec("P")
R = TypeVar("R")


class IndexState(Struct, frozen=True):
    """How far an index has what its archive has."""

    name: str
    """The archive's generation and the version of the documents."""
    last_block: int = 0
    last_tombstone: int = -1
    """The position of the last tombstone; below 0 where no titles were added yet."""


class IndexHit(NamedTuple):
    """An entry that a query found."""

    score: float
    session: int
    at: int
    kind: int
    reason: int
    derived: int
    role: int


@cache
def build_schema() -> tantivy.Schema:
    """The fields of an entry."""
    builder = tantivy.SchemaBuilder()
    for field in ("said", "paths"):
        builder.add_text_field(field, tokenizer_name=STEMMED, index_option="position")
    builder.add_text_field("output", tokenizer_name=PLAIN, index_option="freq")
    for field in ("file", "made", "logged"):
        builder.add_text_field(field, tokenizer_name="raw", index_option="basic")
    for field in NUMBERS:
        builder.add_integer_field(field, indexed=True, fast=True)
    builder.add_integer_field("at", fast=True)
    return builder.build()


def _translate_errors(
    method: "Callable[Concatenate[TantivyIndex, P], R]",
) -> "Callable[Concatenate[TantivyIndex, P], R]":
    """What tantivy cannot do becomes an error of ours."""

    @wraps(method)
    def inner(self: "TantivyIndex", /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except (ValueError, OSError) as error:
            advice = "free the disk; what is kept is safe, and the next sync goes on or builds the index anew"
            raise StoreError(f"{self.folder}: the search index cannot be used ({error}); {advice}") from error

    return inner


class TantivyIndex:
    """An index in a folder."""

    def __init__(self, folder: Path, inner: tantivy.Index) -> None:
        self.folder = folder
        self.schema = inner.schema
        self._inner = inner
        self._writer: tantivy.IndexWriter | None = None
        self._is_committed = False
        self._last_block = 0
        self._searcher: tantivy.Searcher | None = None
        self._loaded_version: tuple[int, int] | None = None
        inner.register_tokenizer(STEMMED, analyzer(STEMMED))
        inner.register_tokenizer(PLAIN, analyzer(PLAIN))
        inner.config_reader(reload_policy="manual")

    @classmethod
    def open_existing(cls, folder: Path, name: str) -> "TantivyIndex | None":
        """The index of this name, or None where there is none that can be used."""
        try:
            index = cls(folder, tantivy.Index.open(str(folder)))
            if index.read_state().name != name:
                return None
            _ = index.searcher.num_docs
        except (ValueError, OSError, StoreError):
            return None
        return index

    @classmethod
    def create(cls, folder: Path, name: str) -> "TantivyIndex":
        """A new one, in place of whatever is there."""
        try:
            remove_index(folder)
            folder.mkdir(mode=0o700, parents=True)
            index = cls(folder, tantivy.Index(build_schema(), path=str(folder)))
            index._write_state(IndexState(name))
        except (ValueError, OSError) as error:
            raise StoreError(f"{folder}: no index can be made there ({error}); free the disk") from error
        return index

    def read_state(self) -> IndexState:
        """Return how far the index is; of none, where that cannot be read."""
        try:
            return msgspec.json.decode((self.folder / STATE_FILE).read_bytes(), type=IndexState)
        except (OSError, msgspec.MsgspecError):
            return IndexState("")

    def _write_state(self, state: IndexState) -> None:
        """Replace the state file as a whole."""
        part = self.folder / f"{STATE_FILE}.part"
        part.write_bytes(msgspec.json.encode(state))
        part.chmod(0o600)
        part.replace(self.folder / STATE_FILE)

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def searcher(self) -> tantivy.Searcher:
        """A look at the index as it was last written, by whomever."""
        facts = (self.folder / META).stat()
        seen = (facts.st_mtime_ns, facts.st_ino)
        if self._searcher is None or seen != self._loaded_version:
            self._inner.reload()
            self._searcher, self._loaded_version = self._inner.searcher(), seen
        return self._searcher

    @_translate_errors
    def search(self, query: tantivy.Query, limit: int) -> list[IndexHit]:
        """The best entries, the best first."""
        searcher = self.searcher
        return _build_hits(searcher, searcher.search(query, limit, count=False).hits)

    @_translate_errors
    def count_by_field(self, query: tantivy.Query, field: str = "session") -> dict[int, int]:
        """How many entries a query finds, by a number that they have."""
        terms = {"terms": {"field": field, "size": MOST_SESSIONS}}
        buckets = self.searcher.aggregate(query, {"by": terms})["by"]["buckets"]
        return {bucket["key"]: bucket["doc_count"] for bucket in buckets}

    @_translate_errors
    def times_by_session(self, query: tantivy.Query, which: Literal["min", "max"]) -> dict[int, int]:
        """The time of the first or the last entry that a query finds, by session; 0 where none has one."""
        one = {"one": {which: {"field": "time"}}}
        terms = {"by": {"terms": {"field": "session", "size": MOST_SESSIONS}, "aggs": one}}
        buckets = self.searcher.aggregate(query, terms)["by"]["buckets"]
        return {bucket["key"]: int(bucket["one"]["value"] or 0) for bucket in buckets}

    @_translate_errors
    def search_messages(
        self, query: tantivy.Query, best: int = 0, each: int = 0
    ) -> tuple[dict[int, int], list[IndexHit]]:
        """How many messages a query finds, by session: each once, however many of its entries match.

        And the best entries; after them, of each session, those of its own best that are not among them.
        """
        searcher = self.searcher
        hits = searcher.search(query, MOST_PLACES, count=False).hits
        places = [place for _, place in hits]
        sessions, messages = (_numbers(searcher, field, places) for field in ("session", "at"))
        counts = Counter(session for session, _ in set(zip(sessions, messages, strict=True)))
        kept, taken = hits[:best], Counter(sessions[:best])
        for hit, session in zip(hits[best:], sessions[best:], strict=True) if each else ():
            if taken[session] < each:
                taken[session] += 1
                kept.append(hit)
        return counts, _build_hits(searcher, kept)

    @_translate_errors
    def terms_with_prefix(self, field: str, prefix: str, limit: int) -> list[str]:
        """Words of a field that begin so, the most frequent first."""
        return [word for word, _ in self.searcher.terms_with_prefix(field, prefix, limit=limit)]

    @_translate_errors
    def document_frequency(self, word: str) -> int:
        """In how many entries a word is."""
        return self.searcher.doc_freq("said", word)

    def count_by_reason(self, subagents: Collection[int]) -> dict[str, int]:
        """Return how many texts are excluded, by reason; under "" the others, under "sub-agent" those of these."""
        messages = tantivy.Query.range_query(self.schema, "block", tantivy.FieldType.Integer, lower_bound=1)
        counts = self.count_by_field(messages, "reason").items()
        every: dict[str, int] = {EXCLUSION_REASONS[code]: count for code, count in counts}
        if subagents:
            searched = tantivy.Query.term_query(self.schema, "reason", 0)
            theirs = tantivy.Query.term_set_query(self.schema, "session", [*subagents])
            hidden = sum(self.count_by_field(messages.and_must_match(searched, theirs)).values())
            every |= {"": every.get("", 0) - hidden, "sub-agent": hidden}
        return every

    # --- writing -------------------------------------------------------------------------------------------------

    @_translate_errors
    def begin_writing(self, size: int) -> None:
        """Begin to write so many bytes; remove what an interrupted writing left."""
        if self._writer is None:
            self._last_block = self.read_state().last_block
            few = size < SMALL_WRITE_BYTES
            self._writer = self._inner.writer(
                SMALL_WRITE_BYTES if few else HEAP, 1 if few else min(4, os.cpu_count() or 1)
            )
            # A writer that was killed leaves files, and the next one would want to give some of its own their names.
            self._writer.garbage_collect_files()
            stale = tantivy.Query.range_query(
                self.schema, "block", tantivy.FieldType.Integer, lower_bound=self._last_block, include_lower=False
            )
            self._writer.delete_documents_by_query(stale)

    @_translate_errors
    def add_documents(self, session: int, block: int, docs: Iterable[IndexDocument]) -> None:
        """Add entries of a block of a session."""
        assert self._writer is not None
        self._is_committed = False
        self._last_block = max(self._last_block, block)
        for doc in docs:
            self._writer.add_document(_document(session, block, doc))

    @_translate_errors
    def remove_block(self, block: int) -> None:
        """Remove the entries of a block."""
        assert self._writer is not None
        self._writer.delete_documents_by_term("block", block)

    @_translate_errors
    def commit(self, last_tombstone: int) -> None:
        """Make all of it last, tombstones up to a position included."""
        assert self._writer is not None
        self._writer.commit()
        self._is_committed = True
        self._write_state(IndexState(self.read_state().name, self._last_block, last_tombstone))
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # merges tidy up behind us
                path.chmod(0o600)

    def close(self) -> None:
        """End writing; what was not committed is forgotten, and what is being merged is waited for."""
        writer, self._writer = self._writer, None
        if writer is not None and self._is_committed:
            with suppress(ValueError, OSError):
                writer.wait_merging_threads()


def _build_hits(searcher: tantivy.Searcher, hits: "list[tuple[float, tantivy.DocAddress]]") -> list[IndexHit]:
    """What is known of hits; by the searcher that gave them, since another may have other segments."""
    places = [place for _, place in hits]
    columns = [_numbers(searcher, field, places) for field in IndexHit._fields[1:]]
    return [*map(IndexHit, [score for score, _ in hits], *columns)]


def _numbers(searcher: tantivy.Searcher, field: str, places: "list[tantivy.DocAddress]") -> list[int]:
    """A number of each entry; 0 where it has none."""
    values = cast("list[int | None]", searcher.fast_field_values(field, places))
    return [value or 0 for value in values]


def remove_index(folder: Path) -> None:
    """Remove an index, if there is one."""
    if folder.exists():
        shutil.rmtree(folder)


def _document(session: int, block: int, doc: IndexDocument) -> tantivy.Document:
    made = tantivy.Document()
    made.add_integer("session", session)
    made.add_integer("block", block)
    made.add_integer("at", doc.at)
    made.add_integer("kind", TEXT_KINDS.index(doc.kind))
    made.add_integer("reason", doc.reason)
    made.add_integer("derived", int(doc.derived))
    made.add_integer("role", doc.role)
    if doc.time:
        made.add_integer("time", doc.time)
    field = "output" if doc.kind == "output" else "said"
    for text in doc.texts:
        made.add_text(field, text)
    for field, subjects in zip(doc.commits._fields, doc.commits, strict=True):
        for subject in subjects:
            made.add_text(field, subject)
    for path in doc.paths:
        made.add_text("paths", separate_words(path))
        for end in path_suffixes(path):
            made.add_text("file", end)
    return made
