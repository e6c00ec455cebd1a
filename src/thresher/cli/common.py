"""What the verbs share: where to look for sessions, how to print, how to show progress."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from thresher.errors import ConvertError, OptionError, ReadError, UnknownFormatError
from thresher.model import Session
from thresher.model.jsontext import dump_json
from thresher.render.text import plural
from thresher.transcripts import discover, files_below, format_names, read_all

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from thresher.memory import Memory
    from thresher.render.memory import StyledLine

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
PIPED_WIDTH = 160
INTERRUPTED_EXIT_CODE = 130
"""The exit code of what was stopped by Ctrl-C."""
JSON_SCHEMA = 1
"""Version of the keys in every `--json` output: it grows when a key is renamed or removed, not when one is added."""
SLOW_SYNC_SECONDS = 2.0
"""Seconds of a sync that is worth a word."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print data, nothing else, on standard output.")


def source_options(command: CommandT) -> CommandT:
    """Where to look for sessions."""
    source = click.option(
        "--source",
        "sources",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        help="Another file or folder to read; may be given several times.",
    )
    leave_out = click.option("--no-discover", is_flag=True, help="Leave out the agents' own folders on this machine.")
    return source(leave_out(command))


def program_name() -> str:
    """How this program is called here: by its name where that works, else as it was."""
    called = sys.argv[0]
    found = shutil.which("thresher")
    return "thresher" if found and Path(found).resolve() == Path(called).resolve() else called


def print_output(value: Mapping[str, Any]) -> None:
    """Print what a command gives for `--json`, with the number of the keys' version."""
    print_json({"schema": JSON_SCHEMA, **value})


def print_json(value: Any) -> None:
    """One JSON value on standard output, pretty for a person, whole for a program."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False) if sys.stdout.isatty() else dump_json(value)
    click.echo(text.encode("utf-8", "replace"))


def make_console() -> "Console":
    """Standard output for a person; wide when piped, since nothing wraps there."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


def warn(text: str) -> None:
    """A word on standard error."""
    click.echo(text, err=True)


def print_lines(lines: "Iterable[StyledLine]") -> None:
    """Lines for a person, in colour; into a pipe as they are, and without what colours would take to load."""
    if not sys.stdout.isatty():
        click.echo("".join(f"{line.text}\n" for line in lines).encode("utf-8", "replace"), nl=False)
        return
    from rich.text import Text

    out = make_console()
    for line in lines:
        text = Text.assemble(*line.spans)
        if line.no_wrap or not line.hanging_indent:
            out.print(text, soft_wrap=line.no_wrap)
        else:
            _print_wrapped(out, text, line.hanging_indent)


def _print_wrapped(out: "Console", text: "Text", hang: int) -> None:
    """A line whose later rows, where it wraps, start further in."""
    room = max(out.width - hang, 20)
    for number, row in enumerate(text[hang:].wrap(out, room)):
        out.print((text[:hang] if not number else out.render_str(" " * hang)) + row, soft_wrap=True)


def write_output_file(output: Path, text: str, source: str = "", *, errors: str = "replace") -> None:
    """Write a file that the user named; never the one that was read."""
    try:
        if source and output.exists() and output.samefile(source):
            raise ConvertError(f"`{output}` is the file that is being read; name another one")
        output.write_bytes(text.encode("utf-8", errors))
    except OSError as error:
        raise ConvertError(f"`{output}` cannot be written: {error.strerror or error}; name another place") from error


def check_writable(output: Path) -> None:
    """Say before a long work, not after it, that its result could not be written there."""
    folder = output.parent
    if not folder.is_dir():
        raise OptionError(f"`{output}` cannot be written: there is no folder `{folder}`; name another place")
    if not os.access(output if output.exists() else folder, os.W_OK) or output.is_dir():
        raise OptionError(f"`{output}` cannot be written; name another place")


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """A long work that keeps what is done: whoever stops it is told that it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        warn("stopped; the same command goes on where it was")
        sys.exit(INTERRUPTED_EXIT_CODE)


@contextmanager
def progress_bar(what: str, *, percent: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error where a person is watching; takes how much is done, and of how much.

    With `percent` it shows the share alone: of bytes, or of what nobody counts, the numbers say nothing.
    """
    if not sys.stderr.isatty():
        yield None
        return
    shown: list[tuple[Progress, TaskID]] = []

    def update(done: int, total: int) -> None:
        if not shown:  # most often there is nothing to wait for, and a bar takes long to load
            shown.append(_start_bar(what, total, percent=percent))
        bar, task = shown[0]
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        for bar, _ in shown:
            bar.stop()


def _start_bar(what: str, total: int, *, percent: bool) -> "tuple[Progress, TaskID]":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn() if percent else MofNCompleteColumn(), *times)
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task("", total=total)


