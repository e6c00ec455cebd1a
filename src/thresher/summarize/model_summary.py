"""Summarize with a model, as the agent's working memory; fall back to the extractive summary on failure.

An answer over its limit is truncated at a line end, which removes its last and least valuable lines. An answer of more
than twice the limit is rejected, because the model ignored the prompt.

Summaries of summaries lose information. So earlier summaries are part of the prompt, and are then copied unchanged in
front of the answer. They count toward the limit. If they leave too little room, the model is not called.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from thresher.edits.placeholder import get_placeholder_id
from thresher.errors import OptionError
from thresher.model import History, Place, Summary, Text
from thresher.model.parts import part_text
from thresher.model.text import clip
from thresher.summarize.base import Summarizer
from thresher.summarize.endpoint import Endpoint, SummaryError, ask_model
from thresher.summarize.extractive import extractive_summarizer
from thresher.summarize.prompt import SUMMARY_INSTRUCTIONS, SummaryInput, build_summary_prompt, extract_summary_sections

MIN_SUMMARY_CHARS = 200
"""Minimum characters that a model's summary must be allowed; with fewer, the extractive summary is better."""
MIN_CONVERSATION_CHARS = 1_000
"""Minimum characters of conversation in a prompt, besides earlier summaries."""
SUMMARY_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class ModelSummarizer:
    """Summarizes with a model, and uses the fallback if the model fails."""

    endpoint: Endpoint
    share: float = 0.25
    """Maximum length of a summary, as a share of the replaced text."""
    fallback: Summarizer = extractive_summarizer
    most: int = 200_000
    """Maximum characters of conversation and earlier summaries in a prompt."""
    name: str = "model"
    on_failure: Callable[[SummaryError], object] | None = field(default=None, compare=False)
    """Callback that receives the error when the fallback is used."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise OptionError(f"model summarizer: `share` must be above 0 and at most 1, got {self.share!r}")
        if self.most < MIN_CONVERSATION_CHARS:
            least = f"{MIN_CONVERSATION_CHARS:,} characters or more"
            raise OptionError(f"model summarizer: `most` must be {least}, got {self.most!r}")

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """Summarize the parts at these places in at most `limit` characters; never raise `SummaryError`."""
        try:
            return self.write(history, members, limit=limit)
        except SummaryError as error:
            if self.on_failure is not None:
                self.on_failure(error)
        return self.fallback(history, members, limit=limit)

    def write(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """Summarize with the model only; raise `SummaryError` on failure."""
        material = _split_input(history, members)
        earlier = SUMMARY_SEPARATOR.join(material.earlier_summaries)
        carried = len(earlier) + len(SUMMARY_SEPARATOR) if earlier else 0
        room = min(limit - carried, int(material.char_count * self.share))
        if room < MIN_SUMMARY_CHARS:
            raise SummaryError(f"a summary needs {MIN_SUMMARY_CHARS} characters, and only {max(room, 0)} are left")
        if len(earlier) > self.most - MIN_CONVERSATION_CHARS:
            raise SummaryError(f"earlier summaries exceed the prompt limit of {self.most:,} characters")
        prompt = build_summary_prompt(history, material, max_chars=self.most, room=room)
        text = _accept_answer(ask_model(self.endpoint, SUMMARY_INSTRUCTIONS, prompt), room)
        return f"{earlier}{SUMMARY_SEPARATOR}{text}" if earlier else text


def _split_input(history: History, members: Sequence[Place]) -> SummaryInput:
    """Separate earlier summaries from other parts."""
    places = sorted(set(members))
    summaries = {place: part_text(history.part(place)) for place in places if _is_earlier_summary(history, place)}
    earlier = tuple([text for text in summaries.values() if text.strip()])
    others = tuple([place for place in places if place not in summaries])
    return SummaryInput(earlier, others, sum(len(part_text(history.part(place))) for place in others))


def _is_earlier_summary(history: History, place: Place) -> bool:
    part = history.part(place)
    return isinstance(part, Summary) or (isinstance(part, Text) and bool(get_placeholder_id(part)))


def _accept_answer(answer: str, room: int) -> str:
    """Return the sections of an answer, truncated to `room`; raise `SummaryError` if it has none or is far too long."""
    text = extract_summary_sections(answer)
    if not text:
        raise SummaryError("the answer has none of the required sections")
    if len(text) <= room:
        return text
    if len(text) > 2 * room:
        raise SummaryError(f"the answer is {len(text):,} characters long, the limit was {room:,}")
    stop = text.rfind("\n", room // 2, room - 1)
    return f"{text[:stop].rstrip()}\n…" if stop > 0 else clip(text, room)
