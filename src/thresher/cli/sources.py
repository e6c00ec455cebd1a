"""Lookup of sessions: in the agents' folders, in `--source` paths, and in the archive."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from thresher.cli.common import exit_on_interrupt, progress_bar, track_progress, warn
from thresher.errors import ReadError, UnknownFormatError, suggest_name
from thresher.model import Session
from thresher.render.text import plural
from thresher.transcripts import discover, files_below, format_names, read_all

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.memory.ingest.unchanged_files import UnchangedFiles
    from thresher.memory.session_store import SessionStore

SLOW_SYNC_SECONDS = 2.0
"""Maximum duration of a silent sync. A longer one reports how many messages it read."""
SEARCH_SYNC_SECONDS = 2.5
"""Time that a command may read new sessions before it answers. The rest is left to `thresher sync` and the servers."""
MAX_LISTED_IDS = 10
FILE_SUFFIXES = {".json", ".jsonl", ".md", ".traj", ".db", ".sqlite", ".sqlite3", ".gz", ".zst", ".txt"}
"""Suffixes of files. A reference with one of them is a path, not the start of a session id."""


class SessionSources(NamedTuple):
    """Files and folders to read: the `--source` paths, and by default the agents' own folders."""

    extra: tuple[Path, ...] = ()
    discover: bool = True

    def list_files(self, paths: Sequence[Path] = ()) -> list[Path]:
        """Return the files below `paths` and the sources; without `paths`, discovered files as well."""
        files = [file.path for file in discover()] if self.discover and not paths else []
        files += (Path(file) for path in (*paths, *self.extra) for file in files_below(path))
        return list(dict.fromkeys(files))

    def open_memory(self, *, sync: bool = False) -> "Memory":
        """Open the memory with these sources; sync it if `sync` is true."""
        from thresher.memory import Memory

        memory = Memory(sources=self.extra, discover=self.discover)
        if sync:
            sync_before_search(memory)
        return memory

    def find_session(self, reference: str, *, reveal: bool = False) -> Session:
        """Return the session of a file, or the session whose id starts with `reference`; a complete id wins.

        The lookup first parses files whose name contains `reference`. If none matches, and the file of the archived
        session no longer exists, the session comes from the archive, with secrets redacted unless `reveal` is true.
        Otherwise the lookup parses all files that may contain it: those that changed since the last sync, and those in
        which the archive has such an id.
        """
        check_reference(reference)
        if Path(reference).is_file():
            hint = f"choose one with `ID --source {reference}`"
            return _require_single(read_all(Path(reference)), reference, hint)
        files = self.list_files()
        hint = "give more characters of the id"
        if matches := _find_by_id_prefix(reference, [file for file in files if reference in file.name]):
            return _require_single(matches, reference, hint)
        archived = _find_archived_session(reference)
        if archived is not None and not Path(archived.file).exists():
            return _from_archive(archived, "its file was deleted", reveal=reveal)
        if matches := _find_by_id_prefix(reference, _exclude_other_sessions(reference, files)):
            return _require_single(matches, reference, hint)
        if archived is not None:
            return _from_archive(archived, "no file in the searched folders contains it", reveal=reveal)
        if Path(reference).name != reference:
            raise _missing_file_error(Path(reference))
        raise ReadError(
            f"no session id starts with `{reference}` ({plural(len(files), 'file')} searched). "
            "`thresher sessions` lists the ids; --source PATH adds a folder"
        )


def check_reference(reference: str) -> None:
    """Raise `ReadError` if a reference is a folder, or has the suffix of a file and does not exist."""
    path = Path(reference)
    if path.is_dir():
        raise ReadError(f"`{reference}` is a folder; `thresher sessions {quote(reference)}` lists the sessions in it")
    if path.suffix.lower() in FILE_SUFFIXES and not path.exists():
        raise _missing_file_error(path)


def _missing_file_error(path: Path) -> ReadError:
    if not path.parent.is_dir():
        return ReadError(f"the file `{path}` does not exist, and neither does its folder")
    return ReadError(
        f"the file `{path}` does not exist.{suggest_name(path.name, [file.name for file in path.parent.iterdir()])}"
    )


