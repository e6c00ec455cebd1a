"""Summaries that may come later: a plan's folds as open requests, and the plan with some of them filled.

A plan is made at once, with texts that need no model. Whoever has time has better ones written, by a model here or
by anyone who can read the request, and fills them in. The id, the heading and what the id brings back stay as they are;
only the words change, and only where the plan still keeps its promises: a fold saves tokens, the whole fits its budget.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, structs

from thresher.edits import Edit, Plan, Summarize, repair
from thresher.edits.placeholder import SUMMARY_END, get_placeholder_id, strip_summary_end
from thresher.errors import OptionError, PlanError
from thresher.model import History, Occurrence, Summary
from thresher.model.parts import part_text
from thresher.summarize.base import Summarizer
from thresher.summarize.model_summary import ModelSummarizer
from thresher.tokens import TokenWeights

SUMMARY_SHARE = 0.25
MAX_SUMMARY_CHARS = 8_000
"""Characters that a summary is asked for at most, unless the one that stands there is longer."""


class SummaryRequest(Struct, frozen=True):
    """A summary that could be better."""

    id: str
    """The fold's, as its heading shows it."""
    label: str
    """What the heading says beside the id."""
    targets: tuple[Occurrence, ...]
    """What it stands for."""
    text: str
    """What stands there now."""
    limit: int
    """Characters that a new text may have."""


def find_summary_requests(history: History, plan: Plan) -> tuple[SummaryRequest, ...]:
    """One request for each fold of a plan."""
    if plan.repairs:
        history = repair(history, plan.dialect).history
    return tuple([_build_request(history, edit, id_) for edit, id_ in _find_summaries(plan.edits)])


def _find_summaries(edits: Iterable[Edit]) -> Iterator[tuple[Summarize, str]]:
    for edit in edits:
        id_ = _placeholder_id(edit)
        if isinstance(edit, Summarize) and id_:
            yield edit, id_


def _placeholder_id(edit: Edit) -> str:
    return get_placeholder_id(Summary(edit.text)) if isinstance(edit, Summarize) else ""


def _build_request(history: History, edit: Summarize, id_: str) -> SummaryRequest:
    heading, _, rest = edit.text.strip().partition("\n")
    text = rest.removesuffix(SUMMARY_END).removesuffix("\n")
    limit = max(len(text), min(MAX_SUMMARY_CHARS, int(_count_replaced_chars(history, edit) * SUMMARY_SHARE)))
    return SummaryRequest(id_, heading.partition(" · ")[2].removesuffix("]"), edit.targets, text, limit)


def _count_replaced_chars(history: History, edit: Summarize) -> int:
    missing = next((target for target in edit.targets if target not in history.places), None)
    if missing is not None:
        raise PlanError(f"this plan is for another history: part {missing.content} is not in this one; plan anew")
    return sum(len(part_text(history.part(history.places[target]))) for target in edit.targets)


def write_summaries(
    requests: Iterable[SummaryRequest],
    history: History,
    summariser: Summarizer,
    on_failure: Callable[[Exception], object] | None = None,
) -> dict[str, str]:
    """Texts for the requests, by id, asked for one after another; where none could be had, there is none.

    `on_failure` hears why; whatever a summariser raises, the others are asked for.
    """
    # What a model fails at has its fallback in the plan already.
    write = summariser.write if isinstance(summariser, ModelSummarizer) else summariser
    texts: dict[str, str] = {}
    for request in requests:
        # Parts that a repair put in are not in the history as it came; they have nothing to tell.
        members = [history.places[target] for target in request.targets if target in history.places]
        if request.id in texts or not members:
            continue
        try:
            texts[request.id] = write(history, members, limit=request.limit)
        except Exception as error:  # noqa: BLE001 - a summariser may be anyone's, and no loop shall stop for one
            if on_failure is not None:
                on_failure(error)
    return texts


def fill_summaries(plan: Plan, texts: Mapping[str, str], scale: TokenWeights) -> Plan:
    """The plan with these texts in its folds, by id, where it still saves and fits; `scale` is the plan's own."""
    if plan.counter and plan.counter != scale.name:
        raise OptionError(
            f"this plan was counted with {plan.counter}, not with {scale.name}: fill it by the same scale"
        )
    edits: list[Edit] = []
    tokens = plan.tokens_after
    for edit in plan.edits:
        room = None if plan.budget is None else max(0, plan.budget - tokens)
        filled = _fill_summary(edit, texts, scale, room) if isinstance(edit, Summarize) else edit
        tokens += edit.saved - filled.saved
        edits.append(filled)
    return structs.replace(plan, edits=tuple(edits), tokens_after=tokens)


def _fill_summary(edit: Summarize, texts: Mapping[str, str], scale: TokenWeights, room: int | None) -> Summarize:
    """The fold with its new words, unless there are none, they save nothing, or there is no room for them."""
    inner = strip_summary_end(texts.get(_placeholder_id(edit), "")).strip()
    if not inner:
        return edit
    text = f"{edit.text.strip().partition(chr(10))[0]}\n{inner}\n{SUMMARY_END}"
    more = scale.part(Summary(text)) - scale.part(Summary(edit.text))
    if more >= edit.saved or (room is not None and more > room):
        return edit
    return structs.replace(edit, text=text, saved=edit.saved - more)
