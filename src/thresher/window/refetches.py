"""Detect refetches: the agent requests removed content again, and the window then keeps it for a while.

A refetch repeats a call whose result was removed, reads the same file, or names the id of a placeholder. The result of
a refetch stays pinned for some calls, and for twice as many after each further refetch of the same content. Otherwise
the window could remove the content and the agent could request it again, forever.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from thresher.edits import Edit, list_targets
from thresher.model import History, Message, ToolCall, ToolResult, content_id
from thresher.model.tool_calls import describe_tool_call
from thresher.window.ledger import Ledger

PIN_FACT_PREFIX = "pin:"
BASE_PIN_CALLS = 6
"""Number of calls for which a result stays pinned after its first refetch."""
MAX_REFETCH_COUNT = 10
"""Number of refetches after which the number of pinned calls no longer doubles."""
PLACEHOLDER_ID_PATTERN = re.compile(r"\bt1:[0-9a-f]{8,32}\b")
"""The id of a placeholder, as a model copies it."""


class Refetch(NamedTuple):
    """Call number of the latest refetch of some content, and the number of its refetches."""

    at_call: int
    times: int


class RefetchTracker:
    """Detect calls that request removed content again, and pin their results."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._removed_keys: set[str] = set()
        """Content ids of calls whose results were removed, and paths of the files that these calls read."""
        self._pending_call_ids: set[str] = set()
        """Ids of refetching calls that have no result yet."""
        self._refetches: dict[str, Refetch] = {}

    def load_pins(self) -> None:
        """Load the pins that earlier processes have stored."""
        pins = self._ledger.find_facts(PIN_FACT_PREFIX)
        self._refetches = {content: _decode_refetch(value) for content, value in pins.items()}

    def record_removed(self, history: History, edits: Iterable[Edit]) -> None:
        """Record the calls whose results these edits remove."""
        removed = {target for edit in edits for target in list_targets(edit)}
        for link in history.links:
            result = link.chain.result
            if result is not None and history.occurrence(result) in removed:
                self._removed_keys.update(_refetch_keys(link.call))

    def pinned_contents(self, calls: int) -> set[str]:
        """Return the content ids that are still pinned after this number of model calls."""
        return {
            content
            for content, (at_call, times) in self._refetches.items()
            if 0 <= calls - at_call < BASE_PIN_CALLS * 2 ** (times - 1)
        }

    def detect_refetches(self, messages: Iterable[Message], calls: int) -> None:
        """Find refetching calls in new messages, and pin their results."""
        if not self._removed_keys:
            return
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall) and self._is_refetch(part):
                    self._pending_call_ids.add(part.id)
                elif isinstance(part, ToolResult) and part.call_id in self._pending_call_ids:
                    self._pending_call_ids.discard(part.call_id)
                    self._pin(content_id(part), calls)

    def _is_refetch(self, call: ToolCall) -> bool:
        if not self._removed_keys.isdisjoint(_refetch_keys(call)):
            return True
        return PLACEHOLDER_ID_PATTERN.search(call.arguments) is not None

    def _pin(self, content: str, calls: int) -> None:
        times = self._refetches[content].times + 1 if content in self._refetches else 1
        self._refetches[content] = Refetch(calls, min(times, MAX_REFETCH_COUNT))
        self._ledger.set_fact(PIN_FACT_PREFIX + content, self._refetches[content])


def _decode_refetch(value: Any) -> Refetch:
    """Decode a stored refetch; older ledgers store no numbers."""
    match value:
        case [int(at_call), int(times)]:
            return Refetch(at_call, times)
        case _:
            return Refetch(0, 1)


def _refetch_keys(call: ToolCall) -> tuple[str, ...]:
    """Return the keys that identify a refetch of a call: its content id, and the path of the file that it reads."""
    use = describe_tool_call(call)
    reads = use.category == "file_read" and use.path
    return (content_id(call), f"path {use.path}") if reads else (content_id(call),)
