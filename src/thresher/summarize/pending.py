"""Improve the summaries of a finished plan: list them as requests, and fill in better texts later.

A plan is available at once, with extractive summaries. A model, or any other writer, can provide better texts for the
requests. Ids, headings and stored content stay the same; only the texts change, and only if each summary still saves
tokens and the plan still fits its budget.
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
"""Maximum characters to request, unless the current summary is longer."""


class SummaryRequest(Struct, frozen=True):
    """A summary that could be improved."""

    id: str
    """Id of the summary, as in its heading."""
    label: str
    """Text of the heading after the id."""
    targets: tuple[Occurrence, ...]
    """Parts that the summary replaces."""
    text: str
    """The current summary."""
    limit: int
    """Maximum characters of a new text."""


def find_summary_requests(history: History, plan: Plan) -> tuple[SummaryRequest, ...]:
    """Return one request per summary of a plan."""
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
        raise PlanError(f"this plan is for another history: part {missing.content} is not in this one; make a new plan")
    return sum(len(part_text(history.part(history.places[target]))) for target in edit.targets)


def write_summaries(
    requests: Iterable[SummaryRequest],
    history: History,
    summarizer: Summarizer,
    on_failure: Callable[[Exception], object] | None = None,
) -> dict[str, str]:
    """Write texts for the requests, one after another, and return them by id; failed requests are omitted.

    `on_failure` receives each exception of the summarizer; the other requests continue.
    """
    # The plan already contains an extractive summary, so a model summarizer must not use its fallback.
    write = summarizer.write if isinstance(summarizer, ModelSummarizer) else summarizer
    texts: dict[str, str] = {}
    for request in requests:
        # Parts that a repair added are not in the original history and have no content to summarize.
        members = [history.places[target] for target in request.targets if target in history.places]
        if request.id in texts or not members:
            continue
        try:
            texts[request.id] = write(history, members, limit=request.limit)
        except Exception as error:  # noqa: BLE001 - a third-party summarizer must not stop the loop
            if on_failure is not None:
                on_failure(error)
    return texts


def fill_summaries(plan: Plan, texts: Mapping[str, str], scale: TokenWeights) -> Plan:
    """Return the plan with new summary texts, given by id; ignore texts that save no tokens or exceed the budget."""
    if plan.counter and plan.counter != scale.name:
        raise OptionError(f"`scale` must use the plan's token counter {plan.counter}, got {scale.name}")
    edits: list[Edit] = []
    tokens = plan.tokens_after
    for edit in plan.edits:
        room = None if plan.budget is None else max(0, plan.budget - tokens)
        filled = _fill_summary(edit, texts, scale, room) if isinstance(edit, Summarize) else edit
        tokens += edit.saved - filled.saved
        edits.append(filled)
    return structs.replace(plan, edits=tuple(edits), tokens_after=tokens)


def _fill_summary(edit: Summarize, texts: Mapping[str, str], scale: TokenWeights, room: int | None) -> Summarize:
    """Return the summary with its new text; keep the old text if the new one is missing or too long."""
    inner = strip_summary_end(texts.get(_placeholder_id(edit), "")).strip()
    if not inner:
        return edit
    text = f"{edit.text.strip().partition(chr(10))[0]}\n{inner}\n{SUMMARY_END}"
    more = scale.part(Summary(text)) - scale.part(Summary(edit.text))
    if more >= edit.saved or (room is not None and more > room):
        return edit
    return structs.replace(edit, text=text, saved=edit.saved - more)
