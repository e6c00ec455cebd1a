"""Pack the samples into one archive whose bytes depend only on the files, without times or owners."""

import gzip
import io
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from make_samples import generate_samples


def pack_samples() -> bytes:
    """Return the generated samples as a gzipped tar archive, in the order they were written."""
    packed = io.BytesIO()
    with (
        TemporaryDirectory() as name,
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, filename="", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for file in generate_samples(Path(name)):
            entry = tarfile.TarInfo(file.relative_to(name).as_posix())
            entry.size = file.stat().st_size
            archive.addfile(entry, io.BytesIO(file.read_bytes()))
    return packed.getvalue()
