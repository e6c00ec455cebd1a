"""A recorded conversation as its API was sent it: the rows of the last request, and where each earlier one stopped.

A recording is repaired and put into the wire format of its vendor, for what that cannot hold nobody sends. There every
request is a beginning of the next one, so all of them are one list of rows and a row of stops. Where a format joins
what came before a call with what came after it, that call has no request of its own and is left out.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, structs

from thresher.dialects import emit_with_losses, parse
from thresher.dialects.table import find_vendor_dialect
from thresher.edits import repair
from thresher.model import History, Session
from thresher.replay.trace import RecordedCall, Trace, trace_history, trace_session
from thresher.tokens import TokenWeights, token_weights_for
from thresher.tokens.weights import find_model_name
from thresher.window.request import resolve_window_dialect

COUNTER = "estimate"
"""Every weight in a replay is an estimate: thousands of requests are weighed, each with each way of making them."""


class Recording(Struct, frozen=True):
    """One conversation, ready to be sent again."""

    trace: Trace
    """One message a row, behind those that the format holds beside its rows."""
    dialect: str
    model: str
    token_weights: TokenWeights
    body: dict[str, Any]
    """The last request, without its rows."""
    rows: tuple[Any, ...]

    @property
    def system_message_count(self) -> int:
        """How many messages stand beside the rows: system text."""
        return len(self.trace.history) - len(self.rows)

    @property
    def rows_field(self) -> str:
        """The field of the body that holds the rows."""
        return find_rows_field(self.dialect)


def find_rows_field(wire: str) -> str:
    """The field of a wire format's body that holds the rows."""
    return resolve_window_dialect(wire).messages_field


def build_session_recordings(session: Session) -> Iterator[Recording]:
    """Every segment of a session, and of its sub-agents, that was sent to a model."""
    for trace in trace_session(session):
        found = build_recording(trace.history, trace.name)
        if found.trace.calls:
            yield found


def build_recording(segment: History, name: str = "") -> Recording:
    """One segment."""
    whole = repair(segment).history
    scale = token_weights_for(whole, counter=COUNTER)
    wire = find_vendor_dialect(scale.vendor).name
    body = dict(emit_with_losses(whole, wire, body=True).value)
    rows = body.pop(find_rows_field(wire))
    history = parse({**body, find_rows_field(wire): rows}, wire)
    beside = len(history) - len(rows)
    calls = [
        RecordedCall(call.time, stop + beside)
        for call, stop in _find_request_stops(whole, trace_history(whole).calls, wire, rows)
    ]
    stops = [call.stop for call in calls]
    blocks = trace_history(history, name).blocks
    seen = tuple(structs.replace(one, visible=bisect_right(stops, one.place.message)) for one in blocks)
    trace = Trace(name, history, tuple(calls), seen)
    return Recording(trace, wire, find_model_name(segment), scale, body, tuple(rows))


def _find_request_stops(
    whole: History, calls: Sequence[RecordedCall], wire: str, rows: Sequence[Any]
) -> Iterator[tuple[RecordedCall, int]]:
    """The calls, each with the rows before it; those whose request was no beginning of the last one are left out."""
    asked = [call for call in calls if call.stop and whole[call.stop - 1].role != "assistant"]
    cuts = [0, *dict.fromkeys(call.stop for call in asked), len(whole)]
    chunks = [_emit_rows(whole, start, stop, wire) for start, stop in pairwise(cuts)]
    if [row for chunk in chunks for row in chunk] == list(rows):
        counts, count = {}, 0
        for cut, chunk in zip(cuts[1:], chunks, strict=True):
            count += len(chunk)
            counts[cut] = count
        yield from ((call, counts[call.stop]) for call in asked)
        return
    # What was said before matters to how something is written here: every request is written by itself.
    for call in asked:
        begun = _emit_rows(whole, 0, call.stop, wire)
        if begun == list(rows[: len(begun)]):
            yield call, len(begun)


def _emit_rows(whole: History, start: int, stop: int, wire: str) -> list[Any]:
    written = emit_with_losses(structs.replace(whole, messages=whole.messages[start:stop]), wire, body=True).value
    return list(written[find_rows_field(wire)])
