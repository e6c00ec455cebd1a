"""Which of the edits that policies want are not made: what was asked for again stays, and what a judge holds on to."""

from collections.abc import Callable, Sequence

from thresher.edits import Edit
from thresher.model import History
from thresher.model.tools import Link
from thresher.summarise import Judge
from thresher.window.asking import Asking
from thresher.window.ledger import Ledger, elided

VERDICT = "verdict:"
Sieved = Callable[[History, Sequence[Edit]], list[Edit]]
"""The edits that may be made, of those that are wanted."""


def everything(_: History, edits: Sequence[Edit]) -> list[Edit]:
    """Nothing is held back: for when it must fit."""
    return list(edits)


class Sieve:
    """Holds edits back; a judge's verdicts are remembered, and what it cannot judge stays."""

    def __init__(self, asking: Asking, ledger: Ledger, judge: Judge | None) -> None:
        self._asking = asking
        self._ledger = ledger
        self._judge = judge
        self._stays: dict[str, bool] = dict(ledger.facts(VERDICT)) if judge is not None else {}

    def __call__(self, history: History, edits: Sequence[Edit]) -> list[Edit]:
        """The edits that may be made."""
        asked = self._asking.pinned
        free = [edit for edit in edits if not any(target.content in asked for target in elided([edit]))]
        if self._judge is None:
            return free
        links = _chains(history, free)
        self._hear(
            history, [link for link in links.values() if history.occurrence(link.chain.call).content not in self._stays]
        )
        return [edit for edit in free if not self._holds(history, edit, links)]

    def _holds(self, history: History, edit: Edit, links: dict[str, Link]) -> bool:
        found = (links.get(target.content) for target in elided([edit]))
        return any(link and self._stays.get(history.occurrence(link.chain.call).content, True) for link in found)

    def _hear(self, history: History, links: Sequence[Link]) -> None:
        if self._judge is None or not links:
            return
        for call, stays in self._judge(history, links).items():
            self._stays[call.content] = stays
            self._ledger.note(VERDICT + call.content, stays)


def _chains(history: History, edits: Sequence[Edit]) -> dict[str, Link]:
    """The chains that some edits speak of, by the content of call and of result."""
    wanted = {target for edit in edits for target in elided([edit])}
    found: dict[str, Link] = {}
    for link in history.links:
        for place in (link.chain.call, link.chain.result):
            if place is not None and history.occurrence(place) in wanted:
                found[history.occurrence(place).content] = link
    return found
