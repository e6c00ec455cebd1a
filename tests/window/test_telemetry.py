"""A replan adds one event to the current span, with attributes that every exporter supports."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from thresher.window import telemetry
from thresher.window.events import WindowEvent
from thresher.window.telemetry import MAX_LISTED, add_span_event, build_span_attributes

EVENT = WindowEvent(
    trigger="break_even",
    reason="pays after 3 calls",
    time=1_700_000_000.5,
    model="claude-x",
    calls_before=12,
    tokens_before=9000,
    tokens_after=4000,
    first_changed=7,
    cost=0.02,
    saving_per_call=0.005,
    edits={"replace": 3, "summarize": 1},
    removed_ids=("t1:aa", "t1:bb"),
    rejected_edits=("one is pinned",),
    notes=(),
)
TOLD = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "claude-x",
    "gen_ai.conversation.compacted": True,
    "thresher.trigger": "break_even",
    "thresher.reason": "pays after 3 calls",
    "thresher.time": 1_700_000_000.5,
    "thresher.calls_before": 12,
    "thresher.tokens_before": 9000,
    "thresher.tokens_after": 4000,
    "thresher.saved": 5000,
    "thresher.first_changed": 7,
    "thresher.cost": 0.02,
    "thresher.saving_per_call": 0.005,
    "thresher.edit_count": 4,
    "thresher.edits.replace": 3,
    "thresher.edits.summarize": 1,
    "thresher.removed_ids": ("t1:aa", "t1:bb"),
    "thresher.removed_ids_count": 2,
    "thresher.rejected_edits": ("one is pinned",),
    "thresher.rejected_edits_count": 1,
    "thresher.notes": (),
    "thresher.notes_count": 0,
}


class Span:
    """A span that records its events."""

    def __init__(self, recording: bool = True) -> None:
        self.recording = recording
        self.events: list[tuple[str, Any]] = []

    def is_recording(self) -> bool:
        return self.recording

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        del timestamp
        self.events.append((name, attributes))


class Broken(Span):
    """A span of a broken library."""

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        super().add_event(name, attributes, timestamp)
        raise RuntimeError("no exporter")


@pytest.fixture(autouse=True)
def fresh_import() -> Iterator[None]:
    telemetry._import_trace_api.cache_clear()
    yield
    telemetry._import_trace_api.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, span: Any) -> None:
    """Return a library of the same shape whose current span is this one."""
    module = ModuleType("opentelemetry.trace")
    module.get_current_span = lambda: span  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)


def test_the_current_span_gets_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span()
    install(monkeypatch, span)
    add_span_event(EVENT)
    assert span.events == [("thresher.replan", TOLD)]


def test_a_span_that_is_not_recording_gets_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    span = Span(recording=False)
    install(monkeypatch, span)
    add_span_event(EVENT)
    assert span.events == []


@pytest.mark.parametrize("event", [EVENT, None], ids=["a fault of the span", "not an event"])
def test_a_failure_of_telemetry_does_not_reach_the_window(monkeypatch: pytest.MonkeyPatch, event: Any) -> None:
    span = Broken()
    install(monkeypatch, span)
    add_span_event(event)
    assert len(span.events) == (event is not None)


def test_without_the_library_nothing_happens_after_one_import_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    add_span_event(EVENT)
    span = Span()
    install(monkeypatch, span)
    add_span_event(EVENT)
    assert span.events == []


def test_unknown_or_false_attributes_are_absent() -> None:
    attributes = build_span_attributes(WindowEvent(trigger="overflow", reason="nothing legal fits", time=0.0))
    assert "gen_ai.request.model" not in attributes
    assert "gen_ai.conversation.compacted" not in attributes
    assert attributes["thresher.edit_count"] == 0


def test_a_long_list_keeps_the_first_ids_and_the_total_count() -> None:
    ids = tuple(f"t1:{number}" for number in range(MAX_LISTED + 5))
    attributes = build_span_attributes(WindowEvent(trigger="break_even", reason="", time=0.0, removed_ids=ids))
    assert attributes["thresher.removed_ids"] == ids[:MAX_LISTED]
    assert attributes["thresher.removed_ids_count"] == MAX_LISTED + 5


def test_the_real_library_accepts_every_attribute() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
    with sdk.TracerProvider(shutdown_on_exit=False).get_tracer("tests").start_as_current_span("chat") as span:
        add_span_event(EVENT)
    [event] = span.events
    assert event.name == "thresher.replan"
    assert dict(event.attributes) == TOLD
