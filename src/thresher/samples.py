"""Sample sessions of four agents that work on one web shop, for `thresher demo`, experiments and tests.

The sessions are synthetic. They ship as one tar file with the layout of a home directory. `tools/make_samples`
generates that file.
"""

import tarfile
from importlib.resources import files
from pathlib import Path

__all__ = ["write_samples"]


def write_samples(folder: Path) -> list[Path]:
    """Extract every sample session to a folder; return the extracted files."""
    written = []
    with (
        files("thresher").joinpath("data/samples.tar.gz").open("rb") as packed,
        tarfile.open(fileobj=packed) as archive,
    ):
        for entry in archive:
            content = archive.extractfile(entry)
            if content is not None:
                path = folder / entry.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                written.append(path)
    return written
