"""Write a planned change to a client's configuration file, which the client may write at the same moment.

The file is replaced atomically, and only while it has the content that the change was computed from. Two things can
still go wrong: the client writes between this check and the replacement, or it replaces the new file with its own older
copy. Against the first, a lock is held: a folder with the name of the file and `.lock`, which Claude Code and every
other user of the npm package `proper-lockfile` respect. The second is noticed by reading the file again.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from thresher.serve.mcp_clients import ConfigChange, McpClientError

BACKUP_SUFFIX = ".before-thresher"
LOCK_SUFFIX = ".lock"
LOCK_ATTEMPTS, LOCK_POLL_SECONDS = 50, 0.1
STALE_LOCK_SECONDS = 10.0
"""Age of a lock whose owner crashed: an owner renews its lock more often. `proper-lockfile` has the same limit."""
ReplaceFile = Callable[[Path, Path], object]
Sleep = Callable[[float], object]


def write_config_change(
    change: ConfigChange, *, replace: ReplaceFile = os.replace, sleep: Sleep = time.sleep
) -> Path | None:
    """Write a planned change, and return the path of the backup; None if there was no old file."""
    try:
        target = change.file.resolve()  # follow a symlink, so that it stays one
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(change.file, sleep), _new_file(target, change.new_content or b"") as temporary:
            return _replace_file(target, temporary, change, replace)
    except OSError as error:
        reason = error.strerror or error
        raise McpClientError(f"cannot write `{change.file}`: {reason}; check its permissions") from error


@contextmanager
def _locked(file: Path, sleep: Sleep) -> Iterator[None]:
    """Hold the lock of a file; take it from an owner that no longer renews it."""
    lock = file.with_name(file.name + LOCK_SUFFIX)  # of a symlink: next to the link, as Claude Code does
    for _ in range(LOCK_ATTEMPTS):
        with suppress(FileExistsError):
            lock.mkdir()
            break
        with suppress(OSError):  # its owner removed it
            if time.time() - lock.stat().st_mtime > STALE_LOCK_SECONDS:
                lock.rmdir()
                continue
        sleep(LOCK_POLL_SECONDS)
    else:
        raise McpClientError(
            f"`{file}` is locked by another program, so nothing was changed; close it and try again, or delete `{lock}`"
        )
    try:
        yield
    finally:
        with suppress(OSError):
            lock.rmdir()


@contextmanager
def _new_file(target: Path, content: bytes) -> Iterator[Path]:
    """Write a temporary file next to the target."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # readable by the user only
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _replace_file(target: Path, temporary: Path, change: ConfigChange, replace: ReplaceFile) -> Path | None:
    backup = None
    if change.old_content is not None and target.exists():
        temporary.chmod(target.stat().st_mode & 0o7777)
        backup = _write_backup(target, change.old_content)
    if _read(target) != change.old_content:  # as late as possible: nothing but the replacement follows
        if backup is not None:
            backup.unlink()
        raise McpClientError(f"`{change.file}` was changed by another program just now; try again")
    replace(temporary, target)
    if _read(target) != change.new_content:
        raise McpClientError(
            f"`{change.file}` was written, but another program replaced it at the same moment, so the change may be "
            "lost; close the agent and try again"
        )
    return backup


def _read(file: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return file.read_bytes()
    return None


def _write_backup(target: Path, content: bytes) -> Path:
    """Write a copy next to the file, under an unused name."""
    for number in count(1):
        backup = target.with_name(f"{target.name}{BACKUP_SUFFIX}{f'-{number}' if number > 1 else ''}")
        try:
            handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        break
    backup.chmod(target.stat().st_mode & 0o7777)
    return backup
