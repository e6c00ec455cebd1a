"""The front door: read a file, parse messages, emit them again, tell what something is."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from thresher.errors import ConvertError, FormatError, ReadError, UnknownFormatError
from thresher.formats.dialect import is_odd
from thresher.formats.source import Limits, SourceFile
from thresher.formats.table import Format, find_format, format_names, transcript_formats, wire_formats
from thresher.formats.transcript import TranscriptFormat, first_prompt
from thresher.formats.wire import Emission, WireFormat
from thresher.model import History, Problem, Session

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
CERTAIN = 3


def read(
    path: str | os.PathLike[str], *, format: str | None = None, limits: Limits | None = None
) -> Session | list[Session]:
    """Read any agent's file: the session in it, or the list of them where it holds several."""
    sessions = read_all(path, format=format, limits=limits)
    return sessions[0] if len(sessions) == 1 else sessions


def read_all(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    limits: Limits | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> list[Session]:
    """Read any agent's file, always as a list; of a store of many sessions, only those whose ids are wanted."""
    source = SourceFile(Path(path), limits, is_wanted)
    chosen = find_format(format) if format else _recognise(source)
    try:
        return chosen.read(source) if isinstance(chosen, TranscriptFormat) else _wire_sessions(source, chosen)
    except RecursionError as error:
        raise ReadError(f"`{source.path}` holds values nested too deep to follow") from error


def listed(path: str | os.PathLike[str], *, format: str | None = None) -> Mapping[str, str] | None:
    """The ids in a database of many sessions, each with a mark that changes when it does; None for any other file."""
    source = SourceFile(Path(path))
    if not source.is_database:
        return None
    chosen = find_format(format) if format else _recognise(source)
    return chosen.listed(source) if isinstance(chosen, TranscriptFormat) and chosen.listed else None


def sniff(what: Any) -> str | None:
    """The name of the format that a path or a value (messages, a request body) is in, or None."""
    if isinstance(what, str | os.PathLike):
        try:
            return _recognise(SourceFile(Path(what))).name
        except ReadError:
            return None
    found = best_wire(what)
    return found.name if found else None


def parse(messages: Any, format: str | None = None) -> History:
    """Messages, or a whole request body, to a history; without a `format` it is recognised."""
    found = find_format(format) if format else best_wire(messages)
    if found is None:
        raise FormatError(
            f"cannot tell which API these messages are for; say it: format=… ({', '.join(format_names('wire'))})"
        )
    if not isinstance(found, WireFormat):
        raise FormatError(f"`{found.name}` is a transcript on disk, not a wire format: use read(path) for it")
    try:
        return found.parse(messages)
    except RecursionError as error:
        raise FormatError("these messages hold values nested too deep to follow") from error


def emission(history: History, format: str, *, body: bool | None = None) -> Emission:
    """A history in a wire format, with a word on each thing that the format cannot hold.

    `body` chooses between a request body and a plain list of messages. By default it comes as it was given; a
    list with system text or tools that the target has no place for in its list becomes a body.
    """
    found = find_format(format)
    if not isinstance(found, WireFormat):
        raise FormatError(f"`{format}` can be read, not written; write one of {', '.join(format_names('wire'))}")
    try:
        return found.emit(history, body)
    except RecursionError as error:
        raise ConvertError("this history holds values nested too deep to follow") from error


def emit(history: History, format: str, *, body: bool | None = None) -> Any:
    """A history as an API takes it: `emission` without the words."""
    return emission(history, format, body=body).value


def _recognise(source: SourceFile) -> Format:
    best, best_score = None, 0
    for one in transcript_formats():
        score = one.sniff(source)
        if score == CERTAIN:
            return one
        if score > best_score:
            best, best_score = one, score
    if best:
        return best
    wire = best_wire(wire_value(source))
    if wire:
        return wire
    raise UnknownFormatError(f"`{source.path}` {_trouble(source)}")


def _trouble(source: SourceFile) -> str:
    """Why nobody knows a file, as far as a look at it tells."""
    if source.path.stat().st_size == 0:
        return "is empty"
    if source.is_database and not source.tables:
        return "is a database that cannot be read: it is damaged, or empty; get it whole"
    _, first = next(source.apart().lines(), (0, b""))
    if source.document is None and not list(source.head) and first.lstrip()[:1] in (b"{", b"["):
        return "begins like JSON, and is cut off or damaged; get it whole"
    return f"is in no format known here ({', '.join(format_names())}); `read(path, format=…)` insists"


def best_wire(value: Any) -> WireFormat | None:
    """The wire format that is surest of a value, if one is."""
    scored = [(one.sniff(value), one) for one in wire_formats()]
    score, best = max(scored, key=lambda pair: pair[0])
    return best if score else None


def wire_value(source: SourceFile) -> Any:
    """What to look at: the document, the first of many conversations, or the lines as messages."""
    if source.document is not None:
        return source.document
    head = list(source.head)
    return head[0] if head and best_wire(head[0]) else head


def _wire_sessions(source: SourceFile, chosen: WireFormat) -> list[Session]:
    """One conversation a document, a line, or (where the lines are messages) a file."""
    stem = source.path.name.split(".")[0]
    if source.document is not None:
        values = {stem: source.take_document()}
    else:
        rows = [(line, row) for line, _, row in source.rows(_ANY)]
        values = {f"{stem}-{line}": row for line, row in rows if chosen.sniff(row)}
        for line in (line for line, row in rows if values and f"{stem}-{line}" not in values):
            source.problem(f"a line is no conversation in the format `{chosen.name}`", "skipped", line)
        values = values or {stem: [row for _, row in rows]}
    sessions = [_wire_session(source, chosen, value, id_) for id_, value in values.items()]
    sessions[0] = structs.replace(sessions[0], problems=(*source.problems, *sessions[0].problems))
    return sessions


def _wire_session(source: SourceFile, chosen: WireFormat, value: Any, id_: str) -> Session:
    try:
        history = chosen.parse(value)
    except FormatError as error:
        raise ReadError(f"`{source.path}`: {error}") from error
    odd = [n for n, message in enumerate(history, 1) if is_odd(message, chosen.name)]
    told = f"{len(odd)} messages are not as `{chosen.name}` has them, the first is {odd[0]}" if odd else ""
    return Session(
        agent=chosen.name,
        id=id_,
        file=str(source.path),
        segments=(history,),
        records={"message": len(history)},
        title=first_prompt([history]),
        problems=(Problem(told, "kept whole"),) if told else (),
    )
