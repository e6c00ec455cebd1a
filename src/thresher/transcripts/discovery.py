"""Where the agents of this machine keep their sessions. Looks, never opens."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from thresher.transcripts.table import transcript_formats


class DiscoveredFile(NamedTuple):
    """A file that an agent's own folder says is a session."""

    format: str
    path: Path


def discover(
    *,
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
    formats: Iterable[str] | None = None,
) -> list[DiscoveredFile]:
    """Every session on this machine, by the agents' own folders; environment overrides are honoured."""
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    wanted = None if formats is None else set(formats)
    found: dict[str, str] = {}
    for one in transcript_formats():
        if wanted is not None and one.name not in wanted:
            continue
        for folder, pattern, skip, newer in one.homes(environment, home):
            for path in _find_matching_files(str(folder), pattern.split("/")):
                if skip and fnmatchcase(os.path.basename(path), skip):  # noqa: PTH119
                    continue
                if not (newer and os.path.exists(_superseding_path(path, newer))):  # noqa: PTH110
                    found.setdefault(path, one.name)
    return [DiscoveredFile(name, Path(path)) for path, name in found.items()]


def _superseding_path(path: str, newer: str) -> str:
    """The file that stands for another one: of the same name with another ending, or at a path from its folder."""
    if newer.startswith(".") and "/" not in newer:
        return os.path.splitext(path)[0] + newer  # noqa: PTH122
    return os.path.join(os.path.dirname(path), newer)  # noqa: PTH118, PTH120


def files_below(place: str | os.PathLike[str]) -> Iterator[str]:
    """A file itself, or every file below a folder; links to folders are not followed, so there are no loops.

    A memory looks at thousands of files before each search: paths stay text, and nothing is asked of the system
    that it told while listing.
    """
    if not os.path.isdir(place):  # noqa: PTH112
        yield os.fspath(place)
        return
    waiting = [os.fspath(place)]
    while waiting:
        entries = _list_folder(waiting.pop())
        waiting += [one.path for one in reversed(entries) if one.is_dir(follow_symlinks=False)]
        yield from (one.path for one in entries if _is_file(one))


def _find_matching_files(folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Files whose path below a folder is like the pattern: a name for each level, or `**` for any number of them."""
    first, *rest = pattern
    if first == "**":
        if os.path.isdir(folder):  # noqa: PTH112
            yield from (path for path in files_below(folder) if fnmatchcase(os.path.basename(path), rest[0]))  # noqa: PTH119
        return
    for one in _list_folder(folder):
        if fnmatchcase(one.name, first):
            if rest and one.is_dir():
                yield from _find_matching_files(one.path, rest)
            elif not rest and _is_file(one):
                yield one.path


def _is_file(one: "os.DirEntry[str]") -> bool:
    try:
        return one.is_file()
    except OSError:  # a link to itself
        return False


def _list_folder(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda one: one.name)
    except OSError:  # it is not there, or nobody may look
        return []
