"""Summaries that a model writes: asked for when folds are made, taken into the plan when they are there.

Until then, or if none comes, what was written without a model stands, and the loop never waits unless it was told to.
A text that comes later enters at the next re-plan that changes what stands before it anyway.
"""

from threading import Thread as Worker
from typing import Literal

from msgspec import structs

from thresher.edits import Fold, Plan
from thresher.model import History, Place
from thresher.summarise import Summariser, SummaryRequest, answer, fill, open_requests
from thresher.tokens import Scale
from thresher.window.ledger import Edits, Ledger, same

SUMMARY = "summary:"
Summaries = Literal["background", "now", "never"]
"""When summaries are asked for: while the loop goes on; before it does; not at all, for somebody else fills them."""


class Later:
    """Keeps the requests that are open, and the texts that came."""

    def __init__(self, ledger: Ledger, summariser: Summariser | None, when: Summaries) -> None:
        self._ledger = ledger
        self._summariser = summariser
        self._when: Summaries = when if summariser is not None else "never"
        self._workers: list[Worker] = []
        self.open: dict[str, SummaryRequest] = {}
        """Requests that nobody has answered yet, by id."""

    def taken(self, history: History, plan: Plan, before: Edits, scale: Scale) -> Plan:
        """The plan with the texts that are there, in folds that are new or stand behind the first change."""
        folds = [edit for edit in plan.edits if isinstance(edit, Fold)]
        if not folds:
            return plan
        new = [edit for edit in folds if edit.target not in before or not same(before[edit.target], edit)]
        if self._when == "now":
            self._ask(history, open_requests(history, structs.replace(plan, edits=tuple(new))))
        first = _first_change(history, plan, before)
        late = [edit for edit in folds if edit in new or history.places[edit.target] >= first]
        wanted = {one.id for one in open_requests(history, structs.replace(plan, edits=tuple(late)))}
        texts = {id_: text for id_, text in self._ledger.facts(SUMMARY).items() if id_ in wanted}
        return fill(plan, texts, scale) if texts else plan

    def decided(self, history: History, plan: Plan) -> None:
        """Take note of what is open now, and have it written."""
        known = self._ledger.facts(SUMMARY)
        self.open = {one.id: one for one in open_requests(history, plan) if one.id not in known}
        if self._when == "background" and self.open:
            worker = Worker(target=self._ask, args=(history, tuple(self.open.values())), daemon=True)
            self._workers = [*(one for one in self._workers if one.is_alive()), worker]
            worker.start()

    def fill(self, id: str, text: str) -> None:
        """Take a text for an open request."""
        self._ledger.note(SUMMARY + id, text)
        self.open.pop(id, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is being written is written, or so long."""
        for worker in self._workers:
            worker.join(seconds)

    def _ask(self, history: History, requests: tuple[SummaryRequest, ...]) -> None:
        if self._summariser is not None:
            for id_, text in answer(requests, history, self._summariser).items():
                self.fill(id_, text)


def _first_change(history: History, plan: Plan, before: Edits) -> Place:
    changed = [edit.target for edit in plan.edits if edit.target not in before or not same(before[edit.target], edit)]
    kept = {edit.target for edit in plan.edits}
    gone = [target for target in before if target not in kept]
    places = (history.places[target] for target in (*changed, *gone) if target in history.places)
    return min(places, default=Place(len(history), 0))
