"""Find old tool chains that kept exchanges depend on, because a kept chain uses the same file."""

import posixpath
import re
from functools import lru_cache

from thresher.model import History, Place
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import is_failed_call

_WORD = re.compile(r"[\w@~.\-/\\]+")


def chain_places(link: ToolUse) -> tuple[Place, ...]:
    """Return the places of a tool chain: its call and its result, if any."""
    call, result, _ = link.chain
    return (call,) if result is None else (call, result)


def find_file_dependencies(history: History, kept: set[int]) -> set[Place]:
    """Return the parts of old chains that chains in the `kept` messages depend on.

    These are the latest read or write of each file that a kept chain edits, and the latest edit of each script that a
    kept command runs.
    """
    files: set[str] = set()
    scripts: dict[str, str] = {}
    needed: set[Place] = set()
    for link in reversed(history.links):
        path, stays = _to_posix_path(link.use.path), link.chain.call.message in kept
        brings = link.use.operation in ("read", "write") and not is_failed_call(link)
        is_script = link.use.category == "file_edit" and _is_same_path(path, scripts.get(posixpath.basename(path), ""))
        if not stays and ((brings and path in files) or is_script):
            needed.update(chain_places(link))
        if brings:
            files.discard(path)
        if is_script:
            scripts.pop(posixpath.basename(path))
        if stays and not is_failed_call(link):
            if link.use.operation == "edit" and path:
                files.add(path)
            scripts.update(_paths_in_command(link.use.command[:400]) if link.use.command else ())
    return needed


@lru_cache(maxsize=4096)
def _paths_in_command(command: str) -> tuple[tuple[str, str], ...]:
    """Return the base name and the path of each word in a command that may be a file."""
    paths = [_to_posix_path(word) for word in _WORD.findall(command) if "." in word]
    return tuple([(posixpath.basename(path), path) for path in paths])


def _to_posix_path(path: str) -> str:
    return posixpath.normpath(path.replace("\\", "/")) if path else ""


def _is_same_path(path: str, name: str) -> bool:
    return bool(path and name) and (path == name or path.endswith(f"/{name}") or name.endswith(f"/{path}"))
