"""Write the sample archive that the package ships."""

from pathlib import Path

from make_samples.archive import pack_samples

ARCHIVE = Path(__file__).parents[2] / "src" / "thresher" / "data" / "samples.tar.gz"

if __name__ == "__main__":
    ARCHIVE.parent.mkdir(exist_ok=True)
    ARCHIVE.write_bytes(pack_samples())
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
