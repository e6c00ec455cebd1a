"""Find the fixtures of the transcript formats, and prepare each for its reader."""

import sqlite3
from contextlib import closing
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


def fixtures(name: str) -> list[Path]:
    """Return a format's own fixture and its additional ones."""
    return [path for path in sorted(FIXTURES.glob(f"{name}.*")) if ".golden." not in path.name]


def own_fixture(name: str) -> Path:
    """Return the fixture that every format has."""
    return next(path for path in fixtures(name) if path.stem == name)


def ready(fixture: Path, folder: Path) -> Path:
    """Prepare a fixture for its reader; a database is stored as SQL text."""
    if fixture.suffix != ".sql":
        return fixture
    path = folder / f"{fixture.stem}.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(fixture.read_text(encoding="utf-8"))
    return path
