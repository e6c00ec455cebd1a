"""Determine the file effects of a shell command, certain or possible.

The parser runs nothing and looks up nothing: it knows programs by name. Certain effects (a literal heredoc into a file,
`rm`, `mv`) are distinguished from possible ones (`sed -i`, a formatter, `git checkout`, a script), which only make a
file's text unknown. An unknown program may write any file in its arguments.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from thresher.model.paths import normalize_path
from thresher.timeline.programs import (
    CHANGING_TASK,
    DEPENDENCY_TASKS,
    FORMATTER_OPTIONS,
    GIT_ANY_FILE_COMMANDS,
    INTERPRETERS,
    KEYWORDS,
    MANIFESTS,
    PREFIXES,
    READ_ONLY_PROGRAMS,
    RUNNERS,
    WRAPPERS,
    WRITING_CODE,
)
from thresher.timeline.shell_parser import ShellWord, SimpleCommand, parse_simple_commands


class CommandTarget(NamedTuple):
    """A file, a folder or a pattern in the arguments of a command."""

    path: str
    """The full path, if the working folder is known."""
    written_path: str
    is_pattern: bool = False


class WriteEffect(NamedTuple):
    """Write a text to a file or append it. The text is None if it is unknown."""

    target: CommandTarget
    text: str | None
    append: bool


class ModifyEffect(NamedTuple):
    """Change a file in an unknown way."""

    target: CommandTarget


class DeleteEffect(NamedTuple):
    """Delete a file, or everything below a folder."""

    target: CommandTarget


class MoveEffect(NamedTuple):
    """Move or copy files."""

    targets: tuple[CommandTarget, ...]
    to: CommandTarget
    into_folder: bool
    """True if `to` is certainly a folder."""
    is_copy: bool = False


class UncertainEffect(NamedTuple):
    """A file may have changed."""

    target: CommandTarget
    or_any_file: bool = False
    """True if any file may have changed when the target matches no known file."""


class MentionEffect(NamedTuple):
    """Files that a text mentions may have changed."""

    text: str


class ScriptEffect(NamedTuple):
    """A script runs: files that the script or its arguments mention may have changed."""

    target: CommandTarget
    arguments: str


class AnyFileEffect(NamedTuple):
    """Any file may have changed."""


class OutputDependentEffect(NamedTuple):
    """Any file may have changed if the output of the command indicates it."""


ShellEffect = (
    WriteEffect
    | ModifyEffect
    | DeleteEffect
    | MoveEffect
    | UncertainEffect
    | MentionEffect
    | ScriptEffect
    | AnyFileEffect
    | OutputDependentEffect
)


class WorkingFolder:
    """The working folder of a command; empty if unknown."""

    def __init__(self, folder: str) -> None:
        """Start in a folder."""
        self.folder = folder

    def resolve_target(self, word: ShellWord) -> CommandTarget:
        """Return the target of an argument, relative to this folder."""
        return CommandTarget(normalize_path(word.text, self.folder), normalize_path(word.text), word.is_pattern)

    def change_folder(self, words: Sequence[ShellWord]) -> None:
        """Apply `cd`. The folder becomes unknown if its name needs shell expansion."""
        word = words[0] if words else ShellWord("~", is_literal=True)
        self.folder = normalize_path(word.text, self.folder) if word.is_literal and word.text != "-" else ""


def parse_shell_effects(command: str, folder: str) -> Iterator[tuple[ShellEffect, bool]]:
    """Yield the effects of a command in order, each with True unless it follows `||` and so may not happen."""
    working_folder = WorkingFolder(folder)
    for simple in parse_simple_commands(command):
        for effect in _command_effects(simple, working_folder):
            yield effect, simple.operator != "||"


def _command_effects(simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:
    name, words = _program(simple.words)
    for sign, word in simple.outputs if name not in ("[[", "test") else ():
        if not word.is_literal or word.is_pattern:
            yield AnyFileEffect()
        elif not word.text.startswith("/dev/"):
            yield WriteEffect(folder.resolve_target(word), _printed_text(name, words, simple), append=sign == ">>")
    if name in ("cd", "pushd"):
        folder.change_folder(words)
    elif name in _PROGRAMS:
        yield from _PROGRAMS[name](words, simple, folder)
    elif name in INTERPRETERS:
        yield from _interpreter(words, simple, folder)
    elif name in FORMATTER_OPTIONS:
        options = FORMATTER_OPTIONS[name]
        if options is None or any(word.text in options for word in words):
            yield from _formatter_effects(words, folder)
    elif name in RUNNERS:
        yield from _task(name, words)
    elif name and name not in READ_ONLY_PROGRAMS:
        yield MentionEffect(" ".join(word.text for word in words))


def _program(words: Sequence[ShellWord]) -> tuple[str, list[ShellWord]]:
    """Return the program's name and its arguments, without wrappers such as `sudo` or `npx`."""
    rest = list(words)
    while rest:
        text = rest[0].text
        name = re.split(r"[/\\]", text)[-1]
        if text in KEYWORDS or re.match(r"[A-Za-z_]\w*\+?=", text) or name in PREFIXES:
            rest = rest[1:]
        elif (name, *(word.text for word in rest[1:2])) in WRAPPERS:
            rest = rest[2:]
        elif (name,) in WRAPPERS:
            rest = [word for folder, word in enumerate(rest[1:]) if folder or not word.text.startswith("-")]
        elif re.fullmatch(r"python[\d.]*", name) and len(rest) > 2 and rest[1].text == "-m":
            rest = rest[2:]
        else:
            return re.sub(r"(?<=python)[\d.]+$|\.exe$", "", name), rest[1:]
    return "", []


