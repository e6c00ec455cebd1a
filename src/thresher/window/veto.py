"""Veto proposed edits: refetched content stays, and so do the tool chains that a judge wants to keep."""

from collections.abc import Callable, Sequence

from msgspec import structs

from thresher.edits import Edit, Summarize, list_targets
from thresher.model import History, Occurrence, ToolCall
from thresher.model.one_liners import format_turn_range
from thresher.model.text import count_with_noun
from thresher.model.tool_calls import ToolUse
from thresher.policies.batch_summary import summarize_places
from thresher.summarize import Judge
from thresher.window.ledger import Ledger, LedgerError
from thresher.window.refetches import RefetchTracker

VERDICT_FACT_PREFIX = "verdict:"
MIN_SUMMARY_CHARS = 300
"""A summary that is rewritten for fewer parts may always have this many characters."""
EditFilter = Callable[[History, Sequence[Edit]], list[Edit]]
"""Function that returns the allowed edits among the proposed ones."""


def allow_all_edits(_: History, edits: Sequence[Edit]) -> list[Edit]:
    """Allow all edits, because the request does not fit otherwise."""
    return list(edits)


class EditVeto:
    """Filter proposed edits. The ledger stores the judge's verdicts; tool chains without a verdict stay."""

    def __init__(
        self, refetches: RefetchTracker, ledger: Ledger, judge: Judge | None, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._refetches = refetches
        self._ledger = ledger
        self._judge = judge
        self._last_refetched: tuple[History, set[Occurrence]] | None = None
        """The latest history and its pinned parts, cached because a replan filters its edits one by one."""
        self._verdicts: dict[str, bool] = {}

    def load_verdicts(self) -> None:
        """Load the verdicts that earlier processes have stored."""
        if self._judge is not None:
            self._verdicts = dict(self._ledger.find_facts(VERDICT_FACT_PREFIX))

    @property
    def has_judge(self) -> bool:
        """True if the user passed a judge. Each call to a judge is slow, so ask about many tool chains at once."""
        return self._judge is not None

    def __call__(self, history: History, edits: Sequence[Edit]) -> list[Edit]:
        """Return the allowed edits. A summary is returned without the parts that stay."""
        stays = self._find_refetched(history) | self._find_kept_by_judge(history, edits)
        allowed = (exclude_kept_parts(history, edit, stays) for edit in edits)
        return [edit for edit in allowed if edit is not None]

    def _find_refetched(self, history: History) -> set[Occurrence]:
        if self._last_refetched is None or self._last_refetched[0] is not history:
            pinned = self._refetches.pinned_contents(len(history.turns))
            occurrences = history.occurrences if pinned else ()
            self._last_refetched = (history, {part for part in occurrences if part.content in pinned})
        return self._last_refetched[1]

    def _find_kept_by_judge(self, history: History, edits: Sequence[Edit]) -> set[Occurrence]:
        if self._judge is None:
            return set()
        wanted = {target for edit in edits for target in list_targets(edit)}
        links = [link for link in history.links if not wanted.isdisjoint(_chain_occurrences(history, link))]
        contents = [history.occurrence(link.chain.call).content for link in links]
        pairs = list(zip(links, contents, strict=True))
        self._ask_judge(history, [link for link, content in pairs if content not in self._verdicts])
        kept = (link for link, content in pairs if self._verdicts.get(content, True))
        return {end for link in kept for end in _chain_occurrences(history, link)}

    def _ask_judge(self, history: History, links: Sequence[ToolUse]) -> None:
        if self._judge is None or not links:
            return
        try:
            verdicts = self._judge(history, links)
        except Exception as error:  # noqa: BLE001 - user code must not stop the loop
            self._on_failure(f"the judge failed, so {len(links)} tool chains stay: {error}")
            return
        if len(verdicts) < len(links):
            missing = len(links) - len(verdicts)
            self._on_failure(f"the judge returned no verdict for {missing} tool chains, so they stay")
        for call, stays in verdicts.items():
            self._verdicts[call.content] = stays
            try:
                self._ledger.set_fact(VERDICT_FACT_PREFIX + call.content, stays)
            except LedgerError as error:
                self._on_failure(f"a verdict of the judge could not be stored: {error}")


def _chain_occurrences(history: History, link: ToolUse) -> list[Occurrence]:
    return [history.occurrence(place) for place in (link.chain.call, link.chain.result) if place is not None]


def _is_chain_kept(history: History, target: Occurrence, stays: set[Occurrence]) -> bool:
    """Return True if a part or the other end of its tool chain stays."""
    chain = history.chain_at.get(history.places[target])
    ends = (chain.call, chain.result) if chain is not None else ()
    return target in stays or any(history.occurrence(end) in stays for end in ends if end is not None)


def exclude_kept_parts(history: History, edit: Edit, stays: set[Occurrence]) -> Edit | None:
    """Return an edit without the parts that stay, or None if its target stays or no call is left to summarize."""
    if not isinstance(edit, Summarize):
        return None if edit.target in stays else edit
    targets = tuple(
        target for target in edit.targets if target in history.places and not _is_chain_kept(history, target, stays)
    )
    if len(targets) == len(edit.targets):
        return edit
    places = sorted(history.places[target] for target in targets)
    calls = sum(isinstance(history.part(place), ToolCall) for place in places)
    if not calls:
        return None
    turns = format_turn_range([history.turn(place.message) for place in places])
    text = summarize_places(history, places, max(len(edit.text), MIN_SUMMARY_CHARS))
    label = f"{count_with_noun(calls, 'call')} summarized, {turns}"
    return structs.replace(edit, targets=targets, text=text, label=label)
