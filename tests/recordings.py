"""The recordings beside the repository, each with the counts that came with it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import thresher as th


def indexed(folder: Path, kind: str) -> Iterator[tuple[dict[str, Any], list[th.Session]]]:
    """Every file of a kind: its row in the index, and the sessions in it."""
    rows = map(json.loads, (folder / "index.jsonl").read_text(encoding="utf-8").splitlines())
    for row in rows:
        if row["file"].startswith(f"{kind}/"):
            yield row, th.read_all(folder / row["file"])
