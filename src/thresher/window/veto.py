"""Which of the edits that policies want are not made: what was asked for again stays, and what a judge holds on to."""

from collections.abc import Callable, Sequence

from msgspec import structs

from thresher.edits import Edit, Summarize, list_targets
from thresher.model import History, Occurrence, ToolCall
from thresher.model.one_liners import format_turn_range
from thresher.model.text import count_with_noun
from thresher.model.tool_calls import ToolUse
from thresher.policies.batch_summary import summarize_places
from thresher.summarize import Judge
from thresher.window.ledger import Ledger
from thresher.window.refetches import RefetchTracker

VERDICT_FACT_PREFIX = "verdict:"
MIN_SUMMARY_CHARS = 300
"""Characters that a summary has at least."""
EditFilter = Callable[[History, Sequence[Edit]], list[Edit]]
"""The edits that may be made, of those that are wanted."""


def allow_all_edits(_: History, edits: Sequence[Edit]) -> list[Edit]:
    """Nothing is held back: for when it must fit."""
    return list(edits)


class EditVeto:
    """Holds edits back; a judge's verdicts are remembered, and what it cannot judge stays."""

    def __init__(
        self, asking: RefetchTracker, ledger: Ledger, judge: Judge | None, on_failure: Callable[[str], None]
    ) -> None:
        self._on_failure = on_failure
        self._refetches = asking
        self._ledger = ledger
        self._judge = judge
        self._last_refetched: tuple[History, set[Occurrence]] | None = None
        """What was asked for again in a history: a plan is made for one, and its edits are sieved one by one."""
        self._verdicts: dict[str, bool] = dict(ledger.find_facts(VERDICT_FACT_PREFIX)) if judge is not None else {}

    @property
    def has_judge(self) -> bool:
        """Whether somebody is asked, so that it is better to ask for many at once."""
        return self._judge is not None

    def __call__(self, history: History, edits: Sequence[Edit]) -> list[Edit]:
        """The edits that may be made; a fold goes on without what stays."""
        stays = self._find_refetched(history) | self._find_kept_by_judge(history, edits)
        kept = (exclude_kept_parts(history, edit, stays) for edit in edits)
        return [edit for edit in kept if edit is not None]

    def _find_refetched(self, history: History) -> set[Occurrence]:
        if self._last_refetched is None or self._last_refetched[0] is not history:
            asked = self._refetches.pinned_contents(len(history.turns))
            self._last_refetched = (
                history,
                {one for one in history.occurrences if one.content in asked} if asked else set(),
            )
        return self._last_refetched[1]

    def _find_kept_by_judge(self, history: History, edits: Sequence[Edit]) -> set[Occurrence]:
        """What the judge holds on to."""
        if self._judge is None:
            return set()
        wanted = {target for edit in edits for target in list_targets(edit)}
        links = [link for link in history.links if not wanted.isdisjoint(_chain_occurrences(history, link))]
        self._ask_judge(
            history, [link for link in links if history.occurrence(link.chain.call).content not in self._verdicts]
        )
        held = (link for link in links if self._verdicts.get(history.occurrence(link.chain.call).content, True))
        return {end for link in held for end in _chain_occurrences(history, link)}

    def _ask_judge(self, history: History, links: Sequence[ToolUse]) -> None:
        if self._judge is None or not links:
            return
        try:
            verdicts = self._judge(history, links)
        except Exception as error:  # noqa: BLE001 - a judge may be anyone's, and no loop shall stop for one
            self._on_failure(f"the judge failed, and {len(links)} tool chains stay: {error}")
            return
        if len(verdicts) < len(links):
            self._on_failure(f"the judge said nothing of {len(links) - len(verdicts)} tool chains, and they stay")
        for call, stays in verdicts.items():
            self._verdicts[call.content] = stays
            self._ledger.set_fact(VERDICT_FACT_PREFIX + call.content, stays)


def _chain_occurrences(history: History, link: ToolUse) -> list[Occurrence]:
    return [history.occurrence(place) for place in (link.chain.call, link.chain.result) if place is not None]


def _is_chain_kept(history: History, target: Occurrence, stays: set[Occurrence]) -> bool:
    """Whether a part stays, or the other end of its chain does."""
    chain = history.chain_at.get(history.places[target])
    ends = (chain.call, chain.result) if chain is not None else ()
    return target in stays or any(history.occurrence(end) in stays for end in ends if end is not None)


def exclude_kept_parts(history: History, edit: Edit, stays: set[Occurrence]) -> Edit | None:
    """An edit without what stays; a fold tells of the others alone, if there are calls among them."""
    if not isinstance(edit, Summarize):
        return None if edit.target in stays else edit
    rest = tuple(
        target for target in edit.targets if target in history.places and not _is_chain_kept(history, target, stays)
    )
    if len(rest) == len(edit.targets):
        return edit
    places = sorted(history.places[target] for target in rest)
    calls = sum(isinstance(history.part(place), ToolCall) for place in places)
    if not calls:
        return None
    when = format_turn_range([history.turn(place.message) for place in places])
    text = summarize_places(history, places, max(len(edit.text), MIN_SUMMARY_CHARS))
    return structs.replace(edit, targets=rest, text=text, label=f"{count_with_noun(calls, 'call')} summarized, {when}")
