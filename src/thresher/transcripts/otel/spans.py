"""Parse the spans of a trace from any common file layout.

Layouts: trees of spans (TRAIL); OTLP as one document or one export per line, including logs; flat spans of the SDK's
console exporter, Phoenix or Langfuse, as a list, one per line or concatenated. The constants list each field's names in
all layouts. Parsed spans are sorted by time and have flat attributes with dotted names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import msgspec

from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_dict, as_text, bounded_time, dict_at, first_text, list_at, text_at, value_at
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
"""Keys of lists that contain spans, or objects with spans."""

_KIND_WORDS: dict[SpanKind, str] = {
    "llm": "llm generation chat text_completion completion generate_content call_llm ai.generatetext.dogenerate"
    " ai.streamtext.dostream ai.generateobject.dogenerate ai.streamobject.dostream",
    "agent": "agent invoke_agent ai.generatetext ai.streamtext ai.generateobject ai.streamobject",
    "tool": "tool execute_tool ai.toolcall",
}
_KINDS_BY_WORD: dict[str, SpanKind] = {word: kind for kind, words in _KIND_WORDS.items() for word in words.split()}
"""Span kinds by the lower-case words that instrumentation libraries use for them."""
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
"""Span kinds by prefixes of attribute names, for spans that do not name their kind."""
MAX_SNIFFED_SPANS = 200
"""Maximum number of spans to check when detecting the format."""
MAX_PROBED_LINES = 2000
"""Maximum number of lines to parse when searching for the first of several concatenated objects."""
MAX_SPAN_DEPTH = 100
"""Maximum number of ancestors to check. The limit is necessary because parents can form a cycle."""
_ATTRIBUTE_PREFIXES = ("openinference.", "gen_ai.", "llm.", "traceloop.", "langfuse.", "ai.")
_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    attributes: dict[str, Any]


class OtelSpan(NamedTuple):
    """A span with normalized fields."""

    id: str
    parent_id: str
    trace_id: str
    name: str
    kind: SpanKind
    start: datetime | None
    end: datetime | None
    is_failed: bool
    status_message: str
    """Description of the status, such as an error message."""
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...]
    resource: dict[str, Any]
    number: int
    """Number of the span in the file."""
    line: int
    """Line of the span in the file, or the same as `number` if the file is one document."""

    @property
    def key(self) -> str:
        """Key that is unique across the traces of a file."""
        return f"{self.trace_id} {self.id}"


class SpanTree(NamedTuple):
    """The spans of a file, indexed for lookups of ancestors."""

    spans: list[OtelSpan]
    by_key: dict[str, OtelSpan]

    def iter_ancestors(self, span: OtelSpan) -> Iterator[OtelSpan]:
        """Yield the ancestors of a span, the innermost first."""
        ancestor = self.by_key.get(f"{span.trace_id} {span.parent_id}")
        for _ in range(MAX_SPAN_DEPTH):
            if ancestor is None or ancestor is span:
                return
            yield ancestor
            ancestor = self.by_key.get(f"{ancestor.trace_id} {ancestor.parent_id}")

    def enclosing_agents(self, span: OtelSpan) -> list[OtelSpan]:
        """Return the agent spans that contain a span, the innermost first. An agent span contains itself."""
        return [agent for agent in (span, *self.iter_ancestors(span)) if agent.kind == "agent"]


def read_spans(source: SourceFile) -> SpanTree:
    """Read all spans of a file, sorted by start time."""
    spans: list[OtelSpan] = []
    logs: dict[str, list[SpanEvent]] = {}
    for line, value in _read_values(source):
        for wire, resource in _iter_raw_spans(value):
            try:
                if _is_raw_span(wire):
                    spans.append(_parse_span(wire, resource, len(spans) + 1, line))
                elif span_id := _first_text(wire, ("spanId", "span_id")):
                    logs.setdefault(f"{_first_text(wire, _TRACE_KEYS)} {span_id}", []).append(_parse_event(wire))
            except RecursionError:
                source.report("a span is nested too deeply", "skipped", line)
    spans = [span._replace(events=(*span.events, *logs.get(span.key, ()))) for span in spans]
    first = min((span.start for span in spans if span.start), default=None)
    if first:
        spans.sort(key=lambda span: (span.start or first).timestamp())
    return SpanTree(spans, {span.key: span for span in spans})


def _read_values(source: SourceFile) -> Iterator[tuple[int, Any]]:
    if source.document is not None:
        yield 0, source.read_document()
    elif any(True for _ in source.head):
        yield from ((line, value) for line, _, value in source.records(_JSON_DECODER))
    else:
        yield from ((0, value) for value in _read_concatenated_json(source))


_OBJECT_START = re.compile(r"^(?=\{)", re.MULTILINE)
_OPENING_BRACE = re.compile(r"[\s,]*\{")
_LENIENT_DECODER = json.JSONDecoder(strict=False)


def _read_concatenated_json(source: SourceFile) -> Iterator[Any]:
    """Yield JSON objects of many lines each, as the console exporter prints them. Skip other output between them."""
    skipped = 0
    for piece in _OBJECT_START.split(_decode_lines(line for _, line in source.lines())):
        end = 0
        while match := _OPENING_BRACE.match(piece, end):
            try:
                value, end = _LENIENT_DECODER.raw_decode(piece, match.end() - 1)
            except (ValueError, RecursionError):
                break
            yield value
        skipped += bool(piece[end:].strip())
    if skipped:
        source.report(f"{skipped} pieces of the file are not JSON", "skipped")


def _peek_printed_json(source: SourceFile) -> list[Any]:
    """Return the first value of a file with concatenated JSON objects, or an empty list."""
    lines = (line for _, line in SourceFile(source.path, source.limits).lines())
    if next(lines, b"").removeprefix(b"\xef\xbb\xbf").strip() != b"{":
        return []
    text = _decode_lines([b"{", *islice(lines, MAX_PROBED_LINES)])
    try:
        return [_LENIENT_DECODER.raw_decode(text)[0]]
    except (ValueError, RecursionError):
        return []


def _decode_lines(lines: Iterable[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace").removeprefix("\ufeff")


def _iter_raw_spans(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the spans and log records in a value, each with the attributes of its resource."""
    pending: list[tuple[Any, dict[str, Any]]] = [(value, {})]
    while pending:
        item, resource = pending.pop()
        if isinstance(item, list):
            pending += [(child, resource) for child in reversed(item) if isinstance(child, dict)]
        if not isinstance(item, dict):
            continue
        if attributes := value_at(item, "resource", "attributes"):
            resource = {**resource, **_flatten_attributes(attributes)}
        if session := text_at(item, "sessionId"):
            resource = {**resource, "session.id": session}
        if _is_raw_span(item) or "body" in item:
            yield item, resource
        pending += [(item[key], resource) for key in reversed(_CONTAINER_KEYS) if isinstance(item.get(key), list)]


