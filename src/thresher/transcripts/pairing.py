"""Pair results with calls in chat messages that were parsed one by one, and merge calls into the text before them.

An open call is a call that has no result yet. A group is all calls after one result and before the next. A result with
an id matches the open call with the same id. A result without an id matches a call in the latest group: the oldest open
call of the same tool, else the oldest open call. A call whose id is missing or a duplicate gets a new id, which is made
from the position of the call.
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
"""Size limit for merging: a result with this number of parts is not merged with the next result of the same call."""
_CALL_ANNOUNCEMENT = re.compile(r"Tool call (\S+): calling ")


def pair_chat_messages(messages: Iterable[Message], before: int = 0) -> list[Message]:
    """Return the messages as a conversation. Every call has a unique id, and every result has the id of its call.

    `before` is the number of messages before these. The positions in generated ids start after this number.
    """
    pending = _PendingCalls()
    joined = [*_join_call_messages(_separate_results(messages))]
    paired: list[Message] = []
    for number, (message, following) in enumerate(zip_longest(joined, joined[1:]), before + 1):
        for current in _pair_message(message, number, pending):
            if paired and _continues_result(paired[-1], current):
                paired[-1] = _merge_results(paired[-1], current)
            else:
                paired.append(current)
        if message.role == "tool" and (following is None or following.role != "tool") and paired[-1].role == "tool":
            paired[-1] = replace(paired[-1], parts=(*paired[-1].parts, *pending.make_empty_results()))
    return paired


def _continues_result(last: Message, message: Message) -> bool:
    """Return whether a message has one more result for the last call, for example errors after the printed output."""
    if last.role != "tool" or message.role != "tool" or len(message.parts) != 1:
        return False
    before, more = [*last.results][-1], next(message.results)
    return before.call_id == more.call_id and len(before.content) < MAX_RESULT_PARTS


def _merge_results(last: Message, message: Message) -> Message:
    *others, result = last.results
    more = next(message.results)
    merged = replace(result, content=(*result.content, *more.content), is_error=result.is_error or more.is_error)
    return replace(last, parts=(*others, merged))


def _separate_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Move results to separate messages: before the text of a user message, after the text of any other message."""
    for message in messages:
        results = tuple(message.results)
        if not results or (message.role == "tool" and len(results) == len(message.parts)):
            yield message
            continue
        others = replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ToolResult)))
        answers = Message("tool", results, author="tool", id=message.id, time=message.time, source=message.source)
        if message.role == "tool":
            others = replace(others, role="user")
        yield from (answers, others) if message.role == "user" else (others, answers)


def _join_call_messages(messages: Iterable[Message]) -> Iterator[Message]:
    """Merge a message with only calls into the model's text right before it."""
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
    """Return whether a message has only calls, and no usage or model, which would mark a separate answer."""
    return all(isinstance(part, ToolCall) for part in message.parts) and not (message.usage or message.model)


def _drop_call_announcements(message: Message, following: Message) -> list[Part]:
    """Return the parts of a message without the texts in which smolagents announces the calls that follow."""
    ids = {call.id for call in following.calls}
    matches = (_CALL_ANNOUNCEMENT.match(part.text) if isinstance(part, Text) else None for part in message.parts)
    return [part for part, match in zip(message.parts, matches, strict=True) if not (match and match[1] in ids)]


class _PendingCalls:
    """The calls of a conversation that have no result yet."""

    def __init__(self) -> None:
        self._used_ids: set[str] = set()
        self._open_by_given_id = OpenCalls[str]()
        self._round = 0
        """Number of the current group. The calls of a group are answered together."""
        self._open_calls: dict[str, str] = {}
        """Open calls of the latest group: id → tool."""
        self._open_by_tool: dict[str, deque[str]] = defaultdict(deque)
        self._answering = False
        self._result_ids: list[str] = []
        """Original call ids of the results for this group."""

    def add_call(self, call: ToolCall, default_id: str) -> str:
        if self._answering:
            self._open_calls, self._open_by_tool, self._result_ids, self._answering = {}, defaultdict(deque), [], False
            self._round += 1
        id_ = call.id or default_id
        while id_ in self._used_ids:
            id_ = default_id if id_ == call.id else id_ + "-"
        self._used_ids.add(id_)
        if call.id:
            self._open_by_given_id.add(call.id, self._round, id_)
        self._open_calls[id_] = call.name
        self._open_by_tool[call.name].append(id_)
        return id_

    def match_result(self, result: ToolResult) -> str:
        """Return the id of the matching call; empty if no call is open."""
        self._answering = True
        self._result_ids.append(result.call_id)
        if result.call_id:
            id_ = self._open_by_given_id.answer(result.call_id) or result.call_id
        else:
            id_ = self._find_oldest_open(result.name) or next(iter(self._open_calls), "")
        self._open_calls.pop(id_, None)
        return id_

    def make_empty_results(self) -> list[ToolResult]:
        """Return empty results for all open calls, if the group has only one result and this result has no id.

        smolagents writes one such result for several calls.
        """
        return [ToolResult(id_) for id_ in self._open_calls] if self._result_ids == [""] else []

    def _find_oldest_open(self, tool: str) -> str:
        ids = self._open_by_tool.get(tool, deque())
        while ids and ids[0] not in self._open_calls:
            ids.popleft()
        return ids[0] if ids else ""


def _pair_message(message: Message, number: int, pending: _PendingCalls) -> Iterator[Message]:
    if message.role == "assistant" and any(message.calls):
        parts = tuple(
            replace(part, id=pending.add_call(part, f"call-{number}-{index}")) if isinstance(part, ToolCall) else part
            for index, part in enumerate(message.parts, 1)
        )
        yield replace(message, parts=parts)
    elif message.role == "tool":
        results = tuple(replace(result, call_id=pending.match_result(result)) for result in message.results)
        if matched := tuple(result for result in results if result.call_id):
            yield replace(message, parts=matched)
        for result in results:
            if not result.call_id and result.content:  # a result without a call becomes a text of `tool`
                yield replace(message, role="user", parts=result.content)
    else:
        yield message
