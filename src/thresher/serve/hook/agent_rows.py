"""Find out where each fitted row comes from, for agents whose rows are not those of a model's API.

Such an agent's rows are converted to Anthropic's, and fitted. A row that did not change is the agent's own row again,
and only a changed one is built from what is left of it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from thresher.model.jsontext import canonical_json

Row = dict[str, Any]


class RowAnswer(NamedTuple):
    """The rows to use: each is the index of one of the agent's rows, or a new row. None for no change."""

    rows: list[int | Row] | None
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        found: dict[str, Any] = {} if self.rows is None else {"rows": self.rows}
        return found | ({"problem": self.problem} if self.problem else {})


class FittedRow(NamedTuple):
    """A fitted row, the index of the row that it comes from, and whether it is the same."""

    row: Row
    source: int | None
    is_unchanged: bool


class FittedRows:
    """The rows before and after a fit."""

    def __init__(self, before: list[Row], after: list[Row]) -> None:
        self._after = after
        self._texts = [canonical_json(row) for row in before]
        self._owners = {key: index for index, row in enumerate(before) for key in _iter_call_keys(row)}

    def __iter__(self) -> Iterator[FittedRow]:
        """Yield the rows in order. A row keeps its calls' ids if it changes; a summary comes from no row."""
        start = 0
        for row in self._after:
            text = canonical_json(row)
            same = next((index for index in range(start, len(self._texts)) if self._texts[index] == text), None)
            owner = next((self._owners[key] for key in _iter_call_keys(row) if key in self._owners), None)
            source = owner if same is None else same
            if source is not None and source >= start:
                start = source + 1
            else:
                source, same = None, None
            yield FittedRow(row, source, same is not None)


def _iter_call_keys(row: Row) -> Iterator[tuple[str, str]]:
    for block in iter_blocks(row):
        for field in ("id", "tool_use_id"):
            if isinstance(block.get(field), str):
                yield field, block[field]


def iter_blocks(row: Row) -> Iterator[Row]:
    """Yield the content of a row as blocks."""
    content = row.get("content")
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content or ()


def join_texts(row: Row) -> str:
    """Return the text of a row, without results."""
    return "\n\n".join(block["text"] for block in iter_blocks(row) if block.get("type") == "text")


def read_result_text(block: Row) -> str:
    """Return the text of a result."""
    content = block.get("content")
    return content if isinstance(content, str) else join_texts({"content": content})
