"""Fit a history into a number of tokens, as text or as messages."""

from collections.abc import Callable
from typing import NamedTuple

from thresher.budget import fit_with_plan
from thresher.budget.presets import PRESETS
from thresher.dialects import emit
from thresher.errors import BudgetError, OptionError
from thresher.model import History
from thresher.model.jsontext import dump_json
from thresher.policies.table import current_policy_name
from thresher.render.agent_view import FENCE_TOKENS, elide_middle, estimate_text_tokens, truncate_to_tokens
from thresher.render.plain_text import format_plain_text
from thresher.render.text import shorten
from thresher.serve.parent_context import ParentContext
from thresher.store import ContentStore
from thresher.transcripts import format_names

LEGACY_PRESETS = {"light": "thinking", "heavy": "minimal"}
"""Names that the server before this one had."""
MAX_FIT_ATTEMPTS = 4


class FittedText(NamedTuple):
    """A history as a text within its limit."""

    text: str
    tokens_before: int
    edit_count: int


def fit_to_text(known: ParentContext, preset: str, tokens: int, form: str, store: ContentStore) -> FittedText:
    """A history through a preset into a text of so many tokens; what is written weighs other than what was counted."""
    policy, write = current_policy_name(LEGACY_PRESETS.get(preset, preset)), _choose_writer(form)
    spoken = tuple(message for message in known.history if message.role != "system")  # who asks has its own
    history = known.history if len(spoken) == len(known.history) else History(spoken)
    if policy not in PRESETS and policy not in LEGACY_PRESETS.values():
        raise OptionError(f"there is no preset `{shorten(preset, 60)}`; there are {', '.join(PRESETS)}")
    budget = tokens
    for _ in range(MAX_FIT_ATTEMPTS):
        try:
            made = fit_with_plan(history, policy=policy, budget=budget, store=store)
        except BudgetError as error:
            if form != "text":
                smallest = error.smallest * tokens // budget + FENCE_TOKENS + 100
                raise OptionError(f"{error}; ask with max_tokens={smallest} or more, or for text") from error
            made = fit_with_plan(history, policy=policy, budget=error.smallest, store=store)
            return FittedText(elide_middle(write(made.history), tokens), made.plan.tokens_before, len(made.plan.edits))
        text = write(made.history)
        weighs = estimate_text_tokens(text)
        if weighs <= tokens:
            break
        budget = max(budget * tokens * 19 // (weighs * 20), 1)
    else:
        text = (
            elide_middle(text, tokens)
            if form == "text"
            else truncate_to_tokens(text, tokens, "ask with a higher max_tokens")
        )
    return FittedText(text, made.plan.tokens_before, len(made.plan.edits))


def _choose_writer(form: str) -> Callable[[History], str]:
    if form == "text":
        return format_plain_text
    if form in format_names("wire"):
        return lambda history: dump_json(emit(history, form))
    raise OptionError(f"there is no form `{shorten(form, 60)}`; there are text, {', '.join(format_names('wire'))}")
