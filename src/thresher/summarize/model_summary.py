"""Summaries that a model writes, as the agent's own working memory; where it fails, the ledger stands instead.

A text that was promised to be short has to be: an answer somewhat over its limit is cut at a line, which costs its last
and least valuable lines. One of more than twice the limit is refused, since half of it would go and the model was not
heeding what it was asked.

Summaries of summaries rot. So earlier summaries are shown to the model and then put in front of its answer word by
word, whatever it says; they count against the limit, and not as something that is made shorter. Where they leave
too little room, no model is asked.
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
"""Characters under which sections say nothing that the ledger does not say better."""
MIN_CONVERSATION_CHARS = 1_000
"""Characters of the conversation that a model must be shown beside earlier summaries."""
SUMMARY_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class ModelSummarizer:
    """Has a model write what stands for many parts; falls back on what needs none."""

    endpoint: Endpoint
    share: float = 0.25
    """What is written is never longer than this share of what it replaces."""
    fallback: Summarizer = extractive_summarizer
    most: int = 200_000
    """Characters of a conversation that a prompt holds."""
    name: str = "model"
    on_failure: Callable[[SummaryError], object] | None = field(default=None, compare=False)
    """Hears why the fallback was taken."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise OptionError(f"model summariser: `share` is more than 0 and at most 1; not {self.share!r}")
        if self.most < MIN_CONVERSATION_CHARS:
            raise OptionError(
                f"model summariser: `most` is {MIN_CONVERSATION_CHARS:,} characters or more; not {self.most!r}"
            )

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """One text for the parts at these places, at most `limit` characters; never raises `SummaryError`."""
        try:
            return self.write(history, members, limit=limit)
        except SummaryError as error:
            if self.on_failure is not None:
                self.on_failure(error)
        return self.fallback(history, members, limit=limit)

    def write(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """The same, by the model or not at all: raises `SummaryError`."""
        material = _split_input(history, members)
        earlier = SUMMARY_SEPARATOR.join(material.earlier_summaries)
        carried = len(earlier) + len(SUMMARY_SEPARATOR) if earlier else 0
        room = min(limit - carried, int(material.char_count * self.share))
        if room < MIN_SUMMARY_CHARS:
            raise SummaryError(f"{max(room, 0)} characters are too few for a summary; it takes {MIN_SUMMARY_CHARS}")
        if len(earlier) > self.most - MIN_CONVERSATION_CHARS:
            raise SummaryError(f"earlier summaries alone are longer than a prompt may be ({self.most:,} characters)")
        asked = build_summary_prompt(history, material, most=self.most, room=room)
        text = _accept_answer(ask_model(self.endpoint, SUMMARY_INSTRUCTIONS, asked), room)
        return f"{earlier}{SUMMARY_SEPARATOR}{text}" if earlier else text


def _split_input(history: History, members: Sequence[Place]) -> SummaryInput:
    """Earlier summaries apart from all else."""
    places = sorted(set(members))
    stands = {place: part_text(history.part(place)) for place in places if _is_earlier_summary(history, place)}
    earlier = tuple([text for text in stands.values() if text.strip()])
    others = tuple([place for place in places if place not in stands])
    return SummaryInput(earlier, others, sum(len(part_text(history.part(place))) for place in others))


def _is_earlier_summary(history: History, place: Place) -> bool:
    part = history.part(place)
    return isinstance(part, Summary) or (isinstance(part, Text) and bool(get_placeholder_id(part)))


def _accept_answer(answer: str, room: int) -> str:
    """The sections of an answer, no longer than they may be; refused where there are none, or far too much."""
    text = extract_summary_sections(answer)
    if not text:
        raise SummaryError("the answer has none of the sections that were asked for")
    if len(text) <= room:
        return text
    if len(text) > 2 * room:
        raise SummaryError(f"the answer is {len(text):,} characters long; asked were {room:,} at most")
    stop = text.rfind("\n", room // 2, room - 1)
    return f"{text[:stop].rstrip()}\n…" if stop > 0 else clip(text, room)
