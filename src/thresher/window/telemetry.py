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

from thresher.window.events import Event

NAME = "thresher.replan"

MOST_LISTED = 32
"""As many ids, exclusions or notes as one attribute holds."""

Attribute = str | bool | int | float | Sequence[str]

_SINGLE = ("trigger", "why", "at", "call", "tokens_before", "tokens_after", "first_changed", "cost", "saving")
_SEVERAL = ("elided", "excluded", "notes")


def report(event: Event) -> None:
    """Add the event to the current span, if there is one that records; where telemetry fails, nothing else does."""
    try:
        trace = _trace()
        span = None if trace is None else trace.get_current_span()
        if span is not None and span.is_recording():
            span.add_event(NAME, attributes=attributes_of(event))
    except Exception:  # noqa: BLE001 - spans come from any library, and no request may fail for one
        return


def attributes_of(event: Event) -> dict[str, Attribute]:
    """What is told of an event, by name: values that every exporter can write."""
    edit_count = sum(event.edits.values())
    told: dict[str, Attribute] = {"gen_ai.operation.name": "chat"}
    if event.model:
        told["gen_ai.request.model"] = event.model
    if edit_count:
        told["gen_ai.conversation.compacted"] = True
    told |= {f"thresher.{name}": getattr(event, name) for name in _SINGLE}
    told["thresher.saved"] = event.tokens_before - event.tokens_after
    told["thresher.edit_count"] = edit_count
    told |= {f"thresher.edits.{name}": count for name, count in event.edits.items()}
    for name in _SEVERAL:
        several: Sequence[str] = getattr(event, name)
        told |= {f"thresher.{name}": tuple(several[:MOST_LISTED]), f"thresher.{name}_count": len(several)}
    return told


@cache
def _trace() -> ModuleType | None:
    """OpenTelemetry's tracing, where it is installed; looked for once."""
    try:
        return import_module("opentelemetry.trace")
    except ImportError:
        return None
