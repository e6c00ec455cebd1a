"""`Memory`: sync, search, recall and forget past sessions."""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from msgspec import structs

from thresher.errors import OptionError
from thresher.memory.archive.protocol import Archive, SessionFilter
from thresher.memory.archive.sqlite import SqliteArchive
from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.ingest.provenance import attribute_texts
from thresher.memory.ingest.session_redaction import redact_session
from thresher.memory.ingest.sync import sync_sources
from thresher.memory.meaning import forget_vectors, open_meaning_index
from thresher.memory.records import (
    ArchivedSession,
    MemorySizes,
    Progress,
    Stop,
    SyncReport,
    never_stop,
    to_storable_text,
)
from thresher.memory.results import RecallResult, SearchResults
from thresher.memory.search.combined_score import MeaningScorer
from thresher.memory.search.confidence import confidence_notes
from thresher.memory.search.query import (
    SEARCH_FIELDS,
    Query,
    SearchFilters,
    content_words,
    parse_date_or_age,
    parse_query,
)
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.session_store import MEMORY_FOLDER, SessionStore
from thresher.model import History, Part, Session
from thresher.store import default_content_store
from thresher.store.errors import AmbiguousIdError, NotStoredError, StoreError
from thresher.store.sqlite import content_store_in
from thresher.transcripts import discover, files_below

if TYPE_CHECKING:
    from thresher.memory.annotate import Annotator
    from thresher.memory.meaning.building import BuildReport
    from thresher.memory.meaning.meaning_index import MeaningIndex
    from thresher.summarize.endpoint import Endpoint

RETENTION_SLACK = 0.1
"""Time by which a session must exceed the retention period to start a cleanup, as a share of the period."""
PROMPTS = 3
MAX_RELATED_WORDS = 24
"""Number of words from a conversation that form the query for related sessions."""


BUSY_NOTE = "another sync is running; the newest turns may be missing"


class RefreshOutcome(NamedTuple):
    """Report of the sync before a search, with notes about what may be missing."""

    report: SyncReport
    notes: tuple[str, ...] = ()


