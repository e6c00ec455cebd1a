"""What the agent asked for again after it was left out: it stays for a good while, or the agent would ask for ever.

The same call, a read of the same file, or a call that names the id of a stand-in: its result is pinned for some calls,
and for twice as many each time that it is asked for again.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from thresher.edits import Edit, targets_of
from thresher.model import History, Message, Occurrence, ToolCall, ToolResult, content_id
from thresher.model.tools import tool_use
from thresher.window.ledger import Ledger

PIN = "pin:"
HOLD = 6
"""Calls for which what was asked for once more stays."""
MOST = 10
"""Times after which it does not stay longer still."""
ID = re.compile(r"\bt1:[0-9a-f]{8,32}\b")
"""The id of a stand-in, as a model copies it."""


class Asked(NamedTuple):
    """When something was asked for once more, and how often in all."""

    when: int
    times: int


class Asking:
    """Knows what was left out by what would bring it back."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gone: set[str] = set()
        """Calls whose results were left out, and files: content ids and paths."""
        self._waiting: set[str] = set()
        """Ids of calls that ask again."""
        self._asked: dict[str, Asked] = {name: _asked(value) for name, value in ledger.facts(PIN).items()}
        """Contents that stay for a while."""

    def learn(self, history: History, edits: Iterable[Edit]) -> None:
        """Take note of what some edits leave out."""
        gone: set[Occurrence] = {target for edit in edits for target in targets_of(edit)}
        for link in history.links:
            result = link.chain.result
            if result is not None and history.occurrence(result) in gone:
                self._gone.update(_names(link.call))

    def pinned(self, calls: int) -> set[str]:
        """The contents that stay when the model has been called so often."""
        return {name for name, (when, times) in self._asked.items() if 0 <= calls - when < HOLD * 2 ** (times - 1)}

    def notice(self, messages: Iterable[Message], calls: int) -> None:
        """See whether new messages ask for what was left out, or bring it back, when so many calls were made."""
        if not self._gone:
            return
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall) and (
                    not self._gone.isdisjoint(_names(part)) or ID.search(part.arguments)
                ):
                    self._waiting.add(part.id)
                elif isinstance(part, ToolResult) and part.call_id in self._waiting:
                    self._waiting.discard(part.call_id)
                    self._pin(content_id(part), calls)

    def _pin(self, content: str, calls: int) -> None:
        before = self._asked.get(content)
        self._asked[content] = Asked(calls, min(before.times + 1, MOST) if before is not None else 1)
        self._ledger.note(PIN + content, self._asked[content])


def _asked(value: Any) -> Asked:
    """As a ledger has it; an older one says only that it was."""
    match value:
        case [int(when), int(times)]:
            return Asked(when, times)
        case _:
            return Asked(0, 1)


def _names(call: ToolCall) -> tuple[str, ...]:
    """By what a call would be known if it came again."""
    use = tool_use(call)
    reads = use.category == "file_read" and use.path
    return (content_id(call), f"path {use.path}") if reads else (content_id(call),)
