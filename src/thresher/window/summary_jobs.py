"""Summaries that a model writes: asked for when folds are made, taken into the plan when they are there.

Until then, or if none comes, what was written without a model stands, and the loop never waits unless it was told to.
A text that comes later enters at the next re-plan that may change what stands where it goes.
"""

from collections import deque
from collections.abc import Callable
from threading import Thread as Worker
from typing import Literal

from msgspec import structs

from thresher.edits import Plan, Summarize
from thresher.model import History, Place
from thresher.summarize import Summarizer, SummaryRequest, fill_summaries, find_summary_requests, write_summaries
from thresher.tokens import TokenWeights
from thresher.window.ledger import Ledger

SUMMARY_FACT_PREFIX = "summary:"
SummaryTiming = Literal["background", "blocking", "never"]
"""When summaries are asked for: while the loop goes on; before it does; not at all, for somebody else fills them."""


class SummaryJobs:
    """Keeps the requests that are open, and the texts that came."""

    def __init__(
        self, ledger: Ledger, summarizer: Summarizer | None, when: SummaryTiming, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._ledger = ledger
        self._summarizer = summarizer
        self._timing: SummaryTiming = when if summarizer is not None else "never"
        self._worker: Worker | None = None
        self._queue: deque[tuple[History, SummaryRequest]] = deque()
        self._attempted_ids: set[str] = set()
        self.open_requests: dict[str, SummaryRequest] = {}
        """Requests that nobody has answered yet, by id."""

    def fill_ready(self, history: History, plan: Plan, scale: TokenWeights, start: Place) -> Plan:
        """The plan with the texts that are there, in folds from a place on: what stands before it shall not change."""
        behind = [edit for edit in plan.edits if isinstance(edit, Summarize) and history.places[edit.target] >= start]
        if not behind:
            return plan
        texts = self._ledger.find_facts(SUMMARY_FACT_PREFIX)
        requests = find_summary_requests(history, structs.replace(plan, edits=tuple(behind)))
        if self._timing == "blocking":
            new = tuple(one for one in requests if one.id not in texts and one.id not in self._attempted_ids)
            self._attempted_ids.update(one.id for one in new)
            self._write_summaries(history, new)
            texts = self._ledger.find_facts(SUMMARY_FACT_PREFIX)
        wanted = {one.id: texts[one.id] for one in requests if one.id in texts}
        return fill_summaries(plan, wanted, scale) if wanted else plan

    def request_missing(self, history: History, plan: Plan) -> None:
        """Take note of what is open now, and have it written."""
        known = self._ledger.find_facts(SUMMARY_FACT_PREFIX)
        self.open_requests = {one.id: one for one in find_summary_requests(history, plan) if one.id not in known}
        new = [one for id_, one in self.open_requests.items() if id_ not in self._attempted_ids]
        if self._timing == "background" and new:
            self._attempted_ids.update(one.id for one in new)
            self._queue.extend((history, one) for one in new)
            if self._worker is None or not self._worker.is_alive():
                self._worker = Worker(target=self._run_queue, daemon=True)
                self._worker.start()

    def _run_queue(self) -> None:
        while self._queue:
            history, request = self._queue.popleft()
            self._write_summaries(history, (request,))

    def fill(self, id: str, text: str) -> None:
        """Take a text for a request."""
        self._ledger.set_fact(SUMMARY_FACT_PREFIX + id, text)
        self.open_requests.pop(id, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until what is being written is written, or so long."""
        if self._worker is not None:
            self._worker.join(seconds)

    def _write_summaries(self, history: History, requests: tuple[SummaryRequest, ...]) -> None:
        if self._summarizer is not None:
            for id_, text in write_summaries(requests, history, self._summarizer, self._report_failure).items():
                self.fill(id_, text)

    def _report_failure(self, error: Exception) -> None:
        heard = getattr(self._summarizer, "on_failure", None)
        if heard is not None:
            heard(error)
        self._on_failure(f"a summary was not written, and the one without a model stands: {error}")
