"""Output and progress, shared by all commands.

Everything that a command prints goes through this module, which makes it safe for a terminal: ids, names, titles and
messages come from transcripts and other files. Control codes are removed, and brackets are never parsed as markup.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from thresher.errors import ConvertError, OptionError
from thresher.model.jsontext import dump_json
from thresher.render.text import escape_json_controls, strip_control_codes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderResult
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from thresher.render.memory import StyledLine
    from thresher.render.screen import ScreenSize

ItemT = TypeVar("ItemT")
PIPED_WIDTH = 160
"""Width of a table in a pipe, in characters: wide, because a pipe does not wrap lines."""
PIPED_HEIGHT = 40
"""Height of a screen in a pipe, in lines."""
INTERRUPTED_EXIT_CODE = 130
"""The usual exit code of a program that Ctrl-C stopped."""
JSON_SCHEMA = 1
"""Version of the keys in every `--json` output. Renaming or removing a key increments it; adding one does not."""
MIN_TRACKED_ITEMS = 20
"""Minimum number of items for a progress bar. Reading fewer items takes less time than importing the bar."""


def program_name() -> str:
    """Return the command that printed examples use: `thresher` if that starts this program, otherwise its path."""
    command = sys.argv[0]
    installed = shutil.which("thresher")
    return "thresher" if installed and Path(installed).resolve() == Path(command).resolve() else command


def print_output(value: Mapping[str, Any]) -> None:
    """Print the `--json` output of a command, with the schema version."""
    print_json({"schema": JSON_SCHEMA, **value})


def print_json(value: Any) -> None:
    """Print one JSON value: indented on a terminal, compact in a pipe."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False) if sys.stdout.isatty() else dump_json(value)
    click.echo(escape_json_controls(text).encode("utf-8", "replace"))


def print_text(text: str, *, to_stderr: bool = False) -> None:
    """Print text and a line break, without control codes."""
    click.echo(strip_control_codes(text).encode("utf-8", "replace"), err=to_stderr)


def print_content(text: str) -> None:
    """Print the content of a file or of a part: unchanged in a pipe, and without control codes on a terminal."""
    content = strip_control_codes(text).encode() if sys.stdout.isatty() else text.encode("utf-8", "surrogatepass")
    click.echo(content, nl=False)


class SafeRenderable:
    """A value to print with rich, without the control codes in its text. Rich adds the codes for styles later."""

    def __init__(self, value: "RenderableType") -> None:
        """Wrap the value."""
        self.value = value

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Yield the value's segments with safe text."""
        for segment in console.render(self.value, options):
            yield segment if segment.control else segment._replace(text=strip_control_codes(segment.text))


class SafeRenderHook:
    """A hook of rich that makes everything safe that a console prints."""

    def process_renderables(self, renderables: "list[ConsoleRenderable]") -> "list[ConsoleRenderable]":
        """Wrap each value."""
        return [SafeRenderable(value) for value in renderables]