class Memory:
    """Past sessions of every agent on this machine and of the given `sources`.

    `home` is the data folder (default: `THRESHER_HOME`). `archive` stores the sessions elsewhere: in another SQLite
    file or in any implementation of `Archive`; the search index stays in `home`. `sources` are additional files and
    folders to read. `discover=False` skips the agents' own folders. `retention` limits how long a session is kept
    after its end ("365d", "2 years"; default: `THRESHER_RETENTION`, or no limit). With `project_root`, only the
    sessions whose project is this folder or below it are visible. With the extra `meaning`, searches also compare
    meanings, not only words; `meaning` replaces the built-in scorer by another one, and False disables it. Nothing is
    written outside `home` and the archive.
    """

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        archive: str | os.PathLike[str] | Archive | None = None,
        sources: Sequence[str | os.PathLike[str]] = (),
        discover: bool = True,
        retention: str | None = None,
        project_root: str | os.PathLike[str] = "",
        meaning: MeaningScorer | Literal[False] | None = None,
    ) -> None:
        if isinstance(archive, str | os.PathLike):
            archive = SqliteArchive(Path(archive))
        folder = None if home is None else Path(home) / MEMORY_FOLDER
        root = str(Path(project_root).absolute()) if os.fspath(project_root) else ""
        self.store = SessionStore(folder, archive, project_root=root)
        self.removed_text = default_content_store() if home is None else content_store_in(Path(home))
        """The content store: text that `fit` and a `Window` removed from requests."""
        self._sources = [Path(source) for source in sources]
        self._discover = discover
        self._retention = retention
        self._home = None if home is None else Path(home)
        self._scorer = meaning

    @cached_property
    def meaning(self) -> "MeaningIndex | None":
        """The vectors for the search by meaning; None without the extra `meaning`."""
        return open_meaning_index(self.store, self._home) if self._scorer is None else None

    def sync(
        self,
        *,
        progress: Callable[[int, int], None] | None = None,
        wait: bool = True,
        waiting: Callable[[], None] | None = None,
        stop: Stop = never_stop,
        vectors: bool = True,
    ) -> SyncReport:
        """Read new and changed sessions; without changes, only check each file's metadata.

        Only one sync runs at a time. If another one is running and `wait` is true, call `waiting` once and wait. If
        `wait` is false, return a report with `busy` set. When `stop` returns True, keep what is done: the newest
        sessions are read first, `indexed` of the report is the share that is done, and the next sync reads the rest.
        With the extra `meaning`, a complete sync also builds the missing vectors, unless `vectors` is false.
        """
        report = self._sync_words(progress=progress, wait=wait, waiting=waiting, stop=stop)
        if vectors and not report.busy and report.indexed == 1:
            self.build_vectors(stop=stop)
        return report

    def _sync_words(
        self,
        *,
        progress: Callable[[int, int], None] | None = None,
        wait: bool = True,
        waiting: Callable[[], None] | None = None,
        stop: Stop = never_stop,
    ) -> SyncReport:
        files: list[tuple[str | None, str | Path]] = []
        if self._discover:
            files += ((location.format, location.path) for location in discover())
        files += ((None, path) for source in self._sources for path in files_below(source))
        report = sync_sources(self.store, files, progress=progress, wait=wait, waiting=waiting, stop=stop)
        if report.busy or report.indexed < 1:
            return report
        return report._replace(forgotten=self._expire(wait=wait))

    def annotator(self) -> "Annotator":
        """Return the writer of annotations; raise `OptionError` if no model is configured."""
        from thresher.memory.annotate import Annotator  # noqa: PLC0415 - rarely used

        return Annotator(self.store, self._home)

    def build_vectors(
        self, *, progress: "Callable[[str], Progress | None] | None" = None, stop: Stop = never_stop
    ) -> "list[BuildReport]":
        """Build the missing vectors of each model; `progress` returns a callback by the model's name."""
        return self.meaning.build(progress, stop) if self.meaning is not None else []

    def refresh(self, *, progress: Callable[[int, int], None] | None = None, stop: Stop = never_stop) -> RefreshOutcome:
        """Sync before a search, without waiting for another sync, until it is complete or `stop` returns True.

        This builds only the static vectors; the other models are slow to load or elsewhere. `sync` builds all.
        A failed or skipped sync does not stop the search; the notes of the outcome describe what may be missing.
        """
        try:
            report = self._sync_words(progress=progress, wait=False, stop=stop)
            if self.meaning is not None and not report.busy and report.indexed == 1:
                self.meaning.build(stop=stop, only_fast=True)
        except StoreError as error:
            return RefreshOutcome(SyncReport(), (f"{error}; the search covers only sessions archived earlier",))
        return RefreshOutcome(report, (BUSY_NOTE,) if report.busy else ())

    def _expire(self, *, wait: bool) -> int:
        """Forget the sessions that exceed the retention period, and return their number.

        Forgetting rebuilds the index. So it waits until a session exceeds the period by `RETENTION_SLACK`.
        """
        retention = self._retention or os.environ.get("THRESHER_RETENTION", "")
        if not retention.strip():
            return 0
        now = datetime.now(UTC)
        limit = parse_date_or_age(retention, now)
        if now - limit < timedelta(days=1):
            raise OptionError(f"`retention` must be one day or more, for example `365d`, got {retention!r}")
        self.removed_text.prune(limit)
        old = [session for session in self.store.find_sessions() if session.ended and session.ended < limit]
        overdue = limit - (now - limit) * RETENTION_SLACK
        if not any(session.ended and session.ended < overdue for session in old):
            return 0
        return self._forget(old, wait=wait, for_good=False)

    def _forget(
        self,
        sessions: Sequence[ArchivedSession],
        *,
        wait: bool = True,
        for_good: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        with self.store.write_lease(wait=wait) as is_ours:
            if not is_ours or not sessions:
                return 0
            self.removed_text.forget(part for session in sessions for part in self._parts(session))
            count = self.store.forget([session.key for session in sessions], progress, for_good=for_good)
            forget_vectors(self.store)
            self.store.annotations.keep_sessions(self.store.archive.find_keys(SessionFilter()))
            return count

    def _parts(self, session: ArchivedSession) -> Iterator[Part]:
        """Yield everything of a session that the content store may hold, also in its redacted form."""
        original = self.store.session(session.key)
        for one in (original, redact_session(original)):
            for member in (one, *one.children):
                yield from (part for message in member.messages(branches=True) for part in message.parts)

    def find_relatives(self, sessions: Sequence[ArchivedSession]) -> list[ArchivedSession]:
        """Return the other sessions of the same families: forks, continuations and copies, which repeat their words."""
        keys = {session.key for session in sessions}
        families = {(session.agent, session.root or session.id) for session in sessions}
        return [
            session
            for agent, root in sorted(families)
            for session in self.store.find_sessions(agent=agent, root=root)
            if session.key not in keys and not session.subagent
        ]

    def search(
        self,
        words: str | Query,
        *,
        sessions: int = 10,
        messages: int = 5,
        context: int = 300,
        page: int = 1,
        sync: bool = True,
        reveal: bool = False,
        **filters: Unpack[SearchFilters],
    ) -> SearchResults:
        """Return the sessions that match a query, each with its best messages.

        `filters` are the fields of `Query`: `require=("jwt",)`, `project="shop"`, `since="7d"`. A sync reads new
        turns first unless `sync` is false. Secrets are redacted unless `reveal` is true.
        """
        query = _apply_filters(parse_query(words) if isinstance(words, str) else words, filters)
        for name, number in (("sessions", sessions), ("messages", messages), ("page", page), ("context", context)):
            if number < 1:
                raise OptionError(f"`{name}` must be 1 or more, got {number}")
        view = SearchView(sessions, messages, context, page, reveal)
        notes = self.refresh().notes if sync else ()
        try:
            results = self._search(query, view)
        except StoreError:
            if not (sync and self.store.is_index_behind()):
                raise
            notes = self.refresh().notes  # rebuilds the index
            results = self._search(query, view)
        text = words if isinstance(words, str) else query.words
        indexed = self.store.indexed_share()
        return structs.replace(results, query=text, notes=(*notes, *results.notes), indexed=indexed)

    def _search(self, query: Query, view: SearchView) -> SearchResults:
        if not query.regex:
            return self._search_words(query, view)
        from thresher.memory.search.regex_search import search_by_regex  # noqa: PLC0415 - rarely used

        return search_by_regex(self.store, query, view)

    def _search_words(self, query: Query, view: SearchView) -> SearchResults:
        if self.meaning is None:
            return search_archive(self.store, query, view, meaning=self._scorer or None)
        own_scorer = self.meaning.question_scorer(query.full_text)
        results = search_archive(self.store, query, view, meaning=own_scorer)
        return structs.replace(results, notes=(*results.notes, *own_scorer.notes))

    def related(
        self, history: History | Session, *, sessions: int = 5, sync: bool = True, current: str = ""
    ) -> SearchResults:
        """Return past sessions that are related to the first prompts of a conversation.

        `current` is the id of the session to which the conversation belongs; the results exclude it.
        """
        notes = self.refresh().notes if sync else ()
        if isinstance(history, Session):
            current, history = current or history.id, history.history
        texts = (text for _, words in attribute_texts(history.messages) for text in words)
        prompts = [text.text for text in texts if text.field == "human" and not text.reason][:PROMPTS]
        words = content_words(tokenize_words(" ".join(prompts)[:20_000]), most=400)
        rare = frozenset(sorted(words, key=self.store.document_frequency)[:MAX_RELATED_WORDS])
        kept = " ".join(word for word in words if word in rare)
        if not kept:
            return SearchResults("", (), 0, notes=("the conversation has no prompt to search for",))
        results = self.search(Query(words=kept, current=current), sessions=sessions, sync=False)
        doubts = confidence_notes(results.confidence)  # the words are no question that a session could answer
        notes = (*notes, *(note for note in results.notes if note not in doubts))
        return structs.replace(results, confidence=None, notes=notes)

    def recall(
        self, id: str, question: str, *, budget: int = 2000, reveal: bool = False, endpoint: "Endpoint | None" = None
    ) -> RecallResult:
        """Return excerpts of one session that answer a question, and an endpoint's answer if one is given.

        `budget` limits the tokens of all excerpts.
        """
        from thresher.memory.search.recall import recall_session  # noqa: PLC0415 - loads the model client

        return recall_session(self.store, self.facts(id), question, budget=budget, reveal=reveal, endpoint=endpoint)

    def facts(self, id: str) -> ArchivedSession:
        """Return the session with this id or id prefix."""
        matches = self.store.find_sessions(id=to_storable_text(id)) if id else []
        matches = [session for session in matches if session.id == id] or matches
        if not matches:
            raise NotStoredError(
                f"no archived session has an id that starts with `{id}`; `thresher sessions` lists the ids. Sessions "
                "deleted by `thresher forget` do not return"
            )
        if len({(session.agent, session.root) for session in matches}) > 1:
            ids = ", ".join(session.id for session in matches[:5])
            raise AmbiguousIdError(f"`{id}` matches {len(matches)} sessions: {ids}; give more characters of the id")
        return max(matches, key=lambda session: (not session.gone, session.messages))

    def session(self, id: str) -> Session:
        """Return a session from the archive, even if its file is gone."""
        return self.store.session(self.facts(id).key)

    def forget(
        self,
        *,
        ids: Sequence[str] = (),
        project: str = "",
        before: datetime | None = None,
        family: bool = False,
        dry: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ArchivedSession]:
        """Remove the selected sessions from archive and index permanently, and return them.

        With `dry`, only return them. A later sync does not read removed sessions again. An id selects all copies of the
        session. `project` selects the sessions with this text in the folder path, and `before` those that ended before
        this time. If both are given, a session must meet both conditions. With `family`, also remove their forks,
        continuations and copies (`find_relatives`). What the content store holds of these sessions is deleted, too.
        """
        if not (ids or project or before):
            raise OptionError("no sessions selected; give `ids`, a `project` or a `before` date")
        selected: dict[int, ArchivedSession] = {}
        for facts in map(self.facts, ids):
            copies = self.store.find_sessions(agent=facts.agent, root=facts.root)
            selected |= {session.key: session for session in copies if session.id == facts.id}
        if project or before:
            for session in self.store.find_sessions(project=to_storable_text(project)):
                if before is None or (session.ended and session.ended < before):
                    selected[session.key] = session
        if family:
            selected |= {session.key: session for session in self.find_relatives([*selected.values()])}
        if not dry:
            self._forget([*selected.values()], progress=progress)
        return list(selected.values())

    def sizes(self) -> MemorySizes:
        """Return the number of archived sessions and messages, and the sizes on disk."""
        return self.store.sizes()

    def left_out(self) -> dict[str, int]:
        """Return the number of texts that a search skips by default, by reason; "" counts the searched texts."""
        return self.store.excluded_counts()


CHOICES = {"role": ("", "user", "assistant"), "rank": ("best", "matches")}


def _apply_filters(query: Query, options: SearchFilters) -> Query:
    filters: dict[str, Any] = {**options}
    unknown = filters.keys() - set(Query.__struct_fields__)
    if unknown:
        known = ", ".join(sorted(set(Query.__struct_fields__) - {"typed", "words", "phrases", "prefixes"}))
        raise OptionError(f"unknown search filter `{min(unknown)}`; valid filters: {known}")
    now = datetime.now(UTC).astimezone()
    for name, end in (("since", False), ("until", True)):
        if isinstance(filters.get(name), str):
            filters[name] = parse_date_or_age(filters[name], now, end=end)
    for name in ("require", "exclude", "fields"):
        if name in filters:
            filters[name] = (filters[name],) if isinstance(filters[name], str) else tuple(filters[name])
    for field in filters.get("fields", ()):
        if field not in SEARCH_FIELDS:
            raise OptionError(f"unknown search field `{field}`; valid fields: {', '.join(SEARCH_FIELDS)}")
    for name, choices in CHOICES.items():
        if filters.get(name, choices[0]) not in choices:
            raise OptionError(f"`{name}` must be one of {', '.join(filter(None, choices))}, got {filters[name]!r}")
    query = structs.replace(query, **filters)
    if not (query.words or query.phrases or query.prefixes or query.require or query.file or query.regex):
        raise OptionError("the query is empty; give words, a file or a regex")
    return query
