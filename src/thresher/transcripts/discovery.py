"""Find the session files that agents keep on this machine, without opening them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from thresher.transcripts.table import transcript_formats


class DiscoveredFile(NamedTuple):
    """A file in an agent's session folder, with the agent's format."""

    format: str
    path: Path


DATA_FOLDER = ".thresher"
"""Name of a data folder of Thresher next to sessions. Its files are not sessions."""


def discover(
    *,
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
    formats: Iterable[str] | None = None,
) -> list[DiscoveredFile]:
    """Return every session file in the agents' own folders. Environment variables can move these folders."""
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    wanted = None if formats is None else set(formats)
    names_by_path: dict[str, str] = {}
    for candidate in transcript_formats():
        if wanted is not None and candidate.name not in wanted:
            continue
        for folder, pattern, skip, newer in candidate.homes(environment, home):
            for path in _find_matching_files(str(folder), pattern.split("/")):
                if skip and fnmatchcase(os.path.basename(path), skip):  # noqa: PTH119
                    continue
                if not (newer and os.path.exists(_superseding_path(path, newer))):  # noqa: PTH110
                    names_by_path.setdefault(path, candidate.name)
    return [DiscoveredFile(name, Path(path)) for path, name in names_by_path.items()]


def _superseding_path(path: str, newer: str) -> str:
    """Return the path where a newer version of a file would be. `newer` is a suffix or a relative path."""
    if newer.startswith(".") and "/" not in newer:
        return os.path.splitext(path)[0] + newer  # noqa: PTH122
    return os.path.join(os.path.dirname(path), newer)  # noqa: PTH118, PTH120


def files_below(place: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a file itself, or every file below a folder, without following links to folders or reading our own data.

    Each search first scans thousands of files. For speed, paths stay strings, and `scandir` supplies the file types.
    """
    if not os.path.isdir(place):  # noqa: PTH112
        yield os.fspath(place)
        return
    pending = [os.fspath(place)]
    while pending:
        entries = _list_folder(pending.pop())
        folders = (entry for entry in reversed(entries) if entry.is_dir(follow_symlinks=False))
        pending += [entry.path for entry in folders if entry.name != DATA_FOLDER]
        yield from (entry.path for entry in entries if _is_file(entry))


def _find_matching_files(folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Yield matching files below a folder. The pattern has one glob per level, or `**` for any number of levels."""
    first, *rest = pattern
    if first == "**":
        if os.path.isdir(folder):  # noqa: PTH112
            yield from (path for path in files_below(folder) if fnmatchcase(os.path.basename(path), rest[0]))  # noqa: PTH119
        return
    for entry in _list_folder(folder):
        if fnmatchcase(entry.name, first):
            if rest and entry.is_dir():
                yield from _find_matching_files(entry.path, rest)
            elif not rest and _is_file(entry):
                yield entry.path


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # for example, a link that points to itself
        return False


def _list_folder(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # the folder is missing or not readable
        return []
