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

from thresher.edits import repair
from thresher.formats import emission, parse
from thresher.model import History, Session
from thresher.replay.trace import Call, Trace, trace_of, traces
from thresher.tokens import Scale, scale_for
from thresher.tokens.scale import model_in
from thresher.window.intake import wire_format

WIRES = {"anthropic": "anthropic", "openai": "openai-responses", "gemini": "gemini"}
"""The wire format of a vendor; all others speak OpenAI's chat."""
COUNTER = "estimate"
"""Every weight in a replay is an estimate: thousands of requests are weighed, each with each way of making them."""


class Recording(Struct, frozen=True):
    """One conversation, ready to be sent again."""

    trace: Trace
    """One message a row, behind those that the format holds beside its rows."""
    wire: str
    model: str
    scale: Scale
    body: dict[str, Any]
    """The last request, without its rows."""
    rows: tuple[Any, ...]

    @property
    def beside(self) -> int:
        """How many messages stand beside the rows: system text."""
        return len(self.trace.history) - len(self.rows)

    @property
    def key(self) -> str:
        """The field of the body that holds the rows."""
        return rows_key(self.wire)


def rows_key(wire: str) -> str:
    """The field of a wire format's body that holds the rows."""
    return wire_format(wire).rows


def recordings(session: Session) -> Iterator[Recording]:
    """Every segment of a session, and of its sub-agents, that was sent to a model."""
    for trace in traces(session):
        found = recorded(trace.history, trace.name)
        if found.trace.calls:
            yield found


def recorded(segment: History, name: str = "") -> Recording:
    """One segment."""
    whole = repair(segment).history
    scale = scale_for(whole, counter=COUNTER)
    wire = WIRES.get(scale.vendor, "openai-chat")
    body = dict(emission(whole, wire, body=True).value)
    rows = body.pop(rows_key(wire))
    history = parse({**body, rows_key(wire): rows}, wire)
    beside = len(history) - len(rows)
    calls = [Call(call.at, stop + beside) for call, stop in _stops(whole, trace_of(whole).calls, wire, rows)]
    stops = [call.stop for call in calls]
    blocks = trace_of(history, name).blocks
    seen = tuple(structs.replace(one, visible=bisect_right(stops, one.place.message)) for one in blocks)
    trace = Trace(name, history, tuple(calls), seen)
    return Recording(trace, wire, model_in(segment), scale, body, tuple(rows))


def _stops(whole: History, calls: Sequence[Call], wire: str, rows: Sequence[Any]) -> Iterator[tuple[Call, int]]:
    """The calls, each with the rows before it; those whose request was no beginning of the last one are left out."""
    asked = [call for call in calls if call.stop and whole[call.stop - 1].role != "assistant"]
    cuts = [0, *dict.fromkeys(call.stop for call in asked), len(whole)]
    chunks = [_rows(whole, start, stop, wire) for start, stop in pairwise(cuts)]
    if [row for chunk in chunks for row in chunk] == list(rows):
        counts, count = {}, 0
        for cut, chunk in zip(cuts[1:], chunks, strict=True):
            count += len(chunk)
            counts[cut] = count
        yield from ((call, counts[call.stop]) for call in asked)
        return
    # What was said before matters to how something is written here: every request is written by itself.
    for call in asked:
        begun = _rows(whole, 0, call.stop, wire)
        if begun == list(rows[: len(begun)]):
            yield call, len(begun)


def _rows(whole: History, start: int, stop: int, wire: str) -> list[Any]:
    written = emission(structs.replace(whole, messages=whole.messages[start:stop]), wire, body=True).value
    return list(written[rows_key(wire)])
