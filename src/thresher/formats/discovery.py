"""Where the agents of this machine keep their sessions. Looks, never opens."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from thresher.formats.table import transcript_formats


class Found(NamedTuple):
    """A file that an agent's own folder says is a session."""

    format: str
    path: Path


def discover(
    *,
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
    formats: Iterable[str] | None = None,
) -> list[Found]:
    """Every session on this machine, by the agents' own folders; environment overrides are honoured."""
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    wanted = None if formats is None else set(formats)
    found: dict[Path, str] = {}
    for one in transcript_formats():
        if wanted is not None and one.name not in wanted:
            continue
        for folder, pattern, skip in one.homes(environment, home):
            if folder.is_dir():
                for path in sorted(folder.glob(pattern)):
                    if path.is_file() and not (skip and path.match(skip)):
                        found.setdefault(path, one.name)
    return [Found(name, path) for path, name in found.items()]


def files_below(place: Path) -> Iterator[Path]:
    """A file itself, or every file below a folder; links are not followed, so there are no loops."""
    if not place.is_dir():
        yield place
        return
    for top, folders, names in os.walk(place):
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(top) / name).is_file())
