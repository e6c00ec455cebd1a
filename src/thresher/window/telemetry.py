"""Tell a trace that the history was planned anew: one event on the span that is open.

OpenTelemetry is an extra, and most programs have no span: then nothing is done, and next to nothing is spent.
Attributes have the names of the GenAI conventions where those have one: the operation, the model, and that the model
sees a shorter conversation than was had, which is said when it is true and never else. All others are ours.
`gen_ai.usage.*` is what a provider says that it used. Ours are counts made before the request, so they are not put
there: whoever sums up usage would count them twice.

No text of a conversation is told, only names, numbers, ids and reasons. Of many the first are told, and how many
there are.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

from thresher.window.events import WindowEvent

SPAN_EVENT_NAME = "thresher.replan"

MAX_LISTED = 32
"""As many ids, exclusions or notes as one attribute holds."""

AttributeValue = str | bool | int | float | Sequence[str]

_SCALAR_FIELDS = (
    "trigger",
    "reason",
    "time",
    "calls_before",
    "tokens_before",
    "tokens_after",
    "first_changed",
    "cost",
    "saving_per_call",
)
_LIST_FIELDS = ("removed_ids", "rejected_edits", "notes")


def add_span_event(event: WindowEvent) -> None:
    """Add the event to the current span, if there is one that records; where telemetry fails, nothing else does."""
    try:
        trace = _import_trace_api()
        span = None if trace is None else trace.get_current_span()
        if span is not None and span.is_recording():
            span.add_event(SPAN_EVENT_NAME, attributes=build_span_attributes(event))
    except Exception:  # noqa: BLE001 - spans come from any library, and no request may fail for one
        return


def build_span_attributes(event: WindowEvent) -> dict[str, AttributeValue]:
    """What is told of an event, by name: values that every exporter can write."""
    edit_count = sum(event.edits.values())
    told: dict[str, AttributeValue] = {"gen_ai.operation.name": "chat"}
    if event.model:
        told["gen_ai.request.model"] = event.model
    if edit_count:
        told["gen_ai.conversation.compacted"] = True
    told |= {f"thresher.{name}": getattr(event, name) for name in _SCALAR_FIELDS}
    told["thresher.saved"] = event.tokens_before - event.tokens_after
    told["thresher.edit_count"] = edit_count
    told |= {f"thresher.edits.{name}": count for name, count in event.edits.items()}
    for name in _LIST_FIELDS:
        several: Sequence[str] = getattr(event, name)
        told |= {f"thresher.{name}": tuple(several[:MAX_LISTED]), f"thresher.{name}_count": len(several)}
    return told


@cache
def _import_trace_api() -> ModuleType | None:
    """OpenTelemetry's tracing, where it is installed; looked for once."""
    try:
        return import_module("opentelemetry.trace")
    except ImportError:
        return None
