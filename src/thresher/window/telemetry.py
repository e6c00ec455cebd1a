"""Report each window event to OpenTelemetry as a span event on the current span.

OpenTelemetry is an optional extra. Without it, or without a recording span, this module does almost nothing. The names
of three attributes come from the GenAI conventions: the operation, the model, and `gen_ai.conversation.compacted`,
which is set only when true. All other names are Thresher's own. The token counts here are estimates before the request.
They are not called `gen_ai.usage.*`, because those attributes hold the usage that a provider reports, and a sum would
count the tokens twice.

Attributes hold names, numbers, ids and reasons, but no text of a conversation. For a long list, they hold the first
items and the total count.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType

from thresher.window.events import WindowEvent

SPAN_EVENT_NAME = "thresher.replan"

MAX_LISTED = 32
"""Maximum number of items in a list attribute."""

AttributeValue = str | bool | int | float | Sequence[str]

_LIST_FIELDS = ("removed_ids", "rejected_edits", "notes")
_SCALAR_FIELDS = [name for name in WindowEvent.__struct_fields__ if name not in ("model", "edits", *_LIST_FIELDS)]


def add_span_event(event: WindowEvent) -> None:
    """Add the event to the current span if it is recording; ignore any failure of telemetry."""
    try:
        trace = _import_trace_api()
        span = None if trace is None else trace.get_current_span()
        if span is not None and span.is_recording():
            span.add_event(SPAN_EVENT_NAME, attributes=build_span_attributes(event))
    except Exception:  # noqa: BLE001 - spans come from any library, and none may stop a request
        return


def build_span_attributes(event: WindowEvent) -> dict[str, AttributeValue]:
    """Return the attributes of an event, with values that every exporter supports."""
    edit_count = sum(event.edits.values())
    attributes: dict[str, AttributeValue] = {"gen_ai.operation.name": "chat"}
    if event.model:
        attributes["gen_ai.request.model"] = event.model
    if edit_count:
        attributes["gen_ai.conversation.compacted"] = True
    attributes |= {f"thresher.{name}": getattr(event, name) for name in _SCALAR_FIELDS}
    attributes["thresher.saved"] = event.saved
    attributes["thresher.edit_count"] = edit_count
    attributes |= {f"thresher.edits.{name}": count for name, count in event.edits.items()}
    for name in _LIST_FIELDS:
        items: Sequence[str] = getattr(event, name)
        attributes |= {f"thresher.{name}": tuple(items[:MAX_LISTED]), f"thresher.{name}_count": len(items)}
    return attributes


@cache
def _import_trace_api() -> ModuleType | None:
    """Return OpenTelemetry's tracing API, or None if it is not installed."""
    try:
        return import_module("opentelemetry.trace")
    except ImportError:
        return None
