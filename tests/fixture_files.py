"""The fixtures of the formats: which there are, and each as its reader wants it."""

import sqlite3
from contextlib import closing
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


def fixtures(name: str) -> list[Path]:
    """A format's own fixture, and those for what one file cannot show."""
    return [path for path in sorted(FIXTURES.glob(f"{name}.*")) if ".golden." not in path.name]


def own_fixture(name: str) -> Path:
    """The one that every format has."""
    return next(path for path in fixtures(name) if path.stem == name)


def ready(fixture: Path, folder: Path) -> Path:
    """A fixture as its reader wants it: a database is kept as the text that makes it."""
    if fixture.suffix != ".sql":
        return fixture
    path = folder / f"{fixture.stem}.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(fixture.read_text(encoding="utf-8"))
    return path
