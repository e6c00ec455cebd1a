"""The folder for Thresher's data."""

import os
from contextlib import suppress
from pathlib import Path


def get_data_folder() -> Path:
    """Return the data folder: `THRESHER_HOME`, or the platform's default."""
    if folder := os.environ.get("THRESHER_HOME"):
        return Path(folder).expanduser()
    from platformdirs import user_data_path  # noqa: PLC0415 - needed only without THRESHER_HOME

    return user_data_path("thresher")


def create_private_folder(folder: Path) -> None:
    """Create a folder that only the user can access, and its missing parents."""
    if not folder.parent.exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(PermissionError):  # another user owns the folder and its permissions
        folder.chmod(0o700)


def write_private_file(path: Path, data: bytes) -> None:
    """Replace a file in one step; only the user can read it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    new.replace(path)
