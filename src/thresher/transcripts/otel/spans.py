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

from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_dict, as_text, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.source import SourceFile

SpanKind = Literal["llm", "agent", "tool", ""]

_ID_KEYS = ("span_id", "spanId", "spanID", "context.span_id", "id")
_PARENT_KEYS = ("parent_span_id", "parentSpanId", "parent_id", "parentObservationId", "parentId")
_TRACE_KEYS = ("trace_id", "traceId", "traceID", "context.trace_id")
_START_KEYS = ("start_time", "startTime", "startTimeUnixNano", "start_time_unix_nano", "timestamp")
_END_KEYS = ("end_time", "endTime", "endTimeUnixNano", "end_time_unix_nano")
_ATTRIBUTE_KEYS = ("span_attributes", "attributes")
_CONTAINER_KEYS = (
    *("spans", "child_spans", "children", "observations", "data", "traces", "resourceSpans", "resource_spans"),
    *("batches", "scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    *("resourceLogs", "scopeLogs", "logRecords", "resource_logs", "scope_logs", "log_records"),
)
"""Names under which spans stand, or what holds them."""

_KIND_WORDS: dict[SpanKind, str] = {
    "llm": "llm generation chat text_completion completion generate_content call_llm ai.generatetext.dogenerate"
    " ai.streamtext.dostream ai.generateobject.dogenerate ai.streamobject.dostream",
    "agent": "agent invoke_agent ai.generatetext ai.streamtext ai.generateobject ai.streamobject",
    "tool": "tool execute_tool ai.toolcall",
}
_KINDS_BY_WORD: dict[str, SpanKind] = {word: kind for kind, words in _KIND_WORDS.items() for word in words.split()}
"""What the vocabularies call a model's call, an agent's run and a tool's, in lower case."""
_KIND_KEYS = (
    *("openinference.span.kind", "gen_ai.operation.name", "langfuse.observation.type", "traceloop.span.kind"),
    *("gen_ai.span.kind", "llm.request.type", "ai.operationId", "span_kind", "type"),
)
_KINDS_BY_ATTRIBUTE_PREFIX: dict[str, SpanKind] = {
    "gen_ai.prompt": "llm",
    "llm.input_messages": "llm",
    "gen_ai.tool.call.id": "tool",
    "pydantic_ai.all_messages": "agent",
    "all_messages_events": "agent",
}
"""How the names of attributes begin where no kind is told."""
MAX_PROBED_LINES = 2000
"""Lines in which a first span is looked for."""
MAX_SPAN_DEPTH = 100
"""Spans around a span that are looked at; parents may form a circle."""
ATTRIBUTE_PREFIXES = ("openinference.", "gen_ai.", "llm.", "traceloop.", "langfuse.", "ai.")
_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class SpanEvent(NamedTuple):
    """Something that was noted in a span."""

    name: str
    attributes: dict[str, Any]


class OtelSpan(NamedTuple):
    """One span."""

    id: str
    parent_id: str
    trace_id: str
    name: str
    kind: SpanKind
    start: datetime | None
    end: datetime | None
    is_failed: bool
    status_message: str
    """What is said of its end."""
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...]
    resource: dict[str, Any]
    number: int
    """Its number in the file."""
    line: int
    """The line it stands in; in a document, its number."""

    @property
    def key(self) -> str:
        """What it is known by in a file of several traces."""
        return f"{self.trace_id} {self.id}"


class SpanTree(NamedTuple):
    """The spans of a file, and what stands around each."""

    spans: list[OtelSpan]
    by_key: dict[str, OtelSpan]

    def iter_ancestors(self, span: OtelSpan) -> Iterator[OtelSpan]:
        """The spans around a span, from the inside out."""
        at = self.by_key.get(f"{span.trace_id} {span.parent_id}")
        for _ in range(MAX_SPAN_DEPTH):
            if at is None or at is span:
                return
            yield at
            at = self.by_key.get(f"{at.trace_id} {at.parent_id}")

    def enclosing_agents(self, span: OtelSpan) -> list[OtelSpan]:
        """The agents that a span is in, or is, from the inside out."""
        return [one for one in (span, *self.iter_ancestors(span)) if one.kind == "agent"]


