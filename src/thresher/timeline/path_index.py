"""Index the known files of a session by path. Paths are compared as text and never opened.

Paths are normalized. A path that is relative to an unknown folder refers to the only known file that ends with it. A
folder refers to all known files below it, and a pattern to all that match it.
"""

import posixpath
import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

from thresher.model.paths import normalize_path
from thresher.timeline.shell_effects import CommandTarget

_WORD = re.compile(r"[\w@+~%.\-/\\]+")
_WILD = re.compile(r"[*?\[]")


class PathIndex:
    """The known paths."""

    def __init__(self) -> None:
        """Start without paths."""
        self._sorted: list[str] = []
        self._by_name: dict[str, dict[str, None]] = {}

    def add(self, path: str) -> None:
        """Add a path."""
        same = self._by_name.setdefault(posixpath.basename(path), {})
        if path not in same:
            same[path] = None
            insort(self._sorted, path)

    def __contains__(self, path: str) -> bool:
        return path in self._by_name.get(posixpath.basename(path), ())

    def resolve_path(self, path: str, folder: str) -> str:
        """Return the path of a file that a tool names."""
        flat = normalize_path(path, folder)
        if not flat or flat in self or flat.startswith("/") or re.match(r"[A-Za-z]:/", flat):
            return flat
        same = self.find_by_suffix(flat.removeprefix("~/"))
        return same[0] if len(same) == 1 else flat

    def find_by_suffix(self, suffix: str) -> list[str]:
        """Return the known paths that equal `suffix` or end with it."""
        same = self._by_name.get(posixpath.basename(suffix), ())
        return [path for path in same if path == suffix or path.endswith(f"/{suffix}")]

    def find_below(self, folder: str) -> list[str]:
        """Return the files below a folder, at any depth."""
        return list(self._iter_prefix(folder if folder.endswith("/") else f"{folder}/")) if folder else []

    def find_targets(self, target: CommandTarget) -> list[str]:
        """Return the known files that an argument of a command refers to."""
        if target.is_pattern:
            return self._match_pattern(target.path)
        if target.path in self:
            return [target.path]
        return self.find_below(target.path) or (
            [] if target.written_path.startswith(("/", "..")) else self.find_by_suffix(target.written_path)
        )

    def find_mentioned(self, text: str) -> list[str]:
        """Return the known files that a text mentions, without duplicates."""
        mentioned: dict[str, None] = {}
        for word in _words(text):
            if posixpath.basename(word) in self._by_name:
                mentioned |= dict.fromkeys(
                    self.find_by_suffix(normalize_path(word).lstrip("./~")) or self.find_by_suffix(normalize_path(word))
                )
        return list(mentioned)

    def _match_pattern(self, pattern: str) -> list[str]:
        wild = _WILD.search(pattern)
        start = pattern[: wild.start()] if wild else pattern
        deep = "**" in pattern
        return [
            path
            for path in self._iter_prefix(start)
            if (deep or path.count("/") == pattern.count("/")) and fnmatchcase(path, pattern)
        ]

    def _iter_prefix(self, start: str) -> Iterator[str]:
        for place in range(bisect_left(self._sorted, start), len(self._sorted)):
            if not self._sorted[place].startswith(start):
                return
            yield self._sorted[place]


@lru_cache(maxsize=16)
def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text that may be paths. The result is cached, because every run of a script needs it."""
    return tuple(dict.fromkeys(word.rstrip(".") for word in _WORD.findall(text)))


def relative_to_folder(path: str, folder: str) -> str:
    """Return a path relative to a folder, or the path itself if it is not in that folder."""
    return path[len(folder) + 1 :] if folder and path.startswith(f"{folder}/") else path
