"""Determine the file effects of a shell command, certain or possible.

Nothing runs and nothing is looked up: programs are known by name. Certain effects (a literal heredoc into a file, `rm`,
`mv`) are distinguished from possible ones (`sed -i`, a formatter, `git checkout`, a script), which only make a file's
text unknown. An unknown program may write any file in its arguments.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from thresher.model.paths import normalize_path
from thresher.timeline.programs import (
    CHANGING_TASK,
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
    """Write or append a text. It is None if it is unknown."""

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
    """`to` is certainly a folder."""
    is_copy: bool = False


class UncertainEffect(NamedTuple):
    """A file may have changed."""

    target: CommandTarget
    or_any_file: bool = False
    """If no such file is known, the argument may mean something else, and any file may have changed."""


class MentionEffect(NamedTuple):
    """Files that are mentioned in a text may have changed."""

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
    """Yield the effects of a command in order, each with whether it certainly runs."""
    place = WorkingFolder(folder)
    for simple in parse_simple_commands(command):
        for effect in _command_effects(simple, place):
            yield effect, simple.operator != "||"


def _command_effects(simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:
    name, words = _program(simple.words)
    for sign, word in simple.outputs if name not in ("[[", "test") else ():
        if not word.is_literal or word.is_pattern:
            yield AnyFileEffect()
        elif not word.text.startswith("/dev/"):
            yield WriteEffect(place.resolve_target(word), _printed_text(name, words, simple), append=sign == ">>")
    if name in ("cd", "pushd"):
        place.change_folder(words)
    elif name in _PROGRAMS:
        yield from _PROGRAMS[name](words, simple, place)
    elif name in INTERPRETERS:
        yield from _interpreter(words, simple, place)
    elif name in FORMATTER_OPTIONS:
        if FORMATTER_OPTIONS[name] is None or any(word.text in (FORMATTER_OPTIONS[name] or ()) for word in words):
            yield from _formatter_effects(words, place)
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
            rest = [word for place, word in enumerate(rest[1:]) if place or not word.text.startswith("-")]
        elif re.fullmatch(r"python[\d.]*", name) and len(rest) > 2 and rest[1].text == "-m":
            rest = rest[2:]
        else:
            return re.sub(r"(?<=python)[\d.]+$|\.exe$", "", name), rest[1:]
    return "", []


def _positional_arguments(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return the arguments that are not options."""
    return [word for word in words if not word.text.startswith("-")]


def _printed_text(name: str, words: Sequence[ShellWord], simple: SimpleCommand) -> str | None:
    """Return the output of a command, if it is evident."""
    if name == "cat" and not words and simple.heredoc is not None and simple.is_heredoc_literal:
        return simple.heredoc
    if name == "echo" and all(word.is_literal and not word.is_pattern and "\\" not in word.text for word in words):
        return None if words and words[0].text.startswith("-") else " ".join(word.text for word in words) + "\n"
    return "" if name in ("", ":") and not words else None


def _uncertain_files(
    words: Sequence[ShellWord], place: WorkingFolder, *, else_all: bool = False
) -> Iterator[ShellEffect]:
    for word in words:
        yield (
            UncertainEffect(place.resolve_target(word), else_all)
            if word.is_literal and "{" not in word.text
            else AnyFileEffect()
        )


def _formatter_effects(words: Sequence[ShellWord], place: WorkingFolder) -> Iterator[ShellEffect]:
    files = [word for word in _positional_arguments(words) if re.search(r"[./*]", word.text) or not word.is_literal]
    yield from _uncertain_files(files, place) if files else (AnyFileEffect(),)


