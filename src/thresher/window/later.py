"""Summaries that a model writes: asked for when folds are made, taken into the plan when they are there.

Until then, or if none comes, what was written without a model stands, and the loop never waits unless it was told to.
A text that comes later enters at the next re-plan, for the beginning changes then anyway.
"""

from collections.abc import Callable
from threading import Thread as Worker
from typing import Literal

from thresher.edits import Fold, Plan
from thresher.model import History
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
        self._workers: list[Worker] = []
        self.open: dict[str, SummaryRequest] = {}
        """Requests that nobody has answered yet, by id."""

    def taken(self, history: History, plan: Plan, scale: Scale) -> Plan:
        """The plan with the texts that are there; if the loop is to wait for them, with all that can be had."""
        if not any(isinstance(edit, Fold) for edit in plan.edits):
            return plan
        texts = self._ledger.facts(SUMMARY)
        if self._when == "now":
            self._ask(history, tuple(one for one in open_requests(history, plan) if one.id not in texts))
            texts = self._ledger.facts(SUMMARY)
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
        """Take a text for a request."""
        self._ledger.note(SUMMARY + id, text)
        self.open.pop(id, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is being written is written, or so long."""
        for worker in self._workers:
            worker.join(seconds)

    def _ask(self, history: History, requests: tuple[SummaryRequest, ...]) -> None:
        if self._summariser is not None:
            for id_, text in answer(requests, history, self._summariser, self._failed).items():
                self.fill(id_, text)

    def _failed(self, error: Exception) -> None:
        heard = getattr(self._summariser, "on_failure", None)
        if heard is not None:
            heard(error)
        self._on_failure(f"a summary was not written, and the one without a model stands: {error}")
