"""Rows of a chat, each read for itself, to a conversation: calls with the words they belong to, results with calls.

A result is paired by the id it names. One that names none answers the oldest open call of its tool, or of any, among
the calls made last. A call without an id, or with one that another has too, is named by its place.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from msgspec.structs import replace

from thresher.model import Message
from thresher.model.open_calls import OpenCalls
from thresher.model.parts import Part, Text, ToolCall, ToolResult

MAX_RESULT_PARTS = 100
"""Pieces of one result."""
_CALL_ANNOUNCEMENT = re.compile(r"Tool call (\S+): calling ")


def pair_chat_messages(messages: Iterable[Message], before: int = 0) -> list[Message]:
    """The messages as a conversation: every call with an id of its own, every result with the id of its call.

    `before` is how many messages stand before them, where places are counted on.
    """
    pairs = _PendingCalls()
    joined = [*_join_call_messages(_separate_results(messages))]
    told: list[Message] = []
    for number, (message, after) in enumerate(zip_longest(joined, joined[1:]), before + 1):
        for paired in _pair_message(message, number, pairs):
            if told and _continues_result(told[-1], paired):
                told[-1] = _merge_results(told[-1], paired)
            else:
                told.append(paired)
        if message.role == "tool" and (after is None or after.role != "tool") and told[-1].role == "tool":
            told[-1] = replace(told[-1], parts=(*told[-1].parts, *pairs.make_empty_results()))
    return told


def _continues_result(last: Message, message: Message) -> bool:
    """Whether a result is more of the one before: what was printed, and then what went wrong."""
    if last.role != "tool" or message.role != "tool" or len(message.parts) != 1:
        return False
    before, more = [*last.results][-1], next(message.results)
    return before.call_id == more.call_id and len(before.content) < MAX_RESULT_PARTS


def _merge_results(last: Message, message: Message) -> Message:
    *others, result = last.results
    more = next(message.results)
    both = replace(result, content=(*result.content, *more.content), is_error=result.is_error or more.is_error)
    return replace(last, parts=(*others, both))


def _separate_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Results in messages of their own: before what a person says with them, after what a model does."""
    for message in messages:
        results = tuple(message.results)
        if not results or (message.role == "tool" and len(results) == len(message.parts)):
            yield message
            continue
        others = replace(message, parts=tuple(p for p in message.parts if not isinstance(p, ToolResult)))
        given = Message("tool", results, author="tool", id=message.id, time=message.time, source=message.source)
        if message.role == "tool":
            others = replace(others, role="user")
        yield from (given, others) if message.role == "user" else (others, given)


def _join_call_messages(messages: Iterable[Message]) -> Iterator[Message]:
    """A message that is only calls goes to the words of the model right before it."""
    last: Message | None = None
    for message in messages:
        if not message.parts:
            continue
        if last and last.role == message.role == "assistant" and _is_calls_only(message) and not _is_calls_only(last):
            last = replace(last, parts=(*_drop_call_announcements(last, message), *message.parts))
            continue
        if last:
            yield last
        last = message
    if last:
        yield last


def _is_calls_only(message: Message) -> bool:
    """Whether a message is only calls, and no answer of its own: that would have its bill, or its model."""
    return all(isinstance(part, ToolCall) for part in message.parts) and not (message.usage or message.model)


def _drop_call_announcements(said: Message, called: Message) -> list[Part]:
    """What is said, without a text that only tells the calls which follow (smolagents)."""
    ids = {call.id for call in called.calls}
    told = (_CALL_ANNOUNCEMENT.match(part.text) if isinstance(part, Text) else None for part in said.parts)
    return [part for part, found in zip(said.parts, told, strict=True) if not (found and found[1] in ids)]


class _PendingCalls:
    """Calls that wait for their results."""

    def __init__(self) -> None:
        self._used_ids: set[str] = set()
        self._open_by_given_id = OpenCalls[str]()
        self._round = 0
        """Counts the groups of calls that are answered together."""
        self._open_calls: dict[str, str] = {}
        """The calls made last that wait: id and tool."""
        self._open_by_tool: dict[str, deque[str]] = defaultdict(deque)
        self._answering = False
        self._result_ids: list[str] = []
        """The ids that the results of these calls came with."""

    def add_call(self, call: ToolCall, place: str) -> str:
        if self._answering:
            self._open_calls, self._open_by_tool, self._result_ids, self._answering = {}, defaultdict(deque), [], False
            self._round += 1
        name = call.id or place
        while name in self._used_ids:
            name = place if name == call.id else name + "-"
        self._used_ids.add(name)
        if call.id:
            self._open_by_given_id.add(call.id, self._round, name)
        self._open_calls[name] = call.name
        self._open_by_tool[call.name].append(name)
        return name

    def match_result(self, result: ToolResult) -> str:
        """The id of the call that is answered; empty where no call waits for it."""
        self._answering = True
        self._result_ids.append(result.call_id)
        if result.call_id:
            name = self._open_by_given_id.answer(result.call_id) or result.call_id
        else:
            name = self._find_oldest_open(result.name) or next(iter(self._open_calls), "")
        self._open_calls.pop(name, None)
        return name

    def make_empty_results(self) -> list[ToolResult]:
        """Where one result without an id came for several calls (smolagents): an empty one for each of the others."""
        return [ToolResult(name) for name in self._open_calls] if self._result_ids == [""] else []

    def _find_oldest_open(self, tool: str) -> str:
        waiting = self._open_by_tool.get(tool, deque())
        while waiting and waiting[0] not in self._open_calls:
            waiting.popleft()
        return waiting[0] if waiting else ""


def _pair_message(message: Message, number: int, pairs: _PendingCalls) -> Iterator[Message]:
    if message.role == "assistant" and any(message.calls):
        parts = tuple(
            replace(part, id=pairs.add_call(part, f"call-{number}-{place}")) if isinstance(part, ToolCall) else part
            for place, part in enumerate(message.parts, 1)
        )
        yield replace(message, parts=parts)
    elif message.role == "tool":
        results = tuple(replace(result, call_id=pairs.match_result(result)) for result in message.results)
        if paired := tuple(result for result in results if result.call_id):
            yield replace(message, parts=paired)
        for result in results:
            if not result.call_id and result.content:  # no call is on record: it is what was said, and a tool said it
                yield replace(message, role="user", parts=result.content)
    else:
        yield message
