"""Recorded conversations that call tools, for benchmarks: every one that the readers know, sub-agents too.

A recording is a file of the shared data, named in its `index.jsonl`; one may hold many conversations. A file that
cannot be read gives none. The scenarios of `compression_evals` are Gemini contents under the key `history`.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import thresher
from thresher import History, Session
from thresher.errors import ThresherError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SCENARIOS = "compression_evals"
T = TypeVar("T")


class Conversation(NamedTuple):
    """What a model would see next, and where that stands."""

    name: str
    """The file, and the session in it."""
    history: History


def recordings(data: Path, split: str = "all", limit: int | None = None) -> list[str]:
    """The files of the index, of one half or of both; with a limit as many, spread evenly."""
    rows = map(json.loads, (data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    files = [row["file"] for row in rows if split in ("all", row["split"])]
    return files if limit is None else spread([file for file in files if _conversations(data, file)], limit)


def _conversations(data: Path, file: str) -> bool:
    return next(conversations(data, file), None) is not None


def spread(items: Sequence[T], wanted: int) -> list[T]:
    """That many of the items at even distances, the first and the last among them."""
    if wanted >= len(items):
        return list(items)
    if wanted < 2:
        return list(items[-wanted:]) if wanted else []
    return [items[round(n * (len(items) - 1) / (wanted - 1))] for n in range(wanted)]


def conversations(data: Path, file: str) -> Iterator[Conversation]:
    """Every conversation of a file in which a tool is called."""
    try:
        sessions = [_scenario(data / file)] if file.startswith(SCENARIOS) else thresher.read_all(data / file)
    except ThresherError:
        return
    for session in (inner for outer in sessions for inner in _with_children(outer)):
        if any(True for message in session.history for _ in message.calls):
            yield Conversation(f"{file}#{session.id}", session.history)


def _with_children(session: Session) -> Iterator[Session]:
    yield session
    for child in session.children:
        yield from _with_children(child)


def _scenario(path: Path) -> Session:
    packed = path.read_bytes()
    value = json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)
    history = thresher.parse(value["history"], "gemini")
    return Session("gemini", value["scenarioId"], str(path), segments=(history,))