def sync_before_search(memory: "Memory") -> None:
    """Read what is new before something is looked for, and say what may be missing."""
    with exit_on_interrupt(), progress_bar("reading", percent=True) as progress:
        report, notes = memory.refresh(progress=progress)
    for note in notes:
        warn(f"thresher: {note}")
    if report.seconds > SLOW_SYNC_SECONDS:
        warn(f"read {report.messages:,} new messages in {report.seconds:.1f} s")
    if report.forgotten:
        warn(f"forgot {plural(report.forgotten, 'session')} older than the retention")
    if report.failed:
        warn(f"not readable, so not searched: {len(report.failed):,} of the files; `thresher sync` names them")


def session_dialect(session: Session) -> str | None:
    """The wire format that a session was recorded in, if it is one."""
    return session.agent if session.agent in format_names("wire") else None


def find_session_files(paths: Sequence[Path], sources: Sequence[Path], *, no_discover: bool) -> list[Path]:
    """The files to read: those named, or else all that this machine and the sources hold."""
    found: dict[Path, None] = {}
    if not paths and not no_discover:
        found.update(dict.fromkeys(one.path for one in discover()))
    for path in [*paths, *sources]:
        found.update(dict.fromkeys(map(Path, files_below(path))))
    return list(found)


def read_sessions(
    files: Sequence[Path], *, named: Sequence[Path] = (), is_wanted: Callable[[str], bool] | None = None
) -> tuple[list[Session], list[str]]:
    """Every session in the files, and a sentence for each file that could not be read.

    Of a store of many sessions, only those whose ids are wanted are read. A file that was not named but only met in a
    folder may be anything. A sub-agent's file is listed with its parent, not beside it.
    """
    sessions: list[Session] = []
    failures: list[str] = []
    for path in with_progress(files, "reading"):
        try:
            sessions += read_all(path, is_wanted=is_wanted)
        except UnknownFormatError as error:
            failures += [str(error)] if path in named else []
        except ReadError as error:
            failures.append(str(error))
    children = {child.file for session in sessions for child in session.children if child.file != session.file}
    return [session for session in sessions if session.file not in children], failures


def with_progress(items: Sequence[Path], what: str) -> Iterable[Path]:
    """The items, with a bar on standard error where a person is watching and it may take a while."""
    if len(items) < 20 or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, console=Console(stderr=True), transient=True)


def find_session(reference: str, sources: Sequence[Path], *, no_discover: bool, reveal: bool = False) -> Session:
    """The session that a path or the start of an id names; a whole id is never taken for the start of another.

    One that is in no file any more comes from memory's archive: without its secrets, unless they are to be revealed.
    """
    path = Path(reference)
    if path.is_file():
        return _require_single(read_all(path), reference, f"`ID --source {reference}` names one")
    from thresher.cli.archive import find_archived_session

    files = find_session_files((), sources, no_discover=no_discover)
    if matching := _find_by_id_prefix(reference, [file for file in files if reference in file.name]):
        return _require_single(matching, reference, "say more of the id")
    kept = find_archived_session(reference)
    if kept is not None and not Path(kept.file).exists():  # else every file is read before that is known
        return _report_archived(kept, "its file is gone", reveal=reveal)
    if matching := _find_by_id_prefix(reference, files):
        return _require_single(matching, reference, "say more of the id")
    if kept is not None:
        return _report_archived(kept, "no file that was looked at holds it", reveal=reveal)
    among = plural(len(files), "file")
    raise ReadError(f"no file and no session is called `{reference}` among {among}; `thresher sessions` lists them")


def _find_by_id_prefix(reference: str, files: Sequence[Path]) -> list[Session]:
    """Sessions in the files whose ids begin like that; only those with that id, if there are any."""
    sessions, _ = read_sessions(files, is_wanted=lambda id: id.startswith(reference))
    family = [one for session in sessions for one in (session, *session.children)]
    matching = [session for session in family if session.id.startswith(reference)]
    return [session for session in matching if session.id == reference] or matching


def _report_archived(session: Session, why: str, *, reveal: bool) -> Session:
    from thresher.memory.ingest.session_redaction import redact_session

    warn(f"(from the archive: {why}{'' if reveal else '; secrets are redacted'})")
    return session if reveal else redact_session(session)


def _require_single(sessions: Sequence[Session], reference: str, hint: str) -> Session:
    if len(sessions) == 1:
        return sessions[0]
    ids = ", ".join(session.id for session in sessions[:10]) + (", …" if len(sessions) > 10 else "")
    raise ReadError(f"`{reference}` could be {len(sessions)} sessions: {ids}; {hint}")
