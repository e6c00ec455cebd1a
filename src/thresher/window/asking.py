"""What the agent asked for again after it was left out: it stays from then on, or the agent would ask for ever.

The same call, a read of the same file, or a call that names the id of a stand-in: its result is pinned.
"""

import re
from collections.abc import Iterable

from thresher.edits import Edit, targets_of
from thresher.model import History, Message, Occurrence, ToolCall, ToolResult, content_id
from thresher.model.tools import tool_use
from thresher.window.ledger import Ledger

PIN = "pin:"
ID = re.compile(r"\bt1:[0-9a-f]{8,32}\b")
"""The id of a stand-in, as a model copies it."""


class Asking:
    """Knows what was left out by what would bring it back."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gone: set[str] = set()
        """Calls whose results were left out, and files: content ids and paths."""
        self._waiting: set[str] = set()
        """Ids of calls that ask again."""
        self.pinned: frozenset[str] = frozenset(ledger.facts(PIN))
        """Contents that stay."""

    def learn(self, history: History, edits: Iterable[Edit]) -> None:
        """Take note of what some edits leave out."""
        gone: set[Occurrence] = {target for edit in edits for target in targets_of(edit)}
        for link in history.links:
            result = link.chain.result
            if result is not None and history.occurrence(result) in gone:
                self._gone.update(_names(link.call))

    def notice(self, messages: Iterable[Message]) -> None:
        """See whether new messages ask for what was left out, or bring it back."""
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
                    self._pin(content_id(part))

    def _pin(self, content: str) -> None:
        if content not in self.pinned:
            self.pinned |= {content}
            self._ledger.note(PIN + content, True)


def _names(call: ToolCall) -> tuple[str, ...]:
    """By what a call would be known if it came again."""
    use = tool_use(call)
    reads = use.category == "file_read" and use.path
    return (content_id(call), f"path {use.path}") if reads else (content_id(call),)
