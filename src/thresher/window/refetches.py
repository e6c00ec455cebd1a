"""What the agent asked for again after it was left out: it stays for a good while, or the agent would ask for ever.

The same call, a read of the same file, or a call that names the id of a stand-in: its result is pinned for some calls,
and for twice as many each time that it is asked for again.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from thresher.edits import Edit, list_targets
from thresher.model import History, Message, Occurrence, ToolCall, ToolResult, content_id
from thresher.model.tool_calls import describe_tool_call
from thresher.window.ledger import Ledger

PIN_FACT_PREFIX = "pin:"
BASE_PIN_CALLS = 6
"""Calls for which what was asked for once more stays."""
MAX_REFETCH_COUNT = 10
"""Times after which it does not stay longer still."""
PLACEHOLDER_ID_PATTERN = re.compile(r"\bt1:[0-9a-f]{8,32}\b")
"""The id of a stand-in, as a model copies it."""


class Refetch(NamedTuple):
    """When something was asked for once more, and how often in all."""

    at_call: int
    times: int


class RefetchTracker:
    """Knows what was left out by what would bring it back."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._removed_keys: set[str] = set()
        """Calls whose results were left out, and files: content ids and paths."""
        self._pending_call_ids: set[str] = set()
        """Ids of calls that ask again."""
        self._refetches: dict[str, Refetch] = {
            name: _decode_refetch(value) for name, value in ledger.find_facts(PIN_FACT_PREFIX).items()
        }
        """Contents that stay for a while."""

    def record_removed(self, history: History, edits: Iterable[Edit]) -> None:
        """Take note of what some edits leave out."""
        gone: set[Occurrence] = {target for edit in edits for target in list_targets(edit)}
        for link in history.links:
            result = link.chain.result
            if result is not None and history.occurrence(result) in gone:
                self._removed_keys.update(_refetch_keys(link.call))

    def pinned_contents(self, calls: int) -> set[str]:
        """The contents that stay when the model has been called so often."""
        return {
            name
            for name, (when, times) in self._refetches.items()
            if 0 <= calls - when < BASE_PIN_CALLS * 2 ** (times - 1)
        }

    def detect_refetches(self, messages: Iterable[Message], calls: int) -> None:
        """See whether new messages ask for what was left out, or bring it back, when so many calls were made."""
        if not self._removed_keys:
            return
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall) and (
                    not self._removed_keys.isdisjoint(_refetch_keys(part))
                    or PLACEHOLDER_ID_PATTERN.search(part.arguments)
                ):
                    self._pending_call_ids.add(part.id)
                elif isinstance(part, ToolResult) and part.call_id in self._pending_call_ids:
                    self._pending_call_ids.discard(part.call_id)
                    self._pin(content_id(part), calls)

    def _pin(self, content: str, calls: int) -> None:
        before = self._refetches.get(content)
        self._refetches[content] = Refetch(calls, min(before.times + 1, MAX_REFETCH_COUNT) if before is not None else 1)
        self._ledger.set_fact(PIN_FACT_PREFIX + content, self._refetches[content])


def _decode_refetch(value: Any) -> Refetch:
    """As a ledger has it; an older one says only that it was."""
    match value:
        case [int(when), int(times)]:
            return Refetch(when, times)
        case _:
            return Refetch(0, 1)


def _refetch_keys(call: ToolCall) -> tuple[str, ...]:
    """By what a call would be known if it came again."""
    use = describe_tool_call(call)
    reads = use.category == "file_read" and use.path
    return (content_id(call), f"path {use.path}") if reads else (content_id(call),)
