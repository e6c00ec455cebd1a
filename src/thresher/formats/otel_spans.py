"""Spans of a trace, from any of the files that they are written to.

Trees of spans (TRAIL); OTLP, as one document or one export a line, its logs too; flat spans as the SDK's console
exporter, Phoenix and Langfuse write them, in a list, one a line, or one after another. Each names its fields in a way
of its own: the tables say which. What comes out is flat, in the order of time, with attributes under dotted names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec

from thresher.formats.loose import at, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import timestamp

Kind = Literal["llm", "agent", "tool", ""]

_IDS = ("span_id", "spanId", "spanID", "context.span_id", "id")
_PARENTS = ("parent_span_id", "parentSpanId", "parent_id", "parentObservationId", "parentId")
_TRACES = ("trace_id", "traceId", "traceID", "context.trace_id")
_STARTS = ("start_time", "startTime", "startTimeUnixNano", "start_time_unix_nano", "timestamp")
_ENDS = ("end_time", "endTime", "endTimeUnixNano", "end_time_unix_nano")
_ATTRIBUTES = ("span_attributes", "attributes")
_INSIDE = (
    *("spans", "child_spans", "children", "observations", "data", "traces", "resourceSpans", "resource_spans"),
    *("batches", "scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    *("resourceLogs", "scopeLogs", "logRecords", "resource_logs", "scope_logs", "log_records"),
)
"""Names under which spans stand, or what holds them."""

_WORDS: dict[Kind, str] = {
    "llm": "llm generation chat text_completion completion generate_content call_llm ai.generatetext.dogenerate"
    " ai.streamtext.dostream ai.generateobject.dogenerate ai.streamobject.dostream",
    "agent": "agent invoke_agent ai.generatetext ai.streamtext ai.generateobject ai.streamobject",
    "tool": "tool execute_tool ai.toolcall",
}
_KINDS: dict[str, Kind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
"""What the vocabularies call a model's call, an agent's run and a tool's, in lower case."""
_KIND_KEYS = (
    *("openinference.span.kind", "gen_ai.operation.name", "langfuse.observation.type", "traceloop.span.kind"),
    *("gen_ai.span.kind", "llm.request.type", "ai.operationId", "span_kind", "type"),
)
_SIGNS: dict[str, Kind] = {
    "gen_ai.prompt": "llm",
    "llm.input_messages": "llm",
    "gen_ai.tool.call.id": "tool",
    "pydantic_ai.all_messages": "agent",
    "all_messages_events": "agent",
}
"""How the names of attributes begin where no kind is told."""
FIRST_LINES = 2000
"""Lines in which a first span is looked for."""
DEEPEST = 100
"""Spans around a span that are looked at; parents may form a circle."""
VOCABULARIES = ("openinference.", "gen_ai.", "llm.", "traceloop.", "langfuse.", "ai.")
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class Event(NamedTuple):
    """Something that was noted in a span."""

    name: str
    attributes: dict[str, Any]


class Span(NamedTuple):
    """One span."""

    id: str
    parent: str
    trace: str
    name: str
    kind: Kind
    start: datetime | None
    end: datetime | None
    failed: bool
    told: str
    """What is said of its end."""
    attributes: dict[str, Any]
    events: tuple[Event, ...]
    resource: dict[str, Any]
    place: int
    """Its number in the file."""
    line: int
    """The line it stands in; in a document, its number."""

    @property
    def key(self) -> str:
        """What it is known by in a file of several traces."""
        return f"{self.trace} {self.id}"


class Tree(NamedTuple):
    """The spans of a file, and what stands around each."""

    spans: list[Span]
    by_key: dict[str, Span]

    def around(self, span: Span) -> Iterator[Span]:
        """The spans around a span, from the inside out."""
        at = self.by_key.get(f"{span.trace} {span.parent}")
        for _ in range(DEEPEST):
            if at is None or at is span:
                return
            yield at
            at = self.by_key.get(f"{at.trace} {at.parent}")

    def agents(self, span: Span) -> list[Span]:
        """The agents that a span is in, or is, from the inside out."""
        return [one for one in (span, *self.around(span)) if one.kind == "agent"]


