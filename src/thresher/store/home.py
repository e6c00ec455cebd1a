"""Where Thresher keeps its own data."""

import os
from pathlib import Path


def home() -> Path:
    """The folder for data: `THRESHER_HOME`, or the platform's own place for it."""
    if folder := os.environ.get("THRESHER_HOME"):
        return Path(folder).expanduser()
    from platformdirs import user_data_path  # noqa: PLC0415 - only needed where nothing is set

    return user_data_path("thresher")
