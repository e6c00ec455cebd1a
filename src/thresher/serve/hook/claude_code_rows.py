"""Claude Code's rows at a compaction, fitted instead of summarized.

The agent keeps the rows that it gets back, so there is nothing to repeat at the next request: each compaction has a
window of its own. The removed texts are in the content store, as always.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from thresher.errors import BudgetError
from thresher.serve.hook.agent_rows import (
    FittedRow,
    FittedRows,
    Row,
    RowAnswer,
    iter_blocks,
    join_texts,
    read_result_text,
)
from thresher.serve.proxy.fit_options import FitOptions
from thresher.serve.proxy.opening import choose_opening
from thresher.tokens import count
from thresher.window import Window

DIALECT = "anthropic"
KEPT_SHARES = (0.35, 0.5, 0.7)
"""Shares of the tokens that a compaction tries to keep, smallest first."""


class _RowGroup(NamedTuple):
    """Neighboring rows of one role, which are one row for the API."""

    indexes: list[int]
    row: Row


def compact_claude_code_rows(rows: list[Row], tools: list[str], options: FitOptions) -> RowAnswer:
    """Return a smaller history; no rows if none is legal and clearly smaller, so that the agent summarizes."""
    groups = list(_group_rows(rows))
    before = [group.row for group in groups]
    size, own_rows = count(before), _find_own_rows(rows)
    for share in KEPT_SHARES:
        window = Window(
            options.policy,
            budget=max(1, int(size * share)),
            format=DIALECT,
            on_overflow="raise",
            cache_breakpoints="leave",
        )
        window.opening = choose_opening(tools)
        try:
            fitted = FittedRows(before, window.fit(before))
        except BudgetError:
            continue
        return RowAnswer([row for found in fitted for row in _restore_row(found, own_rows, groups)])
    return RowAnswer(None, "no legal history is small enough, so the agent summarizes")


def _group_rows(rows: list[Row]) -> Iterator[_RowGroup]:
    for role, found in groupby(enumerate(rows), lambda pair: pair[1]["role"]):
        pairs = list(found)
        blocks = [block for _, row in pairs for block in _iter_results(row)]
        blocks += [block for _, row in pairs for block in _iter_other_blocks(row)]
        if blocks:
            yield _RowGroup([index for index, _ in pairs], {"role": role, "content": blocks})


def _iter_results(row: Row) -> Iterator[Row]:
    for result in row.get("toolResults") or ():
        block = {"type": "tool_result", "tool_use_id": result["tool_use_id"], "content": result["text"]}
        yield block | ({"is_error": True} if result.get("isError") else {})


def _iter_other_blocks(row: Row) -> Iterator[Row]:
    if row.get("text"):
        yield {"type": "text", "text": row["text"]}
    for call in row.get("toolUses") or ():
        yield {"type": "tool_use", "id": call["tool_use_id"], "name": call["tool"], "input": call["input"]}


def _find_own_rows(rows: list[Row]) -> set[int]:
    """Return the rows that the agent's own rows may stand for.

    Claude Code 2.1.327 stores such a row under its old message id, or behind its old call, and a resumed session then
    gets back everything that was removed. So the other rows are built from their texts and calls. A row of the model
    loses its thinking that way, which is legal except in a loop that has not ended.
    """
    prompts = [index for index, row in enumerate(rows) if row["role"] == "user" and not row.get("toolResults")]
    is_open = bool(rows) and (rows[-1]["role"] == "user" or bool(rows[-1]["toolUses"]))
    loop = range(prompts[-1] + 1 if prompts else 0, len(rows)) if is_open else ()
    return {*prompts, *(index for index in loop if rows[index]["role"] == "assistant")}


def _restore_row(found: FittedRow, own_rows: set[int], groups: list[_RowGroup]) -> list[int | Row]:
    """Return the agent's own rows if they did not change and may be used, else a row that the agent builds."""
    if found.source is not None and found.is_unchanged and own_rows.issuperset(groups[found.source].indexes):
        return list(groups[found.source].indexes)
    blocks = list(iter_blocks(found.row))
    results = [
        {"tool_use_id": block["tool_use_id"], "text": read_result_text(block), "isError": bool(block.get("is_error"))}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    calls = [
        {"tool_use_id": block["id"], "tool": block["name"], "input": block["input"]}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    row = {"role": found.row["role"], "text": join_texts(found.row), "toolUses": calls}
    return [row | ({"toolResults": results} if results else {})]