def read_spans(source: SourceFile) -> SpanTree:
    """All spans of a file, by the time they started."""
    spans: list[OtelSpan] = []
    logs: dict[str, list[SpanEvent]] = {}
    for line, value in _read_values(source):
        for wire, resource in iter_raw_spans(value):
            try:
                if is_raw_span(wire):
                    spans.append(_parse_span(wire, resource, len(spans) + 1, line))
                elif span_id := _first_text(wire, ("spanId", "span_id")):
                    logs.setdefault(f"{_first_text(wire, _TRACE_KEYS)} {span_id}", []).append(_parse_event(wire))
            except RecursionError:
                source.report("a span is nested too deep to follow", "skipped", line)
    spans = [span._replace(events=(*span.events, *logs.get(span.key, ()))) for span in spans]
    first = min((span.start for span in spans if span.start), default=None)
    if first:
        spans.sort(key=lambda span: (span.start or first).timestamp())
    return SpanTree(spans, {span.key: span for span in spans})


def _read_values(source: SourceFile) -> Iterator[tuple[int, Any]]:
    if source.document is not None:
        yield 0, source.read_document()
        return
    if any(True for _ in source.head):
        yield from ((line, value) for line, _, value in source.records(_JSON_DECODER))
        return
    yield from ((0, value) for value in _read_concatenated_json(source))


_OBJECT_START = re.compile(r"^(?=\{)", re.MULTILINE)
_OPENING_BRACE = re.compile(r"[\s,]*\{")
_LENIENT_DECODER = json.JSONDecoder(strict=False)


def _read_concatenated_json(source: SourceFile) -> Iterator[Any]:
    """Objects that follow each other over many lines, as the console exporter prints them between what others print."""
    others = 0
    for piece in _OBJECT_START.split(_decode_lines(line for _, line in source.lines())):
        place = 0
        while found := _OPENING_BRACE.match(piece, place):
            try:
                value, place = _LENIENT_DECODER.raw_decode(piece, found.end() - 1)
            except (ValueError, RecursionError):
                break
            yield value
        others += bool(piece[place:].strip())
    if others:
        source.report(f"{others} pieces of the file are no JSON", "skipped")


def peek_printed_json(source: SourceFile) -> list[Any]:
    """The first value of a file of values over many lines; none where it is none."""
    lines = (line for _, line in SourceFile(source.path, source.limits).lines())
    first = _decode_lines([next(lines, b"")]).strip()
    if first != "{":
        return []
    written = _decode_lines([b"{", *(line for _, line in zip(range(MAX_PROBED_LINES), lines, strict=False))])
    try:
        return [_LENIENT_DECODER.raw_decode(written)[0]]
    except (ValueError, RecursionError):
        return []