def read_spans(source: SourceFile) -> Tree:
    """All spans of a file, by the time they started."""
    spans: list[Span] = []
    logs: dict[str, list[Event]] = {}
    for line, value in _values(source):
        for wire, resource in walk(value):
            try:
                if is_span(wire):
                    spans.append(_span(wire, resource, len(spans) + 1, line))
                elif span_id := _first(wire, ("spanId", "span_id")):
                    logs.setdefault(f"{_first(wire, _TRACES)} {span_id}", []).append(_event(wire))
            except RecursionError:
                source.problem("a span is nested too deep to follow", "skipped", line)
    spans = [span._replace(events=(*span.events, *logs.get(span.key, ()))) for span in spans]
    first = min((span.start for span in spans if span.start), default=None)
    if first:
        spans.sort(key=lambda span: (span.start or first).timestamp())
    return Tree(spans, {span.key: span for span in spans})


def _values(source: SourceFile) -> Iterator[tuple[int, Any]]:
    if source.document is not None:
        yield 0, source.take_document()
        return
    if any(True for _ in source.head):
        yield from ((line, value) for line, _, value in source.rows(_ANY))
        return
    yield from ((0, value) for value in _one_after_another(source))


_BEGINNING = re.compile(r"^(?=\{)", re.MULTILINE)
_OPENING = re.compile(r"[\s,]*\{")
_DECODER = json.JSONDecoder(strict=False)


def _one_after_another(source: SourceFile) -> Iterator[Any]:
    """Objects that follow each other over many lines, as the console exporter prints them between what others print."""
    others = 0
    for piece in _BEGINNING.split(_text(line for _, line in source.lines())):
        place = 0
        while found := _OPENING.match(piece, place):
            try:
                value, place = _DECODER.raw_decode(piece, found.end() - 1)
            except (ValueError, RecursionError):
                break
            yield value
        others += bool(piece[place:].strip())
    if others:
        source.problem(f"{others} pieces of the file are no JSON", "skipped")


def first_printed(source: SourceFile) -> list[Any]:
    """The first value of a file of values over many lines; none where it is none."""
    lines = (line for _, line in SourceFile(source.path, source.limits).lines())
    first = _text([next(lines, b"")]).strip()
    if first != "{":
        return []
    written = _text([b"{", *(line for _, line in zip(range(FIRST_LINES), lines, strict=False))])
    try:
        return [_DECODER.raw_decode(written)[0]]
    except (ValueError, RecursionError):
        return []


