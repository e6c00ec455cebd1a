"""Summaries by a model: requested when a replan summarizes parts, and inserted once their texts are ready.

Until then the summary that the policy wrote without a model stays. The loop waits only with `summaries="blocking"`. A
text that is ready later is inserted at the next replan that may change that summary.
"""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any, Literal

from msgspec import structs

from thresher.edits import Plan, Summarize
from thresher.model import History, Place
from thresher.summarize import Summarizer, SummaryRequest, fill_summaries, find_summary_requests, write_summaries
from thresher.tokens import TokenWeights
from thresher.window.ledger import Ledger, LedgerError

SUMMARY_FACT_PREFIX = "summary:"
SummaryTiming = Literal["background", "blocking", "never"]
"""Timing of the summarizer: `background` while the loop continues, `blocking` before it continues, and `never` if the
user provides the texts with `fill`."""


class SummaryJobs:
    """Open summary requests and the texts received for them."""

    def __init__(
        self, ledger: Ledger, summarizer: Summarizer | None, timing: SummaryTiming, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._ledger = ledger
        self._summarizer = summarizer
        self._timing: SummaryTiming = timing if summarizer is not None else "never"
        self._worker: Thread | None = None
        self._queue: deque[tuple[History, SummaryRequest]] = deque()
        self._attempted_ids: set[str] = set()
        self.open_requests: dict[str, SummaryRequest] = {}
        """Requests without a text, by id."""

    def _texts(self) -> dict[str, Any]:
        facts = self._ledger.find_facts(SUMMARY_FACT_PREFIX)
        return {id_: text for id_, text in facts.items() if isinstance(text, str)}

    def fill_ready(self, history: History, plan: Plan, token_weights: TokenWeights, start: Place) -> Plan:
        """Insert the ready texts into the summaries from `start` on; earlier places must not change."""
        behind = [edit for edit in plan.edits if isinstance(edit, Summarize) and history.places[edit.target] >= start]
        if not behind:
            return plan
        texts = self._texts()
        requests = find_summary_requests(history, structs.replace(plan, edits=tuple(behind)))
        if self._timing == "blocking":
            self._write_summaries(history, self._take_unattempted([job for job in requests if job.id not in texts]))
            texts = self._texts()
        ready = {request.id: texts[request.id] for request in requests if request.id in texts}
        return fill_summaries(plan, ready, token_weights) if ready else plan

    def request_missing(self, history: History, plan: Plan) -> None:
        """Record the open requests of a plan, and write their texts if the timing is `background`."""
        texts = self._texts()
        self.open_requests = {job.id: job for job in find_summary_requests(history, plan) if job.id not in texts}
        if self._timing != "background":
            return
        new = self._take_unattempted(self.open_requests.values())
        self._queue.extend((history, request) for request in new)
        if new and (self._worker is None or not self._worker.is_alive()):
            self._worker = Thread(target=self._run_queue, daemon=True)
            self._worker.start()

    def _take_unattempted(self, requests: Iterable[SummaryRequest]) -> tuple[SummaryRequest, ...]:
        """Return the requests that no summarizer has tried yet, and mark them as tried."""
        new = tuple(request for request in requests if request.id not in self._attempted_ids)
        self._attempted_ids.update(request.id for request in new)
        return new

    def _run_queue(self) -> None:
        while self._queue:
            history, request = self._queue.popleft()
            self._write_summaries(history, (request,))

    def fill(self, id: str, text: str) -> None:
        """Store the text for a summary request."""
        self._ledger.set_fact(SUMMARY_FACT_PREFIX + id, text)
        self.open_requests.pop(id, None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the background thread, at most `seconds`."""
        if self._worker is not None:
            self._worker.join(seconds)

    def _write_summaries(self, history: History, requests: tuple[SummaryRequest, ...]) -> None:
        if self._summarizer is not None:
            for id_, text in write_summaries(requests, history, self._summarizer, self._report_failure).items():
                try:
                    self.fill(id_, text)
                except LedgerError as error:
                    self._on_failure(f"a summary could not be stored: {error}")

    def _report_failure(self, error: Exception) -> None:
        on_failure = getattr(self._summarizer, "on_failure", None)
        if on_failure is not None:
            on_failure(error)
        self._on_failure(f"a model wrote no summary, so the default summary stays: {error}")
