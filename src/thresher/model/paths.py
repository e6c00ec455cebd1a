"""Normalize the paths in tool calls.

`./a.py` and `a.py` are the same file. Equal file names in different folders are different files.
"""

import posixpath
import re
from collections.abc import Iterable

_ROOT = re.compile(r"[A-Za-z]:/|/|~[^/]*/?")


def normalize_path(path: str, cwd: str = "") -> str:
    """Return the canonical form: forward slashes, no `.` or `..`; `~` and letter case are kept."""
    flat = path.strip()
    if re.match(r"[A-Za-z]:\\|\\\\", flat) or "/" not in flat:
        flat = flat.replace("\\", "/")
    if not flat:
        return ""
    root = _ROOT.match(flat)
    if root is None:
        return normalize_path(f"{cwd}/{flat}") if cwd else posixpath.normpath(flat)
    rest = flat[root.end() :].lstrip("/")
    if root[0].startswith("~"):
        home = root[0].rstrip("/")
        return f"{home}/{posixpath.normpath(rest)}" if rest else home
    return root[0] + posixpath.normpath(f"/{rest}")[1:]


def resolve_relative_paths(paths: Iterable[str]) -> dict[str, str]:
    """Map each path to the only absolute path here that ends with it, or to itself."""
    known = dict.fromkeys(paths)
    relative = {path for path in known if not _ROOT.match(path)}
    found: dict[str, set[str]] = {}
    for path in known:
        if path in relative or not relative:
            continue
        at = path.find("/")
        while at >= 0:
            if path[at + 1 :] in relative:
                found.setdefault(path[at + 1 :], set()).add(path)
            at = path.find("/", at + 1)
    return {path: min(found[path]) if len(found.get(path, ())) == 1 else path for path in known}
