"""Recorded conversations with tool calls, for benchmarks: all transcript formats, including sub-agents.

A recording is a file listed in the shared data's `index.jsonl`, with one or more conversations. Unreadable files are
skipped. The scenarios of `compression_evals` are Gemini contents under the key `history`.
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
    """The history that a model would see next, and its source."""

    name: str
    """The file, and the session in the file."""
    history: History


def recordings(data: Path, split: str = "all", limit: int | None = None) -> list[str]:
    """Return the indexed files of one or both splits; with a limit, an even sample of that size."""
    rows = map(json.loads, (data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    files = [row["file"] for row in rows if split in ("all", row["split"])]
    return files if limit is None else spread([file for file in files if _conversations(data, file)], limit)


def _conversations(data: Path, file: str) -> bool:
    return next(conversations(data, file), None) is not None


def spread(items: Sequence[T], wanted: int) -> list[T]:
    """Return an evenly spaced sample of the items, including the first and the last."""
    if wanted >= len(items):
        return list(items)
    if wanted < 2:
        return list(items[-wanted:]) if wanted else []
    return [items[round(n * (len(items) - 1) / (wanted - 1))] for n in range(wanted)]


def conversations(data: Path, file: str) -> Iterator[Conversation]:
    """Yield the conversations of a file that call tools."""
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
