"""Share of the sessions on disk that an index contains, in a file next to the index."""

from pathlib import Path

SHARE_FILE = "thresher.share"
"""File that exists only while the index lacks sessions on disk. It contains a number below 1."""


def read_share(folder: Path) -> float:
    """Return the share of the sessions on disk, by size, that the last commit contains."""
    try:
        return min(1.0, max(0.0, float((folder / SHARE_FILE).read_text(encoding="ascii"))))
    except (OSError, ValueError):
        return 1.0


def write_share(folder: Path, share: float) -> None:
    """Store the share of the sessions on disk that the index contains."""
    path = folder / SHARE_FILE
    if share < 1:
        path.write_text(f"{share:.6f}", encoding="ascii")
        path.chmod(0o600)
    else:
        path.unlink(missing_ok=True)