def _text(lines: Iterable[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace").removeprefix("\ufeff")


def walk(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The spans and log records in a value, each with what is told of the program they come from."""
    waiting: list[tuple[Any, dict[str, Any]]] = [(value, {})]
    while waiting:
        found, resource = waiting.pop()
        if isinstance(found, list):
            waiting += [(item, resource) for item in reversed(found) if isinstance(item, dict)]
            continue
        if not isinstance(found, dict):
            continue
        told = fields(found.get("resource")).get("attributes")
        resource = {**resource, **_attributes(told)} if told else resource
        if session := text(found.get("sessionId")):
            resource = {**resource, "session.id": session}
        if is_span(found) or "body" in found:
            yield found, resource
        waiting += [(found[key], resource) for key in reversed(_INSIDE) if isinstance(found.get(key), list)]


def is_span(wire: Mapping[str, Any]) -> bool:
    """Whether an object is a span: it has an id, belongs to a trace, and tells something of a time."""
    inner = fields(wire.get("context"))
    named = bool(_first(wire, _IDS) or text(inner.get("span_id")) or text(inner.get("spanId")))
    placed = bool(_first(wire, _TRACES) or text(inner.get("trace_id")) or text(inner.get("traceId")))
    return named and placed and any(key in wire for key in _STARTS) and "body" not in wire


def _first(wire: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((found.removeprefix("0x") for key in keys if (found := text(wire.get(key)))), "")


def _span(wire: dict[str, Any], resource: dict[str, Any], place: int, line: int) -> Span:
    inner = fields(wire.get("context"))
    attributes = _all_attributes(wire)
    start = next(filter(None, (moment(wire.get(key)) for key in _STARTS)), None)
    end = next(filter(None, (moment(wire.get(key)) for key in _ENDS)), None)
    status = wire.get("status") if isinstance(wire.get("status"), dict) else {}
    code = str(wire.get("status_code") or at(status, "code") or at(status, "status_code") or wire.get("level") or "")
    told = text(wire.get("status_message")) or text(at(status, "message")) or text(at(status, "description"))
    return Span(
        _first(wire, _IDS) or _first(inner, ("span_id", "spanId")),
        _first(wire, _PARENTS) or _first(fields(wire.get("parentSpanContext")), ("spanId",)),
        _first(wire, _TRACES) or _first(inner, ("trace_id", "traceId")),
        text(wire.get("span_name")) or text(wire.get("name")),
        _kind(wire, attributes),
        start,
        end or _end(start, wire.get("duration")),
        code.upper().rpartition("_")[2] in ("ERROR", "2"),
        told or text(wire.get("statusMessage")),
        attributes,
        tuple(_event(event) for event in items(wire.get("events")) if isinstance(event, dict)),
        resource,
        place,
        line or place,
    )


def _kind(wire: dict[str, Any], attributes: dict[str, Any]) -> Kind:
    words = ((text(attributes.get(key)) or text(wire.get(key))).lower() for key in _KIND_KEYS)
    named = (_KINDS[word] for word in words if word in _KINDS)
    signs = (kind for sign, kind in _SIGNS.items() if any(key.startswith(sign) for key in attributes))
    return next(chain(named, signs), "")


# Attributes


def _all_attributes(wire: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _ATTRIBUTES:
        found |= _attributes(wire.get(key))
    found |= {key.removeprefix("attributes."): value for key, value in wire.items() if key.startswith("attributes.")}
    if "traceId" in wire and "input" in wire:  # Langfuse has no attributes of its own
        told = {"input": "input.value", "output": "output.value", "model": "gen_ai.request.model"}
        found |= {name: wire[key] for key, name in told.items() if wire.get(key) is not None}
        usage = fields(wire.get("usageDetails")) or fields(wire.get("usage"))
        found |= {f"gen_ai.usage.{key}_tokens": value for key, value in usage.items()}
    return found


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes under dotted names, be they a list of keys and values, nested objects, or such names already."""
    if isinstance(value, list):
        return {text(entry.get("key")): _plain(entry.get("value")) for entry in value if isinstance(entry, dict)}
    found: dict[str, Any] = {}
    waiting = [("", fields(value))]
    while waiting:
        prefix, inner = waiting.pop()
        for key, one in inner.items():
            if isinstance(one, dict) and one:
                waiting.append((f"{prefix}{key}.", one))
            else:
                found[f"{prefix}{key}"] = one
    return found


def _plain(value: Any) -> Any:
    """A value of OTLP: an object whose one field names its type."""
    if not isinstance(value, dict) or len(value) != 1:
        return None if value == {} else value
    [(kind, found)] = value.items()
    match kind.replace("_", "").lower():
        case "stringvalue" | "boolvalue" | "doublevalue" | "bytesvalue":
            return found
        case "intvalue":
            return int(found) if isinstance(found, str) and found.lstrip("-").isdigit() and len(found) < 20 else found
        case "arrayvalue":
            return [_plain(item) for item in items(fields(found).get("values"))]
        case "kvlistvalue":
            return _attributes(items(fields(found).get("values")))
        case _:
            return value


def _event(wire: dict[str, Any]) -> Event:
    """An event of a span, or a log record that belongs to one: what its body says stands beside its attributes."""
    told = wire.get("attributes") or wire.get("Attributes") or wire.get("log_attributes")
    attributes = _attributes(told)
    body = _plain(wire.get("body"))
    name = text(wire.get("name")) or text(wire.get("Name")) or text(wire.get("eventName"))
    return Event(name or text(attributes.get("event.name")), attributes | fields(body))


# Times


def moment(value: Any) -> datetime | None:
    """A time as spans have it: as text, in nanoseconds since 1970, or in seconds and nanoseconds."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25:
        value = int(value)
    match value:
        case [int(seconds), int(nanoseconds)]:
            return timestamp(seconds + nanoseconds / 1e9)
        case int() if value > 10**17:
            return timestamp(value / 1e9)
        case int() if value > 10**14:
            return timestamp(value / 1e6)
    return timestamp(value)


_LASTED = re.compile(r"PT(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:([\d.]{1,20})S)?")


def _end(start: datetime | None, lasted: Any) -> datetime | None:
    """When a span ended that says how long it lasted: `PT1M4.5S`."""
    found = _LASTED.fullmatch(text(lasted))
    if not start or not found:
        return None
    try:
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return start + timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except (ValueError, OverflowError):
        return None
