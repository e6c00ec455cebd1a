"""Render the plan and the result of annotating sessions."""

from typing import TYPE_CHECKING, Any

from thresher.render.memory import StyledLine
from thresher.render.text import format_count, plural

if TYPE_CHECKING:
    from thresher.memory.annotate import AnnotationPlan, AnnotationReport


def annotation_plan_line(plan: "AnnotationPlan") -> StyledLine:
    """Render the number of requests and their price."""
    requests = f"{plural(plan.pieces, 'request')} to {plan.model}, about {format_count(plan.tokens)} tokens"
    price = f"${plan.cost:.2f} at most; ${plan.spent:.2f} of ${plan.cap:.2f} spent so far"
    return StyledLine(((f"{requests}, {price}", "bold"),))


def annotation_report_line(report: "AnnotationReport") -> StyledLine:
    """Render the result of a run."""
    missing = f"; {format_count(report.remaining)} missing: {report.stopped}" if report.remaining else ""
    text = f"{plural(report.written, 'line')} written{missing}; ${report.spent:.2f} spent in all runs"
    return StyledLine(((text, "bold yellow" if report.remaining else "bold"),))


def annotation_value(plan: "AnnotationPlan", report: "AnnotationReport | None") -> dict[str, Any]:
    """Return the plan and the result as a JSON value."""
    return {
        "model": plan.model,
        "requests": plan.pieces,
        "estimated_tokens": plan.tokens,
        "estimated_dollars": round(plan.cost, 4),
        "dollars_cap": plan.cap,
        "dollars_spent": round(plan.spent if report is None else report.spent, 4),
        "written": report.written if report else 0,
        "remaining": report.remaining if report else plan.pieces,
        "stopped": report.stopped if report else "",
    }
