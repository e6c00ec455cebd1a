"""Normalize the paths in tool calls.

`./a.py` and `a.py` are the same file. Equal file names in different folders are different files.
"""

import posixpath
import re
from collections.abc import Iterable

_ROOT = re.compile(r"[A-Za-z]:/|/|~[^/]*/?")


def normalize_path(path: str, cwd: str = "") -> str:
    """Return the canonical form of a path: forward slashes, `.` and `..` resolved, `~` and letter case unchanged."""
    path_text = path.strip()
    if re.match(r"[A-Za-z]:\\|\\\\", path_text) or "/" not in path_text:
        path_text = path_text.replace("\\", "/")
    if not path_text:
        return ""
    root = _ROOT.match(path_text)
    if root is None:
        return normalize_path(f"{cwd}/{path_text}") if cwd else posixpath.normpath(path_text)
    rest = path_text[root.end() :].lstrip("/")
    if root[0].startswith("~"):
        home = root[0].rstrip("/")
        return f"{home}/{posixpath.normpath(rest)}" if rest else home
    return root[0] + posixpath.normpath(f"/{rest}")[1:]


def resolve_relative_paths(paths: Iterable[str]) -> dict[str, str]:
    """Map each relative path to the only absolute path in `paths` that ends with it, and any other path to itself."""
    known = dict.fromkeys(paths)
    relative = {path for path in known if not _ROOT.match(path)}
    matches: dict[str, set[str]] = {}
    for path in known:
        if path in relative or not relative:
            continue
        slash = path.find("/")
        while slash >= 0:
            if path[slash + 1 :] in relative:
                matches.setdefault(path[slash + 1 :], set()).add(path)
            slash = path.find("/", slash + 1)
    return {path: min(matches[path]) if len(matches.get(path, ())) == 1 else path for path in known}
