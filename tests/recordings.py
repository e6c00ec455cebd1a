"""The recordings next to the repository, with their published counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import thresher as th


def indexed(folder: Path, kind: str) -> Iterator[tuple[dict[str, Any], list[th.Session]]]:
    """Yield every file of a kind: its row in the index, and its sessions."""
    rows = map(json.loads, (folder / "index.jsonl").read_text(encoding="utf-8").splitlines())
    for row in rows:
        if row["file"].startswith(f"{kind}/"):
            yield row, th.read_all(folder / row["file"])
