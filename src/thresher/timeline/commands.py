"""What a shell command does to files, or may do.

Nothing is run and nothing is looked up: programs are known by name. What a command surely does (a text between marks
that goes into a file, `rm`, `mv`) is told apart from what it may do (`sed -i`, a formatter, `git checkout`, a script):
of that only one thing is known, that the file is not known from then on. A program that nobody knows may write the
files that it is told of.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from thresher.policies.files import normal_path
from thresher.timeline.programs import (
    CHANGING,
    FORMATS,
    GIT_SWEEPS,
    INTERPRETERS,
    KEYWORDS,
    MANIFESTS,
    PREFIXES,
    READS,
    RUNNERS,
    WRAPPERS,
    WRITES,
)
from thresher.timeline.shell import Simple, Word, simple_commands


class Target(NamedTuple):
    """A file, a folder or a pattern that a command names."""

    path: str
    """In full, where the command's folder is known."""
    said: str
    pattern: bool = False


class Puts(NamedTuple):
    """A text goes into a file; None where it is not told."""

    target: Target
    text: str | None
    append: bool


class Alters(NamedTuple):
    """A file is changed, in a way that is not told."""

    target: Target


class Removes(NamedTuple):
    """A file goes, or all below a folder."""

    target: Target


class Moves(NamedTuple):
    """Files get another name."""

    targets: tuple[Target, ...]
    to: Target
    into: bool
    """`to` is surely a folder."""
    copies: bool = False


class Doubts(NamedTuple):
    """A file may be changed."""

    target: Target
    else_all: bool = False
    """If no such file is known, something else is meant, and all files may be changed."""


class Mentions(NamedTuple):
    """Files that a text names may be changed."""

    text: str


class Runs(NamedTuple):
    """A script runs: files that it names may be changed, and so may those that it is told of."""

    target: Target
    told: str


class Sweeps(NamedTuple):
    """Any file may be changed."""


class Tells(NamedTuple):
    """Any file may be changed, if what the command printed says so."""


Effect = Puts | Alters | Removes | Moves | Doubts | Mentions | Runs | Sweeps | Tells


class Place:
    """Where a command runs; empty where that is not known."""

    def __init__(self, folder: str) -> None:
        """Start in a folder."""
        self.folder = folder

    def target(self, word: Word) -> Target:
        """What a word names from here."""
        return Target(normal_path(word.text, self.folder), normal_path(word.text), word.pattern)

    def enter(self, words: Sequence[Word]) -> None:
        """Go elsewhere; nobody knows where, if the shell works it out."""
        word = words[0] if words else Word("~", sure=True)
        self.folder = normal_path(word.text, self.folder) if word.sure and word.text != "-" else ""


def effects(command: str, folder: str) -> Iterator[tuple[Effect, bool]]:
    """What a command does in order, and whether it surely comes to that."""
    place = Place(folder)
    for simple in simple_commands(command):
        for effect in _of(simple, place):
            yield effect, simple.joint != "||"


def _of(simple: Simple, place: Place) -> Iterator[Effect]:
    name, words = _program(simple.words)
    for sign, word in simple.outputs if name not in ("[[", "test") else ():
        if not word.sure or word.pattern:
            yield Sweeps()
        elif not word.text.startswith("/dev/"):
            yield Puts(place.target(word), _printed(name, words, simple), append=sign == ">>")
    if name in ("cd", "pushd"):
        place.enter(words)
    elif name in _PROGRAMS:
        yield from _PROGRAMS[name](words, simple, place)
    elif name in INTERPRETERS:
        yield from _interpreted(words, simple, place)
    elif name in FORMATS:
        if FORMATS[name] is None or any(word.text in (FORMATS[name] or ()) for word in words):
            yield from _named(words, place)
    elif name in RUNNERS:
        yield from _task(name, words)
    elif name and name not in READS:
        yield Mentions(" ".join(word.text for word in words))


def _program(words: Sequence[Word]) -> tuple[str, list[Word]]:
    """The program's name and its arguments, without what only starts it."""
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


def _plain(words: Sequence[Word]) -> list[Word]:
    """The arguments that are no options."""
    return [word for word in words if not word.text.startswith("-")]


def _printed(name: str, words: Sequence[Word], simple: Simple) -> str | None:
    """What a command prints, where that is plain to see."""
    if name == "cat" and not words and simple.body is not None and simple.body_sure:
        return simple.body
    if name == "echo" and all(word.sure and not word.pattern and "\\" not in word.text for word in words):
        return None if words and words[0].text.startswith("-") else " ".join(word.text for word in words) + "\n"
    return "" if name in ("", ":") and not words else None


def _files(words: Sequence[Word], place: Place, *, else_all: bool = False) -> Iterator[Effect]:
    for word in words:
        yield Doubts(place.target(word), else_all) if word.sure and "{" not in word.text else Sweeps()


def _named(words: Sequence[Word], place: Place) -> Iterator[Effect]:
    files = [word for word in _plain(words) if re.search(r"[./*]", word.text) or not word.sure]
    yield from _files(files, place) if files else (Sweeps(),)