def _is_raw_span(wire: Mapping[str, Any]) -> bool:
    """Return True for a span: an object with a span id, a trace id and a start time."""
    context = dict_at(wire, "context")
    has_id = bool(_first_text(wire, _ID_KEYS) or first_text(context, "span_id", "spanId"))
    has_trace = bool(_first_text(wire, _TRACE_KEYS) or first_text(context, "trace_id", "traceId"))
    return has_id and has_trace and any(key in wire for key in _START_KEYS) and "body" not in wire


def _first_text(wire: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((text.removeprefix("0x") for key in keys if (text := text_at(wire, key))), "")


def _parse_span(wire: dict[str, Any], resource: dict[str, Any], number: int, line: int) -> OtelSpan:
    context = dict_at(wire, "context")
    attributes = _merge_attributes(wire)
    start = next(filter(None, (parse_span_time(wire.get(key)) for key in _START_KEYS)), None)
    end = next(filter(None, (parse_span_time(wire.get(key)) for key in _END_KEYS)), None)
    status = wire.get("status") if isinstance(wire.get("status"), dict) else {}
    codes = (wire.get("status_code"), value_at(status, "code"), value_at(status, "status_code"), wire.get("level"))
    code = str(next(filter(None, codes), ""))
    message = text_at(wire, "status_message") or first_text(status, "message", "description")
    return OtelSpan(
        _first_text(wire, _ID_KEYS) or _first_text(context, ("span_id", "spanId")),
        _first_text(wire, _PARENT_KEYS) or _first_text(dict_at(wire, "parentSpanContext"), ("spanId",)),
        _first_text(wire, _TRACE_KEYS) or _first_text(context, ("trace_id", "traceId")),
        first_text(wire, "span_name", "name"),
        _infer_kind(wire, attributes),
        start,
        end or _end_from_duration(start, wire.get("duration")),
        code.upper().rpartition("_")[2] in ("ERROR", "2"),
        message or text_at(wire, "statusMessage"),
        attributes,
        tuple(_parse_event(event) for event in list_at(wire, "events") if isinstance(event, dict)),
        resource,
        number,
        line or number,
    )


def _infer_kind(wire: dict[str, Any], attributes: dict[str, Any]) -> SpanKind:
    names = ((text_at(attributes, key) or text_at(wire, key)).lower() for key in _KIND_KEYS)
    by_name = (_KINDS_BY_WORD[name] for name in names if name in _KINDS_BY_WORD)
    prefixes = _KINDS_BY_ATTRIBUTE_PREFIX.items()
    by_prefix = (kind for prefix, kind in prefixes if any(key.startswith(prefix) for key in attributes))
    return next(chain(by_name, by_prefix), "")


# Attributes


def _merge_attributes(wire: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in _ATTRIBUTE_KEYS:
        merged |= _flatten_attributes(wire.get(key))
    merged |= {key.removeprefix("attributes."): value for key, value in wire.items() if key.startswith("attributes.")}
    if "traceId" in wire and "input" in wire:  # Langfuse stores these values in fields of the span
        names = {"input": "input.value", "output": "output.value", "model": "gen_ai.request.model"}
        merged |= {name: wire[key] for key, name in names.items() if wire.get(key) is not None}
        usage = dict_at(wire, "usageDetails") or dict_at(wire, "usage")
        merged |= {f"gen_ai.usage.{key}_tokens": value for key, value in usage.items()}
    return merged


def _flatten_attributes(value: Any) -> dict[str, Any]:
    """Flatten attributes (key-value lists, nested objects or flat objects) to dotted names."""
    if isinstance(value, list):
        entries = (entry for entry in value if isinstance(entry, dict))
        return {text_at(entry, "key"): _decode_otlp_value(entry.get("value")) for entry in entries}
    flat: dict[str, Any] = {}
    pending = [("", as_dict(value))]
    while pending:
        prefix, fields = pending.pop()
        for key, field in fields.items():
            if isinstance(field, dict) and field:
                pending.append((f"{prefix}{key}.", field))
            else:
                flat[f"{prefix}{key}"] = field
    return flat


def _decode_otlp_value(value: Any) -> Any:
    """Decode an OTLP value: an object with one key, which names the type."""
    if not isinstance(value, dict) or len(value) != 1:
        return None if value == {} else value
    [(kind, content)] = value.items()
    match kind.replace("_", "").lower():
        case "stringvalue" | "boolvalue" | "doublevalue" | "bytesvalue":
            return content
        case "intvalue":
            is_text = isinstance(content, str) and content.lstrip("-").isdigit() and len(content) < 20
            return int(content) if is_text else content
        case "arrayvalue":
            return [_decode_otlp_value(item) for item in list_at(content, "values")]
        case "kvlistvalue":
            return _flatten_attributes(list_at(content, "values"))
        case _:
            return value


def _parse_event(wire: dict[str, Any]) -> SpanEvent:
    """Parse an event of a span or a log record; fields of a log record's body become attributes."""
    attributes = _flatten_attributes(wire.get("attributes") or wire.get("Attributes") or wire.get("log_attributes"))
    body = _decode_otlp_value(wire.get("body"))
    name = first_text(wire, "name", "Name", "eventName")
    return SpanEvent(name or text_at(attributes, "event.name"), attributes | as_dict(body))


# Times


def parse_span_time(value: Any) -> datetime | None:
    """Parse a time: text, a number of nanoseconds or microseconds since 1970, or a pair of seconds and nanoseconds."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25:
        value = int(value)
    try:
        match value:
            case [int(seconds), int(nanoseconds)]:
                return parse_time(seconds + nanoseconds / 1e9)
            case int() if value > 10**17:
                return parse_time(value / 1e9)
            case int() if value > 10**14:
                return parse_time(value / 1e6)
    except OverflowError:  # an integer beyond the range of a float
        return None
    return parse_time(value)


_ISO_DURATION = re.compile(r"PT(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:([\d.]{1,20})S)?")


def _end_from_duration(start: datetime | None, duration: Any) -> datetime | None:
    """Compute the end of a span from its ISO duration, such as `PT1M4.5S`."""
    match = _ISO_DURATION.fullmatch(as_text(duration))
    if not start or not match:
        return None
    try:
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return bounded_time(start + timedelta(hours=hours, minutes=minutes, seconds=seconds))
    except (ValueError, OverflowError):
        return None


# Detection


def sniff_spans(source: SourceFile) -> int:
    """Match spans with attributes of a known vocabulary. Give other OTLP exports a lower score."""
    document = source.document
    values = [document] if document is not None else [value for value in source.head if isinstance(value, dict)]
    values = values or ([] if source.is_database else _peek_printed_json(source))
    has_spans = False
    for value in values:
        for number, (wire, _) in enumerate(_iter_raw_spans(value)):
            if _is_raw_span(wire):
                has_spans = True
                if any(name.startswith(_ATTRIBUTE_PREFIXES) for name in _attribute_names(wire)):
                    return 3
            if number > MAX_SNIFFED_SPANS:
                break
    is_export = any(key in as_dict(value) for value in values for key in ("resourceSpans", "resource_spans"))
    return (2 if is_export else 0) if has_spans else 0


def is_span_line(row: Any) -> bool:
    """Return whether a line is a span, or an export of spans."""
    return isinstance(row, dict) and (_is_raw_span(row) or "resourceSpans" in row or "resource_spans" in row)


def _attribute_names(wire: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a span's attributes."""
    for key in _ATTRIBUTE_KEYS:
        attributes = wire.get(key)
        if isinstance(attributes, list):
            yield from (text_at(entry, "key") for entry in attributes if isinstance(entry, dict))
        elif isinstance(attributes, dict):
            yield from (f"{name}." for name in attributes)
    yield from (key.removeprefix("attributes.") for key in wire if key.startswith("attributes."))
    if text_at(wire, "type") in ("GENERATION", "AGENT", "TOOL") and "traceId" in wire:
        yield "langfuse.observation"