def _decode_lines(lines: Iterable[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace").removeprefix("\ufeff")


def iter_raw_spans(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The spans and log records in a value, each with what is told of the program they come from."""
    waiting: list[tuple[Any, dict[str, Any]]] = [(value, {})]
    while waiting:
        found, resource = waiting.pop()
        if isinstance(found, list):
            waiting += [(item, resource) for item in reversed(found) if isinstance(item, dict)]
            continue
        if not isinstance(found, dict):
            continue
        told = value_at(found, "resource", "attributes")
        resource = {**resource, **_flatten_attributes(told)} if told else resource
        if session := text_at(found, "sessionId"):
            resource = {**resource, "session.id": session}
        if is_raw_span(found) or "body" in found:
            yield found, resource
        waiting += [(found[key], resource) for key in reversed(_CONTAINER_KEYS) if isinstance(found.get(key), list)]


def is_raw_span(wire: Mapping[str, Any]) -> bool:
    """Whether an object is a span: it has an id, belongs to a trace, and tells something of a time."""
    inner = dict_at(wire, "context")
    named = bool(_first_text(wire, _ID_KEYS) or first_text(inner, "span_id", "spanId"))
    placed = bool(_first_text(wire, _TRACE_KEYS) or first_text(inner, "trace_id", "traceId"))
    return named and placed and any(key in wire for key in _START_KEYS) and "body" not in wire


def _first_text(wire: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((found.removeprefix("0x") for key in keys if (found := text_at(wire, key))), "")


def _parse_span(wire: dict[str, Any], resource: dict[str, Any], place: int, line: int) -> OtelSpan:
    inner = dict_at(wire, "context")
    attributes = _merge_attributes(wire)
    start = next(filter(None, (parse_span_time(wire.get(key)) for key in _START_KEYS)), None)
    end = next(filter(None, (parse_span_time(wire.get(key)) for key in _END_KEYS)), None)
    status = wire.get("status") if isinstance(wire.get("status"), dict) else {}
    codes = (wire.get("status_code"), value_at(status, "code"), value_at(status, "status_code"), wire.get("level"))
    code = str(next(filter(None, codes), ""))
    told = text_at(wire, "status_message") or first_text(status, "message", "description")
    return OtelSpan(
        _first_text(wire, _ID_KEYS) or _first_text(inner, ("span_id", "spanId")),
        _first_text(wire, _PARENT_KEYS) or _first_text(dict_at(wire, "parentSpanContext"), ("spanId",)),
        _first_text(wire, _TRACE_KEYS) or _first_text(inner, ("trace_id", "traceId")),
        first_text(wire, "span_name", "name"),
        _infer_kind(wire, attributes),
        start,
        end or _end_from_duration(start, wire.get("duration")),
        code.upper().rpartition("_")[2] in ("ERROR", "2"),
        told or text_at(wire, "statusMessage"),
        attributes,
        tuple(_parse_event(event) for event in list_at(wire, "events") if isinstance(event, dict)),
        resource,
        place,
        line or place,
    )


def _infer_kind(wire: dict[str, Any], attributes: dict[str, Any]) -> SpanKind:
    words = ((text_at(attributes, key) or text_at(wire, key)).lower() for key in _KIND_KEYS)
    named = (_KINDS_BY_WORD[word] for word in words if word in _KINDS_BY_WORD)
    signs = (
        kind for sign, kind in _KINDS_BY_ATTRIBUTE_PREFIX.items() if any(key.startswith(sign) for key in attributes)
    )
    return next(chain(named, signs), "")


# Attributes


def _merge_attributes(wire: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _ATTRIBUTE_KEYS:
        found |= _flatten_attributes(wire.get(key))
    found |= {key.removeprefix("attributes."): value for key, value in wire.items() if key.startswith("attributes.")}
    if "traceId" in wire and "input" in wire:  # Langfuse has no attributes of its own
        told = {"input": "input.value", "output": "output.value", "model": "gen_ai.request.model"}
        found |= {name: wire[key] for key, name in told.items() if wire.get(key) is not None}
        usage = dict_at(wire, "usageDetails") or dict_at(wire, "usage")
        found |= {f"gen_ai.usage.{key}_tokens": value for key, value in usage.items()}
    return found


def _flatten_attributes(value: Any) -> dict[str, Any]:
    """Attributes under dotted names, be they a list of keys and values, nested objects, or such names already."""
    if isinstance(value, list):
        return {
            text_at(entry, "key"): _decode_otlp_value(entry.get("value")) for entry in value if isinstance(entry, dict)
        }
    found: dict[str, Any] = {}
    waiting = [("", as_dict(value))]
    while waiting:
        prefix, inner = waiting.pop()
        for key, one in inner.items():
            if isinstance(one, dict) and one:
                waiting.append((f"{prefix}{key}.", one))
            else:
                found[f"{prefix}{key}"] = one
    return found


def _decode_otlp_value(value: Any) -> Any:
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
            return [_decode_otlp_value(item) for item in list_at(found, "values")]
        case "kvlistvalue":
            return _flatten_attributes(list_at(found, "values"))
        case _:
            return value


def _parse_event(wire: dict[str, Any]) -> SpanEvent:
    """An event of a span, or a log record that belongs to one: what its body says stands beside its attributes."""
    told = wire.get("attributes") or wire.get("Attributes") or wire.get("log_attributes")
    attributes = _flatten_attributes(told)
    body = _decode_otlp_value(wire.get("body"))
    name = first_text(wire, "name", "Name", "eventName")
    return SpanEvent(name or text_at(attributes, "event.name"), attributes | as_dict(body))


# Times


def parse_span_time(value: Any) -> datetime | None:
    """A time as spans have it: as text, in nanoseconds since 1970, or in seconds and nanoseconds."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25:
        value = int(value)
    match value:
        case [int(seconds), int(nanoseconds)]:
            return parse_time(seconds + nanoseconds / 1e9)
        case int() if value > 10**17:
            return parse_time(value / 1e9)
        case int() if value > 10**14:
            return parse_time(value / 1e6)
    return parse_time(value)


_ISO_DURATION = re.compile(r"PT(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:([\d.]{1,20})S)?")


def _end_from_duration(start: datetime | None, lasted: Any) -> datetime | None:
    """When a span ended that says how long it lasted: `PT1M4.5S`."""
    found = _ISO_DURATION.fullmatch(as_text(lasted))
    if not start or not found:
        return None
    try:
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return start + timedelta(hours=hours, minutes=minutes, seconds=seconds)
    except (ValueError, OverflowError):
        return None