def make_console(pager: "IO[str] | None" = None) -> "Console":
    """Return a console on standard output, or on the input of a pager."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    if pager is not None:
        width = shutil.get_terminal_size().columns
    is_terminal = True if pager is not None else None
    console = Console(
        file=pager, width=width, force_terminal=is_terminal, highlight=False, soft_wrap=False, markup=False, emoji=False
    )
    console.push_render_hook(SafeRenderHook())  # type: ignore[arg-type]  # rich declares a base class, and is imported late
    return console


@contextmanager
def paged_console() -> "Iterator[Console]":
    """Yield a console. A terminal shows its output in a pager: `$PAGER`, or `less`, which ends if it fits the screen.

    An agent's terminal gets no pager. The context ends early, without an error, when the user closes the pager.
    """
    command = shlex.split(os.environ.get("PAGER", "less")) if _has_reader() else []
    program = shutil.which(command[0]) if command else None
    if program is None:
        yield make_console()
        return
    environment = {"LESS": "FRX", **os.environ}  # as git does: end if it fits, keep the colors and the screen
    with subprocess.Popen([program, *command[1:]], stdin=subprocess.PIPE, encoding="utf-8", env=environment) as process:
        console = make_console(process.stdin)
        console.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]  # rich would exit with 1
        with suppress(BrokenPipeError):
            yield console
        with suppress(BrokenPipeError):
            process.communicate()
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # a key of the pager, too
                process.wait()


def _has_reader() -> bool:
    """Return whether a person reads the output. An agent that runs commands in a terminal never closes a pager."""
    from thresher.memory.host_session import find_current_session, is_inside_agent

    has_agent = is_inside_agent(os.environ) or find_current_session(os.environ)
    return sys.stdout.isatty() and sys.stdin.isatty() and not has_agent


def _raise_broken_pipe() -> NoReturn:
    raise BrokenPipeError


def print_renderables(pieces: "Iterable[RenderableType]") -> None:
    """Print tables and styled text."""
    console = make_console()
    for piece in pieces:
        console.print(piece)


def print_hint(text: str) -> None:
    """Print a line in the dim style of a hint."""
    make_console().print(text, style="dim")


def warn(text: str) -> None:
    """Print a line on standard error."""
    print_text(text, to_stderr=True)


def screen_size() -> "ScreenSize":
    """Return the size of the terminal, or what a pipe gets instead of a screen."""
    from thresher.render.screen import ScreenSize

    if not sys.stdout.isatty():
        return ScreenSize(PIPED_HEIGHT, PIPED_WIDTH)
    size = shutil.get_terminal_size()
    return ScreenSize(size.lines, size.columns)


def print_lines(lines: "Iterable[StyledLine]", *, paged: bool = False) -> None:
    """Print lines with color on a terminal, in a pager if `paged`.

    In a pipe, print plain text and skip the slow import of `rich`.
    """
    if not sys.stdout.isatty():
        rows = "".join(f"{line.text}\n" for line in lines)
        click.echo(strip_control_codes(rows).encode("utf-8", "replace"), nl=False)
        return
    from rich.text import Text

    with paged_console() if paged else nullcontext(make_console()) as console:
        for line in lines:
            text = Text.assemble(*line.spans)
            if line.no_wrap or not line.hanging_indent:
                console.print(text, soft_wrap=line.no_wrap)
            else:
                _print_wrapped(console, text, line.hanging_indent)


def print_result(value: Mapping[str, Any], lines: "Iterable[StyledLine]", *, as_json: bool) -> None:
    """Print `value` as JSON if `as_json` is true, otherwise print `lines`, which may be a generator."""
    if as_json:
        print_output(value)
    else:
        print_lines(lines)


def _print_wrapped(console: "Console", text: "Text", indent: int) -> None:
    rows = text[indent:].wrap(console, max(console.width - indent, 20))
    for number, row in enumerate(rows):
        console.print((console.render_str(" " * indent) if number else text[:indent]) + row, soft_wrap=True)


def write_output_file(output: Path, text: str, source: str = "", *, errors: str = "replace") -> None:
    """Write the output file, and refuse to overwrite `source`, the file that the command reads."""
    try:
        if source and output.exists() and output.samefile(source):
            raise ConvertError(f"`{output}` is the input file; choose another output file")
        output.write_bytes(text.encode("utf-8", errors))
    except OSError as error:
        raise ConvertError(f"cannot write `{output}`: {error.strerror or error}; choose another path") from error


def check_writable(output: Path) -> None:
    """Raise `OptionError` if a file cannot be written. Called before long work, so that its result is not lost."""
    folder = output.parent
    if not folder.is_dir():
        raise OptionError(
            f"cannot write `{output}`: folder `{folder}` does not exist; create it or choose another path"
        )
    if not os.access(output if output.exists() else folder, os.W_OK) or output.is_dir():
        raise OptionError(f"cannot write `{output}`: no permission; choose another path")


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit with a message when Ctrl-C stops work that the same command can resume."""
    try:
        yield
    except KeyboardInterrupt:
        warn("Interrupted. Run the same command to resume.")
        sys.exit(INTERRUPTED_EXIT_CODE)


@contextmanager
def progress_bar(
    label: str, *, percent: bool = False, console: "Console | None" = None
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback `(done, total)` that updates a bar on standard error, or None without a terminal.

    If `percent` is true, the bar shows a percentage instead of the counts, which mean little if they are bytes. The bar
    starts with the first call of the callback, because the import is slow and short work makes no call.
    """
    if console is None and not sys.stderr.isatty():
        yield None
        return
    started: list[tuple[Progress, TaskID]] = []

    def update(done: int, total: int) -> None:
        if not started:
            started.append(_start_bar(label, total, console, percent=percent))
        bar, task = started[0]
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        for bar, _ in started:
            bar.stop()


def _start_bar(label: str, total: int, console: "Console | None", *, percent: bool) -> "tuple[Progress, TaskID]":
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn(label),
        progress.BarColumn(),
        progress.TaskProgressColumn() if percent else progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left:"),
        progress.TimeRemainingColumn(),
        console=console or Console(stderr=True),
        transient=True,
    )
    bar.start()
    return bar, bar.add_task("", total=total)


def track_progress(items: Sequence[ItemT], label: str) -> Iterator[ItemT]:
    """Iterate over the items, with a progress bar if there are many."""
    if len(items) < MIN_TRACKED_ITEMS:
        yield from items
        return
    with progress_bar(label) as update:
        for done, item in enumerate(items, 1):
            yield item
            if update is not None:
                update(done, len(items))