def stop_after(seconds: float) -> Callable[[], bool]:
    """Return a function that returns True when this time is over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def sync_before_search(memory: "Memory") -> None:
    """Read new messages before a search, for a short time, and warn about anything that the search may miss."""
    with exit_on_interrupt(), progress_bar("reading", percent=True) as progress:
        report, notes = memory.refresh(progress=progress, stop=stop_after(SEARCH_SYNC_SECONDS))
    for note in notes:
        warn(f"thresher: {note}")
    if report.seconds > SLOW_SYNC_SECONDS:
        rest = "; `thresher sync` reads the rest" if report.indexed < 1 else ""
        warn(f"read {report.messages:,} new messages in {report.seconds:.1f} s{rest}")
    if report.forgotten:
        warn(f"forgot {plural(report.forgotten, 'session')} beyond the retention period")
    if report.failed:
        warn(f"could not read {plural(len(report.failed), 'file')}; run `thresher sync` for the reasons")


def open_existing_memory() -> "Memory | None":
    """Open the memory if it has an archive on disk, and create nothing otherwise."""
    from thresher.memory import Memory

    memory = Memory(discover=False)
    return memory if memory.store.exists() else None


def find_in_archive(files: Iterable[Path]) -> "tuple[SessionStore | None, UnchangedFiles]":
    """Return the store and what it knows about the files; nothing if there is no archive, or it cannot be read."""
    from thresher.memory.ingest.unchanged_files import UnchangedFiles, find_unchanged_files
    from thresher.store import StoreError

    memory = open_existing_memory()
    if memory is None:
        return None, UnchangedFiles()
    try:
        return memory.store, find_unchanged_files(memory.store, map(str, files))
    except StoreError:
        return None, UnchangedFiles()


def session_dialect(session: Session) -> str | None:
    """Return the dialect of a session that was read from API messages; None for a transcript."""
    return session.agent if session.agent in format_names("wire") else None


def read_sessions(
    files: Sequence[Path],
    *,
    named: Iterable[Path] = (),
    is_wanted: Callable[[str], bool] | None = None,
    unrecognized: list[str] | None = None,
) -> tuple[list[Session], list[str]]:
    """Return the sessions in the files, and a message for each unreadable file.

    `is_wanted` selects sessions by id, so that a database decodes only these. A file of unknown format counts as
    unreadable only if it is in `named`; otherwise it is added to `unrecognized`. Sub-agents appear under their parent
    session only.
    """
    sessions: list[Session] = []
    failures: list[str] = []
    for path in track_progress(files, "reading"):
        try:
            sessions += read_all(path, is_wanted=is_wanted)
        except UnknownFormatError as error:
            if path in named:
                failures.append(str(error))
            elif unrecognized is not None:
                unrecognized.append(str(path))
        except ReadError as error:
            failures.append(str(error))
    children = {child.file for session in sessions for child in session.children if child.file != session.file}
    return [session for session in sessions if session.file not in children], failures


def _find_by_id_prefix(reference: str, files: Sequence[Path]) -> list[Session]:
    sessions, _ = read_sessions(files, is_wanted=lambda id: id.startswith(reference))
    family = [member for session in sessions for member in (session, *session.children)]
    matches = [session for session in family if session.id.startswith(reference)]
    return [session for session in matches if session.id == reference] or matches


def _exclude_other_sessions(reference: str, files: Sequence[Path]) -> list[Path]:
    """Return the files without those that have no such session, as the archive knows."""
    from thresher.memory.ingest.sync import absolute_path

    known = find_in_archive(files)[1]
    matching = {facts.file for facts in known.sessions if facts.id.startswith(reference)}
    return [path for path in files if absolute_path(str(path)) not in known.paths - matching]


def _find_archived_session(reference: str) -> Session | None:
    from thresher.store import NotStoredError

    memory = open_existing_memory()
    try:
        return memory.session(reference) if memory is not None else None
    except NotStoredError:
        return None


def _from_archive(session: Session, why: str, *, reveal: bool) -> Session:
    from thresher.memory.ingest.session_redaction import redact_session

    warn(f"(from the archive: {why}{'' if reveal else '; secrets are redacted'})")
    return session if reveal else redact_session(session)


def _require_single(sessions: Sequence[Session], reference: str, hint: str) -> Session:
    if len(sessions) == 1:
        return sessions[0]
    ids = ", ".join(session.id for session in sessions[:MAX_LISTED_IDS])
    more = ", …" if len(sessions) > MAX_LISTED_IDS else ""
    raise ReadError(f"`{reference}` matches {len(sessions)} sessions: {ids}{more}; {hint}")
