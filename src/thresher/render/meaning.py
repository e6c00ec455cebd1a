"""Render the state of the vectors for the search by meaning."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.render.memory import StyledLine
from thresher.render.text import format_byte_size

if TYPE_CHECKING:
    from thresher.memory.meaning.building import BuildReport
    from thresher.memory.meaning.meaning_index import VectorStatus

EXTRA_HINT = "Search by meaning is off. To turn it on: pip install 'thresher[meaning]'"


def vector_status_value(statuses: "Sequence[VectorStatus]", reports: "Sequence[BuildReport]") -> list[dict[str, Any]]:
    """Return the state of each model's vectors as a JSON value."""
    by_model = {report.model: report for report in reports}
    values: list[dict[str, Any]] = []
    for status in statuses:
        report = by_model.get(status.model)
        values.append(
            {
                "model": status.model,
                "covered_share": round(_covered(status), 4),
                "size_bytes": status.size,
                "dollars_spent": round(status.spent, 4),
                "stopped": report.stopped if report else "",
                "rebuilt": report.rebuilt if report else False,
                "busy": report.busy if report else False,
            }
        )
    return values


def vector_status_lines(statuses: "Sequence[VectorStatus]", reports: "Sequence[BuildReport]") -> Iterator[StyledLine]:
    """Render the state of each model's vectors, one per line."""
    by_model = {report.model: report for report in reports}
    for status in statuses:
        report = by_model.get(status.model)
        share = _covered(status)
        facts = ["complete" if status.missing == 0 else f"{int(100 * share)}% of the messages have vectors"]
        if report is not None and report.rebuilt:
            facts.append("the file was damaged and is rebuilt")
        if report is not None and report.busy:
            facts.append("another process builds them")
        if status.missing and report is not None and report.stopped:
            facts.append(report.stopped)
        if status.spent:
            facts.append(f"${status.spent:.2f} spent")
        text = f"Search by meaning, {status.model}: {'; '.join(facts)}; {format_byte_size(status.size)}"
        yield StyledLine(((text, "yellow" if status.missing else ""),))


def _covered(status: "VectorStatus") -> float:
    return 1 - status.missing / status.total if status.total else 1.0