def _positional_arguments(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return the arguments that are not options."""
    return [word for word in words if not word.text.startswith("-")]


def _printed_text(name: str, words: Sequence[ShellWord], simple: SimpleCommand) -> str | None:
    """Return the output of a command, or None if the command line does not determine it."""
    if name == "cat" and not words and simple.heredoc is not None and simple.is_heredoc_literal:
        return simple.heredoc
    if name == "echo" and all(word.is_literal and not word.is_pattern and "\\" not in word.text for word in words):
        return None if words and words[0].text.startswith("-") else " ".join(word.text for word in words) + "\n"
    return "" if name in ("", ":") and not words else None


def _is_plain(word: ShellWord) -> bool:
    return word.is_literal and "{" not in word.text


def _file_effects(
    words: Sequence[ShellWord], folder: WorkingFolder, make: Callable[[CommandTarget], ShellEffect]
) -> Iterator[ShellEffect]:
    return (make(folder.resolve_target(word)) if _is_plain(word) else AnyFileEffect() for word in words)


def _formatter_effects(words: Sequence[ShellWord], folder: WorkingFolder) -> Iterator[ShellEffect]:
    files = [word for word in _positional_arguments(words) if re.search(r"[./*]", word.text) or not word.is_literal]
    yield from _file_effects(files, folder, UncertainEffect) if files else (AnyFileEffect(),)


def _tee(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:
    append = any(word.text in ("-a", "--append") for word in words)
    text = simple.heredoc if simple.is_heredoc_literal else None
    for word in _positional_arguments(words):
        if not word.is_literal or word.is_pattern:
            yield AnyFileEffect()
        elif not word.text.startswith("/dev/"):
            yield WriteEffect(folder.resolve_target(word), text, append)


def _sed(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    if not any(re.match(r"-[a-zA-Z]*i|--in-place", word.text) for word in words):
        return
    rest: list[ShellWord] = []
    has_script = is_script = False
    for word in words:
        if is_script or re.match(r"-[a-zA-Z]*[ef]$|--expression|--file", word.text):
            has_script, is_script = True, not is_script and "=" not in word.text
        elif word.text and not word.text.startswith("-"):
            rest.append(word)
    yield from _file_effects(rest if has_script else rest[1:], folder, ModifyEffect)


def _perl(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:
    if any(re.match(r"-\w*i", word.text) for word in words):
        yield from _sed(words, simple, folder)
    else:
        yield from _interpreter(words, simple, folder)


def _rm(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    yield from _file_effects(_positional_arguments(words), folder, DeleteEffect)


def _mv(words: Sequence[ShellWord], folder: WorkingFolder, *, copies: bool) -> Iterator[ShellEffect]:
    named = _positional_arguments(words)
    if len(named) < 2:
        return
    if not all(map(_is_plain, named)):
        yield AnyFileEffect()
        return
    *sources, to = named
    is_folder = to.text.endswith("/") or to.text in (".", "..")
    into_folder = is_folder or len(sources) > 1 or any(word.is_pattern for word in sources)
    yield MoveEffect(tuple(map(folder.resolve_target, sources)), folder.resolve_target(to), into_folder, copies)


def _find(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    arguments = " ".join(word.text for word in words)
    if re.search(r"-delete\b|-exec(?:dir)?\s+(?:rm|mv|sed\s+-\w*i|perl\s+-\w*i|sh|bash)\b", arguments):
        yield AnyFileEffect()


def _xargs(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    if not any(word.text in READ_ONLY_PROGRAMS for word in words) or any(word.text.startswith("-i") for word in words):
        yield AnyFileEffect()


def _fetch(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    for option, word in pairwise(words):
        is_output = option.text in ("-o", "-O", "--output", "--output-document")
        if is_output and word.is_literal and not word.text.startswith("-"):
            yield WriteEffect(folder.resolve_target(word), None, append=False)


def _any_file(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    yield AnyFileEffect()


def _interpreter(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:
    """Yield the effects of inline code or of a script."""
    code = [simple.heredoc] if simple.heredoc is not None else []
    code += [word.text for option, word in pairwise(words) if re.match(r"-\w*[ce]$|--eval", option.text)]
    yield from (MentionEffect(text) for text in code if WRITING_CODE.search(text))
    script = next(iter(_positional_arguments(words)), None)
    if script is not None and re.fullmatch(r"[\w:-]+", script.text) and not code:
        yield from _task("", words)  # `bun test`, `deno fmt`: not a script name
    elif not code and script is not None and all(word.text != "-n" for word in words):
        arguments = " ".join(word.text for word in words if word is not script)
        yield ScriptEffect(folder.resolve_target(script), arguments)


def _task(name: str, words: Sequence[ShellWord]) -> Iterator[ShellEffect]:
    """Yield the effects of a project task, judged by its name, or of a dependency change."""
    tasks = [word.text for word in words if word.text not in ("run", "exec", "--")]
    if name in MANIFESTS and tasks and tasks[0] in DEPENDENCY_TASKS:
        yield MentionEffect(MANIFESTS[name])
    else:
        yield AnyFileEffect() if CHANGING_TASK.search(" ".join(tasks)) else OutputDependentEffect()


def _git(words: Sequence[ShellWord], simple: SimpleCommand, folder: WorkingFolder) -> Iterator[ShellEffect]:
    rest = list(words)
    while rest and rest[0].text.startswith("-"):
        if rest[0].text == "-C" and len(rest) > 1:
            folder = WorkingFolder(folder.folder)
            folder.change_folder(rest[1:])
        rest = rest[2 if rest[0].text in ("-C", "-c") else 1 :]
    command, rest = (rest[0].text, rest[1:]) if rest else ("", [])
    options = {word.text for word in rest if word.text.startswith("-")}
    if command == "mv":
        yield from _mv(rest, folder, copies=False)
    elif command == "rm" and "--cached" not in options:
        yield from _rm(rest, simple, folder)
    elif command in ("checkout", "restore"):
        yield from _checkout(command, rest, options, folder)
    elif GIT_ANY_FILE_COMMANDS.match(" ".join([command, *(word.text for word in rest)])):
        yield AnyFileEffect()
    elif command in ("commit", "push"):
        yield OutputDependentEffect()


def _checkout(
    command: str, rest: Sequence[ShellWord], options: set[str], folder: WorkingFolder
) -> Iterator[ShellEffect]:
    texts = [word.text for word in rest]
    plain = _positional_arguments(rest)
    if command == "restore" and "--staged" in options and "--worktree" not in options:
        return
    if options & {"-b", "-B", "--orphan"} and len(plain) < 2:
        return  # a new branch changes no file
    if "--" in texts:
        yield from _file_effects(rest[texts.index("--") + 1 :], folder, UncertainEffect)
    else:
        files = plain[-1:] if command == "checkout" else plain
        yield from _file_effects(files, folder, lambda target: UncertainEffect(target, or_any_file=True))


_PROGRAMS: dict[str, Callable[[Sequence[ShellWord], SimpleCommand, WorkingFolder], Iterator[ShellEffect]]] = {
    "tee": _tee,
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    "rm": _rm,
    "unlink": _rm,
    "mv": lambda words, _, folder: _mv(words, folder, copies=False),
    "cp": lambda words, _, folder: _mv(words, folder, copies=True),
    "find": _find,
    "xargs": _xargs,
    "curl": _fetch,
    "wget": _fetch,
    "patch": _any_file,
    "git": _git,
}