def _tee(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:
    append = any(word.text in ("-a", "--append") for word in words)
    text = simple.body if simple.body_sure else None
    for word in _plain(words):
        if not word.text.startswith("/dev/"):
            yield Puts(place.target(word), text, append) if word.sure and not word.pattern else Sweeps()


def _sed(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    in_place = [word.text for word in words if re.match(r"-[a-zA-Z]*i|--in-place", word.text)]
    if not in_place:
        return
    rest: list[Word] = []
    scripted = False
    skip = False
    for word in words:
        if skip or re.match(r"-[a-zA-Z]*[ef]$|--expression|--file", word.text):
            scripted, skip = True, not skip and "=" not in word.text
        elif word.text and not word.text.startswith("-"):
            rest.append(word)
    for word in rest if scripted else rest[1:]:
        yield Alters(place.target(word)) if word.sure and "{" not in word.text else Sweeps()


def _perl(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:
    if any(re.match(r"-\w*i", word.text) for word in words):
        yield from _sed(words, simple, place)
    else:
        yield from _interpreted(words, simple, place)


def _rm(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    for word in _plain(words):
        yield Removes(place.target(word)) if word.sure and "{" not in word.text else Sweeps()


def _mv(words: Sequence[Word], place: Place, *, copies: bool) -> Iterator[Effect]:
    named = _plain(words)
    if len(named) < 2:
        return
    if not all(word.sure and "{" not in word.text for word in named):
        yield Sweeps()
        return
    *sources, to = named
    into = len(sources) > 1 or to.text.endswith("/") or to.text in (".", "..") or any(word.pattern for word in sources)
    yield Moves(tuple(map(place.target, sources)), place.target(to), into, copies)


def _find(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    said = " ".join(word.text for word in words)
    if re.search(r"-delete\b|-exec(?:dir)?\s+(?:rm|mv|sed\s+-\w*i|perl\s+-\w*i|sh|bash)\b", said):
        yield Sweeps()


def _xargs(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    if not any(word.text in READS for word in words) or any(word.text.startswith("-i") for word in words):
        yield Sweeps()


def _fetch(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    for option, word in pairwise(words):
        if option.text in ("-o", "-O", "--output", "--output-document") and word.sure and not word.text.startswith("-"):
            yield Puts(place.target(word), None, append=False)


def _sweep(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:  # noqa: ARG001
    yield Sweeps()


def _interpreted(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:
    """Code that is given here, or a script."""
    code = [simple.body] if simple.body is not None else []
    code += [b.text for a, b in pairwise(words) if re.match(r"-\w*[ce]$|--eval", a.text)]
    for text in code:
        if WRITES.search(text):
            yield Mentions(text)
    script = next(iter(_plain(words)), None)
    if script is not None and re.fullmatch(r"[\w:-]+", script.text) and not code:
        yield from _task("", words)  # `bun test`, `deno fmt`: no script has such a name
    elif not code and script is not None and all(word.text != "-n" for word in words):
        told = " ".join(word.text for word in words if word is not script)
        yield Runs(place.target(script), told)


def _task(name: str, words: Sequence[Word]) -> Iterator[Effect]:
    """A task of the project, known by its name only, or a change of what the project needs."""
    said = [word.text for word in words]
    tasks = [text for text in said if text not in ("run", "exec", "--")]
    if name in MANIFESTS and any(
        re.fullmatch(r"i|install|add|remove|rm|update|upgrade|get|mod|lock|sync", t) for t in tasks[:1]
    ):
        yield Mentions(MANIFESTS[name])
    else:
        yield Sweeps() if CHANGING.search(" ".join(tasks)) else Tells()


def _git(words: Sequence[Word], simple: Simple, place: Place) -> Iterator[Effect]:
    rest = list(words)
    while rest and rest[0].text.startswith("-"):
        if rest[0].text == "-C" and len(rest) > 1:
            place = Place(place.folder)
            place.enter(rest[1:])
        rest = rest[2 if rest[0].text in ("-C", "-c") else 1 :]
    verb, rest = (rest[0].text, rest[1:]) if rest else ("", [])
    options = {word.text for word in rest if word.text.startswith("-")}
    if verb == "mv":
        yield from _mv(rest, place, copies=False)
    elif verb == "rm" and "--cached" not in options:
        yield from _rm(rest, simple, place)
    elif verb in ("checkout", "restore"):
        yield from _checkout(verb, rest, options, place)
    elif GIT_SWEEPS.match(" ".join([verb, *(word.text for word in rest)])):
        yield Sweeps()
    elif verb in ("commit", "push"):
        yield Tells()


def _checkout(verb: str, rest: Sequence[Word], options: set[str], place: Place) -> Iterator[Effect]:
    texts = [word.text for word in rest]
    plain = _plain(rest)
    if verb == "restore" and "--staged" in options and "--worktree" not in options:
        return
    if options & {"-b", "-B", "--orphan"} and len(plain) < 2:
        return  # a new branch from here leaves every file as it is
    if "--" in texts:
        yield from _files(rest[texts.index("--") + 1 :], place)
    else:
        yield from _files(plain[-1:] if verb == "checkout" else plain, place, else_all=True)


_PROGRAMS: dict[str, Callable[[Sequence[Word], Simple, Place], Iterator[Effect]]] = {
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
    "patch": _sweep,
    "git": _git,
}