def _tee(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:
    append = any(word.text in ("-a", "--append") for word in words)
    text = simple.heredoc if simple.is_heredoc_literal else None
    for word in _positional_arguments(words):
        if not word.text.startswith("/dev/"):
            yield (
                WriteEffect(place.resolve_target(word), text, append)
                if word.is_literal and not word.is_pattern
                else AnyFileEffect()
            )


def _sed(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    in_place = [word.text for word in words if re.match(r"-[a-zA-Z]*i|--in-place", word.text)]
    if not in_place:
        return
    rest: list[ShellWord] = []
    scripted = False
    skip = False
    for word in words:
        if skip or re.match(r"-[a-zA-Z]*[ef]$|--expression|--file", word.text):
            scripted, skip = True, not skip and "=" not in word.text
        elif word.text and not word.text.startswith("-"):
            rest.append(word)
    for word in rest if scripted else rest[1:]:
        yield ModifyEffect(place.resolve_target(word)) if word.is_literal and "{" not in word.text else AnyFileEffect()


def _perl(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:
    if any(re.match(r"-\w*i", word.text) for word in words):
        yield from _sed(words, simple, place)
    else:
        yield from _interpreter(words, simple, place)


def _rm(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    for word in _positional_arguments(words):
        yield DeleteEffect(place.resolve_target(word)) if word.is_literal and "{" not in word.text else AnyFileEffect()


def _mv(words: Sequence[ShellWord], place: WorkingFolder, *, copies: bool) -> Iterator[ShellEffect]:
    named = _positional_arguments(words)
    if len(named) < 2:
        return
    if not all(word.is_literal and "{" not in word.text for word in named):
        yield AnyFileEffect()
        return
    *sources, to = named
    into = (
        len(sources) > 1 or to.text.endswith("/") or to.text in (".", "..") or any(word.is_pattern for word in sources)
    )
    yield MoveEffect(tuple(map(place.resolve_target, sources)), place.resolve_target(to), into, copies)


def _find(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    said = " ".join(word.text for word in words)
    if re.search(r"-delete\b|-exec(?:dir)?\s+(?:rm|mv|sed\s+-\w*i|perl\s+-\w*i|sh|bash)\b", said):
        yield AnyFileEffect()


def _xargs(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    if not any(word.text in READ_ONLY_PROGRAMS for word in words) or any(word.text.startswith("-i") for word in words):
        yield AnyFileEffect()


def _fetch(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    for option, word in pairwise(words):
        if (
            option.text in ("-o", "-O", "--output", "--output-document")
            and word.is_literal
            and not word.text.startswith("-")
        ):
            yield WriteEffect(place.resolve_target(word), None, append=False)


def _any_file(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:  # noqa: ARG001
    yield AnyFileEffect()


def _interpreter(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:
    """Yield the effects of inline code or of a script."""
    code = [simple.heredoc] if simple.heredoc is not None else []
    code += [b.text for a, b in pairwise(words) if re.match(r"-\w*[ce]$|--eval", a.text)]
    for text in code:
        if WRITING_CODE.search(text):
            yield MentionEffect(text)
    script = next(iter(_positional_arguments(words)), None)
    if script is not None and re.fullmatch(r"[\w:-]+", script.text) and not code:
        yield from _task("", words)  # `bun test`, `deno fmt`: not a script name
    elif not code and script is not None and all(word.text != "-n" for word in words):
        told = " ".join(word.text for word in words if word is not script)
        yield ScriptEffect(place.resolve_target(script), told)


def _task(name: str, words: Sequence[ShellWord]) -> Iterator[ShellEffect]:
    """Yield the effects of a project task, which is known by its name only, or of a dependency change."""
    said = [word.text for word in words]
    tasks = [text for text in said if text not in ("run", "exec", "--")]
    if name in MANIFESTS and any(
        re.fullmatch(r"i|install|add|remove|rm|update|upgrade|get|mod|lock|sync", t) for t in tasks[:1]
    ):
        yield MentionEffect(MANIFESTS[name])
    else:
        yield AnyFileEffect() if CHANGING_TASK.search(" ".join(tasks)) else OutputDependentEffect()


def _git(words: Sequence[ShellWord], simple: SimpleCommand, place: WorkingFolder) -> Iterator[ShellEffect]:
    rest = list(words)
    while rest and rest[0].text.startswith("-"):
        if rest[0].text == "-C" and len(rest) > 1:
            place = WorkingFolder(place.folder)
            place.change_folder(rest[1:])
        rest = rest[2 if rest[0].text in ("-C", "-c") else 1 :]
    verb, rest = (rest[0].text, rest[1:]) if rest else ("", [])
    options = {word.text for word in rest if word.text.startswith("-")}
    if verb == "mv":
        yield from _mv(rest, place, copies=False)
    elif verb == "rm" and "--cached" not in options:
        yield from _rm(rest, simple, place)
    elif verb in ("checkout", "restore"):
        yield from _checkout(verb, rest, options, place)
    elif GIT_ANY_FILE_COMMANDS.match(" ".join([verb, *(word.text for word in rest)])):
        yield AnyFileEffect()
    elif verb in ("commit", "push"):
        yield OutputDependentEffect()


def _checkout(verb: str, rest: Sequence[ShellWord], options: set[str], place: WorkingFolder) -> Iterator[ShellEffect]:
    texts = [word.text for word in rest]
    plain = _positional_arguments(rest)
    if verb == "restore" and "--staged" in options and "--worktree" not in options:
        return
    if options & {"-b", "-B", "--orphan"} and len(plain) < 2:
        return  # a new branch changes no file
    if "--" in texts:
        yield from _uncertain_files(rest[texts.index("--") + 1 :], place)
    else:
        yield from _uncertain_files(plain[-1:] if verb == "checkout" else plain, place, else_all=True)


_PROGRAMS: dict[str, Callable[[Sequence[ShellWord], SimpleCommand, WorkingFolder], Iterator[ShellEffect]]] = {
    "tee": _tee,
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    "rm": _rm,
    "unlink": _rm,
    "mv": lambda words, _, place: _mv(words, place, copies=False),
    "cp": lambda words, _, place: _mv(words, place, copies=True),
    "find": _find,
    "xargs": _xargs,
    "curl": _fetch,
    "wget": _fetch,
    "patch": _any_file,
    "git": _git,
}
