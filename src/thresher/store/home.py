"""Where Thresher keeps its own data."""

import os
from contextlib import suppress
from pathlib import Path


def get_data_folder() -> Path:
    """The folder for data: `THRESHER_HOME`, or the platform's own place for it."""
    if folder := os.environ.get("THRESHER_HOME"):
        return Path(folder).expanduser()
    from platformdirs import user_data_path  # noqa: PLC0415 - only needed where nothing is set

    return user_data_path("thresher")


def create_private_folder(folder: Path) -> None:
    """See that a folder is there, and the user's alone; the one around it, too, where it has to be made."""
    if not folder.parent.exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(PermissionError):  # somebody else's, who said who may use it
        folder.chmod(0o700)
