"""Reconstruct the requests of a recorded conversation: the rows of the last request, and the end of each earlier one.

A recording is repaired and encoded in the dialect of its vendor, because content that the dialect cannot represent was
never sent. In that dialect every request is a prefix of the next one, so one list of rows and a list of stops
represents all of them. If a dialect merges the rows before and after a call, that call has no separate request and is
skipped.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
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
"""Token counter of a replay: a fast estimate, because each strategy sends thousands of requests."""


class Recording(Struct, frozen=True):
    """One conversation, ready to replay."""

    trace: Trace
    """The trace of the encoded history: the messages outside the rows, then one message per row."""
    dialect: str
    model: str
    token_weights: TokenWeights
    body: dict[str, Any]
    """The last request, without its rows."""
    rows: tuple[Any, ...]

    @property
    def system_message_count(self) -> int:
        """Number of messages outside the rows: system text."""
        return len(self.trace.history) - len(self.rows)

    @property
    def rows_field(self) -> str:
        """The body field that contains the rows."""
        return find_rows_field(self.dialect)


def find_rows_field(dialect: str) -> str:
    """Return the body field of a dialect that contains the rows."""
    return resolve_window_dialect(dialect).messages_field


def build_session_recordings(session: Session) -> Iterator[Recording]:
    """Yield a recording for each segment with model calls, in a session and in its sub-agents."""
    recordings = (build_recording(trace.history, trace.name) for trace in trace_session(session))
    yield from (recording for recording in recordings if recording.trace.calls)


def build_recording(segment: History, name: str = "") -> Recording:
    """Return the recording of one segment."""
    whole = repair(segment).history
    scale = token_weights_for(whole, counter=COUNTER)
    dialect = find_vendor_dialect(scale.vendor).name
    body = dict(emit_with_losses(whole, dialect, body=True).value)
    rows = body.pop(find_rows_field(dialect))
    history = parse({**body, find_rows_field(dialect): rows}, dialect)
    beside = len(history) - len(rows)
    calls = [
        RecordedCall(call.time, stop + beside)
        for call, stop in _find_request_stops(whole, trace_history(whole).calls, dialect, rows)
    ]
    stops = [call.stop for call in calls]
    blocks = trace_history(history, name).blocks
    visible_blocks = tuple(structs.replace(block, visible=bisect_right(stops, block.place.message)) for block in blocks)
    trace = Trace(name, history, tuple(calls), visible_blocks)
    return Recording(trace, dialect, find_model_name(segment), scale, body, tuple(rows))


def _find_request_stops(
    whole: History, calls: Sequence[RecordedCall], dialect: str, rows: Sequence[Any]
) -> Iterator[tuple[RecordedCall, int]]:
    """Yield each call and the number of rows in its request. Skip a request that is not a prefix of the last one."""
    requests = [call for call in calls if call.stop and whole[call.stop - 1].role != "assistant"]
    cuts = [0, *dict.fromkeys(call.stop for call in requests), len(whole)]
    chunks = [_emit_rows(whole, start, stop, dialect) for start, stop in pairwise(cuts)]
    if list(chain.from_iterable(chunks)) == list(rows):
        counts = dict(zip(cuts[1:], accumulate(map(len, chunks)), strict=True))
        yield from ((call, counts[call.stop]) for call in requests)
        return
    # Here the encoding of a row depends on the rows before it, so encode each request separately.
    for call in requests:
        prefix = _emit_rows(whole, 0, call.stop, dialect)
        if prefix == list(rows[: len(prefix)]):
            yield call, len(prefix)


def _emit_rows(whole: History, start: int, stop: int, dialect: str) -> list[Any]:
    body = emit_with_losses(structs.replace(whole, messages=whole.messages[start:stop]), dialect, body=True).value
    return list(body[find_rows_field(dialect)])
