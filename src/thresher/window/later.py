"""Summaries that a model writes: asked for when folds are made, taken into the plan when they are there.

Until then, or if none comes, what was written without a model stands, and the loop never waits unless it was told to.
A text that comes later enters at the next re-plan that may change what stands where it goes.
"""

from collections import deque
from collections.abc import Callable
from threading import Thread as Worker
from typing import Literal

from msgspec import structs

from thresher.edits import Fold, Plan
from thresher.model import History, Place
from thresher.summarise import Summariser, SummaryRequest, answer, fill, open_requests
from thresher.tokens import Scale
from thresher.window.ledger import Ledger

SUMMARY = "summary:"
Summaries = Literal["background", "now", "never"]
"""When summaries are asked for: while the loop goes on; before it does; not at all, for somebody else fills them."""


class Later:
    """Keeps the requests that are open, and the texts that came."""

    def __init__(
        self, ledger: Ledger, summariser: Summariser | None, when: Summaries, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._ledger = ledger
        self._summariser = summariser
        self._when: Summaries = when if summariser is not None else "never"
        self._worker: Worker | None = None
        self._queue: deque[tuple[History, SummaryRequest]] = deque()
        self._tried: set[str] = set()
        self.open: dict[str, SummaryRequest] = {}
        """Requests that nobody has answered yet, by id."""

    def taken(self, history: History, plan: Plan, scale: Scale, start: Place) -> Plan:
        """The plan with the texts that are there, in folds from a place on: what stands before it shall not change."""
        behind = [edit for edit in plan.edits if isinstance(edit, Fold) and history.places[edit.target] >= start]
        if not behind:
            return plan
        texts = self._ledger.facts(SUMMARY)
        requests = open_requests(history, structs.replace(plan, edits=tuple(behind)))
        if self._when == "now":
            new = tuple(one for one in requests if one.id not in texts and one.id not in self._tried)
            self._tried.update(one.id for one in new)
            self._ask(history, new)
            texts = self._ledger.facts(SUMMARY)
        wanted = {one.id: texts[one.id] for one in requests if one.id in texts}
        return fill(plan, wanted, scale) if wanted else plan

    def decided(self, history: History, plan: Plan) -> None:
        """Take note of what is open now, and have it written."""
        known = self._ledger.facts(SUMMARY)
        self.open = {one.id: one for one in open_requests(history, plan) if one.id not in known}
        new = [one for id_, one in self.open.items() if id_ not in self._tried]
        if self._when == "background" and new:
            self._tried.update(one.id for one in new)
            self._queue.extend((history, one) for one in new)
            if self._worker is None or not self._worker.is_alive():
                self._worker = Worker(target=self._work, daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while self._queue:
            history, request = self._queue.popleft()
            self._ask(history, (request,))

    def fill(self, id: str, text: str) -> None:
        """Take a text for a request."""
        self._ledger.note(SUMMARY + id, text)
        self.open.pop(id, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is being written is written, or so long."""
        if self._worker is not None:
            self._worker.join(seconds)

    def _ask(self, history: History, requests: tuple[SummaryRequest, ...]) -> None:
        if self._summariser is not None:
            for id_, text in answer(requests, history, self._summariser, self._failed).items():
                self.fill(id_, text)

    def _failed(self, error: Exception) -> None:
        heard = getattr(self._summariser, "on_failure", None)
        if heard is not None:
            heard(error)
        self._on_failure(f"a summary was not written, and the one without a model stands: {error}")
