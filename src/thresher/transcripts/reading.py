"""Detect the format of a file, and read the sessions in it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from thresher.dialects.base import Dialect
from thresher.dialects.convert import unknown_role_problems
from thresher.dialects.extras import is_nonconforming_message
from thresher.dialects.intake import detect_dialect
from thresher.errors import FormatError, ReadError, ThresherError, UnknownFormatError
from thresher.model import Problem, Session
from thresher.transcripts.base import TranscriptFormat, title_from_prompt
from thresher.transcripts.source import CachedIterable, ReadLimits, SourceFile
from thresher.transcripts.table import SourceFormat, find_format, format_names, transcript_formats

_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
CERTAIN = 3
MAX_LISTED_IDS = 20
"""Maximum number of ids in an error message."""


def read(
    path: str | os.PathLike[str],
    *,
    session: str | None = None,
    format: str | None = None,
    limits: ReadLimits | None = None,
) -> Session:
    """Read one session from any agent's file. If the file has several sessions, `session` must be the id of one."""
    ids = list(list_session_versions(path) or ()) if session is None and format is None else []
    if len(ids) < 2:
        is_wanted = None if session is None else session.__eq__
        sessions = read_all(path, format=format, limits=limits, is_wanted=is_wanted)
        ids = [candidate.id for candidate in sessions]
        matches = [candidate for candidate in sessions if session in (None, candidate.id)]
        if len(matches) == 1:
            return matches[0]
    if not ids:
        raise ReadError(f"`{path}` contains no session" + (f" `{session}`" if session else ""))
    listed = ", ".join(ids[:MAX_LISTED_IDS]) + (", …" if len(ids) > MAX_LISTED_IDS else "")
    problem = (
        f"contains {len(ids)} sessions" if session is None else f"does not contain exactly one session `{session}`"
    )
    raise ReadError(f"`{path}` {problem}: use `read_all(path)`, or `read(path, session=ID)` with one of {listed}")


