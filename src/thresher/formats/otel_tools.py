"""What tools gave, by their spans: the results that no later call of a model was given, and which of them failed.

A tool's span answers the call whose id it names. Most name none: then it is the next run of that tool, by the same
agent, between the answer that asks for it and the next call of the model.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import structs

from thresher.formats.otel_messages import result_of, tool_of
from thresher.formats.otel_spans import Span, Tree
from thresher.formats.thread import Ask, Thread
from thresher.model import History, Message, ToolResult


class Tools:
    """The spans of tools, by the calls that they may answer."""

    def __init__(self, tree: Tree) -> None:
        """In the order of time."""
        self._by_id: dict[str, Span] = {}
        self._waiting: dict[tuple[str, str], deque[Span]] = defaultdict(deque)
        for span in tree.spans:
            if span.kind != "tool":
                continue
            name, call_id = tool_of(span)
            agents = tree.agents(span)
            if call_id:
                self._by_id[call_id] = span
            else:
                self._waiting[agents[0].id if agents else span.trace, name].append(span)

    def given_to(self, thread: Thread) -> tuple[list[History], dict[str, str]]:
        """A thread with the results that tools gave, and the call that each span of a tool answers."""
        after = {ask.place: later for ask, later in zip(thread.asks, [*thread.asks[1:], None], strict=True)}
        calls: dict[str, str] = {}
        histories = []
        for history in thread.histories():
            ran: dict[str, Span] = {}
            for message in history:
                ask = thread.answers.get(message.id) if not message.carried else None
                for call in message.calls if ask else ():
                    span = self._by_id.get(call.id) or self._next(ask, after[ask.place], call.name) if ask else None
                    if span and call.id:
                        ran[call.id] = span
                        calls[span.id] = call.id
            histories.append(structs.replace(history, messages=tuple(_answered(history, ran))))
        return histories, calls

    def _next(self, ask: Ask, later: Ask | None, name: str) -> Span | None:
        """The next run of a tool between a call and the one after it."""
        waiting = self._waiting.get((ask.scope, name))
        while waiting and waiting[0].start and ask.start and waiting[0].start < ask.start:
            waiting.popleft()
        if not waiting:
            return None
        end = later.start if later else None
        return waiting.popleft() if not (end and waiting[0].start and waiting[0].start >= end) else None


def _answered(history: History, ran: Mapping[str, Span]) -> Iterator[Message]:
    given = {result.call_id for message in history for result in message.results}
    for message in history:
        failed = any(result.call_id in ran and ran[result.call_id].failed for result in message.results)
        parts = tuple(_failed(part, ran) for part in message.parts) if failed else message.parts
        yield structs.replace(message, parts=parts) if failed else message
        missing = [call for call in message.calls if call.id in ran and call.id not in given]
        results = [result for call in missing if (result := result_of(ran[call.id], call.id, call.name))]
        if results:
            span = ran[missing[-1].id]
            place = structs.replace(message.source, line=span.line) if message.source else None
            yield Message("tool", tuple(results), author="tool", id=f"{span.place}", time=span.end, source=place)


def _failed(part: Any, ran: Mapping[str, Span]) -> Any:
    is_one = isinstance(part, ToolResult) and part.call_id in ran and ran[part.call_id].failed
    return structs.replace(part, is_error=True) if is_one else part
