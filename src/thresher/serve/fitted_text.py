"""Fit a history into a token limit, as text or as messages of a dialect."""

from collections.abc import Callable
from typing import NamedTuple

from thresher.budget import fit_with_plan
from thresher.dialects import emit
from thresher.errors import BudgetError, OptionError
from thresher.model import History
from thresher.model.jsontext import dump_json
from thresher.render.agent_view import FENCE_TOKENS, elide_middle, estimate_text_tokens, truncate_to_tokens
from thresher.render.plain_text import format_plain_text
from thresher.render.text import shorten
from thresher.serve.parent_context import ParentContext
from thresher.store import ContentStore
from thresher.transcripts import format_names

LEGACY_PRESETS = {"light": "thinking", "heavy": "minimal"}
"""Preset names of an earlier version of the server, which clients still send."""
MAX_FIT_ATTEMPTS = 4


class FittedText(NamedTuple):
    """The text of a history, fitted into a token limit."""

    text: str
    tokens_before: int
    edit_count: int


def fit_to_text(context: ParentContext, preset: str, tokens: int, form: str, store: ContentStore) -> FittedText:
    """Fit a history by a policy and encode it; retry with smaller budgets while the text exceeds `tokens`."""
    policy, encode = LEGACY_PRESETS.get(preset, preset), _choose_encoder(form)
    history = context.history
    if any(message.role == "system" for message in history):  # the caller has its own system text
        history = History(tuple(message for message in history if message.role != "system"))
    budget = tokens
    for _ in range(MAX_FIT_ATTEMPTS):
        try:
            fitted = fit_with_plan(history, policy=policy, budget=budget, store=store)
        except BudgetError as error:
            if form != "text":
                smallest = error.smallest * tokens // budget + FENCE_TOKENS + 100
                raise OptionError(f"{error}; use max_tokens={smallest} or more, or form=text") from error
            fitted = fit_with_plan(history, policy=policy, budget=error.smallest, store=store)
            text = elide_middle(encode(fitted.history), tokens)
            break
        text = encode(fitted.history)
        text_tokens = estimate_text_tokens(text)
        if text_tokens <= tokens:
            break
        budget = max(budget * tokens * 19 // (text_tokens * 20), 1)
    else:
        is_text = form == "text"
        text = elide_middle(text, tokens) if is_text else truncate_to_tokens(text, tokens, "use a higher max_tokens")
    return FittedText(text, fitted.plan.tokens_before, len(fitted.plan.edits))


def _choose_encoder(form: str) -> Callable[[History], str]:
    if form == "text":
        return format_plain_text
    if form in format_names("wire"):
        return lambda history: dump_json(emit(history, form))
    raise OptionError(f"unknown form `{shorten(form, 60)}`; valid: text, {', '.join(format_names('wire'))}")