def read_all(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    limits: ReadLimits | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> list[Session]:
    """Read all sessions in any agent's file. From a database, read only the sessions whose ids `is_wanted` accepts."""
    source = SourceFile(Path(path), limits, is_wanted)
    with _translate_failures(source.path):
        chosen = find_format(format) if format else _detect_format(source)
        return _with_foreign_lines(source, chosen, _read_sessions(source, chosen))


def list_session_versions(path: str | os.PathLike[str], *, format: str | None = None) -> Mapping[str, str] | None:
    """Map each session id in a database to a version mark that changes with the session; None for any other file."""
    source = SourceFile(Path(path))
    if not source.is_database:
        return None
    with _translate_failures(source.path):
        chosen = find_format(format) if format else _detect_format(source)
        return chosen.listed(source) if isinstance(chosen, TranscriptFormat) and chosen.listed else None


@contextmanager
def _translate_failures(path: Path) -> Iterator[None]:
    """Convert every failure of a reader into `ReadError`, so that a command that reads many files reads the others."""
    try:
        yield
    except (ThresherError, MemoryError):
        raise
    except RecursionError as error:
        raise ReadError(f"`{path}` contains values that are nested too deeply") from error
    except OSError as error:
        raise ReadError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except Exception as error:
        what = f"its reader failed with {type(error).__name__}: {error}"
        raise ReadError(f"`{path}` cannot be read: {what}; please report this problem") from error


def sniff(what: Any) -> str | None:
    """Detect the format of a file (by path) or of a value such as a request body. Return its name, or None."""
    if isinstance(what, str | os.PathLike):
        try:
            return _detect_format(SourceFile(Path(what))).name
        except ReadError:
            return None
    dialect = detect_dialect(what)
    return dialect.name if dialect else None


def _read_sessions(source: SourceFile, chosen: SourceFormat) -> list[Session]:
    return chosen.read(source) if isinstance(chosen, TranscriptFormat) else _read_dialect_sessions(source, chosen)


def _with_foreign_lines(source: SourceFile, chosen: SourceFormat, sessions: list[Session]) -> list[Session]:
    """Report the first lines that are records of another format than the one with which the file was read."""
    if not sessions or source.is_database or source.document is not None:
        return sessions
    owns = chosen.owns_line if isinstance(chosen, TranscriptFormat) else lambda _row: False
    foreign = (name for row in source.head if not owns(row) for name in _line_owners(row)[:1])
    owners = Counter(name for name in foreign if name != chosen.name)
    problems = tuple(
        Problem(f"{count} of the first lines are records of `{name}`", f"read as `{chosen.name}`", source.file)
        for name, count in owners.items()
    )
    return [replace(sessions[0], problems=(*sessions[0].problems, *problems)), *sessions[1:]] if problems else sessions


def _line_owners(row: Any) -> list[str]:
    return [candidate.name for candidate in transcript_formats() if candidate.owns_line(row)]


def _detect_format(source: SourceFile) -> SourceFormat:
    """Detect the format by the first lines: by those of the format that owns most of them, if there is one."""
    if source.is_database or source.document is not None:
        return _detect_by_head(source)
    rows = list(source.head)
    with suppress(UnknownFormatError):
        first = _detect_by_head(source)
        if isinstance(first, TranscriptFormat) and all(map(first.owns_line, rows)):
            return first  # without an import of all other formats
    owners = [_line_owners(row) for row in rows]
    counts = Counter(name for names in owners for name in names)
    for name in (name for name, count in counts.items() if 2 * count > len(rows)):
        with suppress(UnknownFormatError):
            found = _detect_by_rows(source, [row for row, names in zip(rows, owners, strict=True) if name in names])
            if found.name == name:
                return found
    rest = [row for row, names in zip(rows, owners, strict=True) if not names or 2 * counts[names[0]] >= len(rows)]
    if rest and len(rest) < len(rows):
        with suppress(UnknownFormatError):
            return _detect_by_rows(source, rest)
    return _detect_by_head(source)


def _detect_by_rows(source: SourceFile, rows: list[Any]) -> SourceFormat:
    """Detect the format as if these rows were the first lines."""
    copy = source.copy_for_session()
    copy.head = CachedIterable(iter(rows))
    return _detect_by_head(copy)


def _detect_by_head(source: SourceFile) -> SourceFormat:
    best, best_score = None, 0
    for candidate in transcript_formats():
        score = candidate.sniff(source)
        if score == CERTAIN:
            return candidate
        if score > best_score:
            best, best_score = candidate, score
    if found := best or detect_dialect(load_dialect_sample(source)):
        return found
    raise UnknownFormatError(f"`{source.path}` {_explain_unknown_format(source)}")


def _explain_unknown_format(source: SourceFile) -> str:
    """Return the likely reason why no format matches a file."""
    if source.path.stat().st_size == 0:
        return "is empty"
    if source.is_database and not source.tables:
        return "is a database that cannot be read: it is damaged or empty; get a complete copy"
    if source.document is None and source.document_problems:
        return "; ".join(f"cannot be read as a document: {problem.what}" for problem in source.document_problems)
    _, first = next(source.copy_for_session().lines(), (0, b""))
    if source.document is None and not list(source.head) and first.lstrip()[:1] in (b"{", b"["):
        return "begins like JSON, but is truncated or damaged; get a complete copy"
    return f"matches no known format ({', '.join(format_names())}). In Python, `read(path, format=…)` chooses one"


def load_dialect_sample(source: SourceFile) -> Any:
    """Return a sample for detection: the document, the first line if it is a conversation, or the first lines."""
    if source.document is not None:
        return source.document
    head = list(source.head)
    return head[0] if head and detect_dialect(head[0]) else head


def _read_dialect_sessions(source: SourceFile, chosen: Dialect) -> list[Session]:
    """Read a document as one session, or each line as one session. If the lines are messages, read one session."""
    stem = source.stem
    if source.document is not None:
        values = {stem: source.read_document()}
    else:
        rows = [(line, row) for line, _, row in source.records(_JSON_DECODER)]
        values = {f"{stem}-{line}": row for line, row in rows if chosen.sniff(row)}
        for line in (line for line, row in rows if values and f"{stem}-{line}" not in values):
            source.report(f"a line is not a conversation in the dialect `{chosen.name}`", "skipped", line)
        values = values or {stem: [row for _, row in rows]}
    sessions = [_build_dialect_session(source, chosen, value, id_) for id_, value in values.items()]
    sessions[0] = replace(sessions[0], problems=(*source.problems, *sessions[0].problems))
    return sessions


def _build_dialect_session(source: SourceFile, chosen: Dialect, value: Any, id_: str) -> Session:
    try:
        history = chosen.parse(value)
    except FormatError as error:
        raise ReadError(f"`{source.path}`: {error}") from error
    odd = [n for n, message in enumerate(history, 1) if is_nonconforming_message(message, chosen.name)]
    what = (
        f"{len(odd)} messages do not match the schema of `{chosen.name}`; the first is message {odd[0]}" if odd else ""
    )
    return Session(
        agent=chosen.name,
        id=id_,
        file=source.file,
        segments=(history,),
        records={"message": len(history)},
        title=title_from_prompt([history]),
        problems=(*((Problem(what, "kept unchanged"),) if odd else ()), *unknown_role_problems(history, "read as")),
    )
