"""Old tool results become pointers; the newest stay, and so do the calls."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Replace
from thresher.edits.placeholder import describe_part, format_placeholder, get_placeholder_id
from thresher.edits.rewrite import replace_with_placeholder
from thresher.model import History, Part, part_text
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import TOOL_CATEGORIES, check_count, check_words, is_tool_selected
from thresher.store import short_id
from thresher.tokens import TokenWeights, default_token_weights

MAX_PLACEHOLDER_CHARS = 2_000
"""A text that opens like a pointer and is longer than any is none."""


@renamed_fields(at_least="min_tokens_saved", except_names="exclude_tools")
@dataclass(frozen=True, kw_only=True)
class MaskOldResults:
    """Point to all tool results but the newest; answers to questions stay."""

    keep: int = 10
    """How many of the newest results stay whole."""
    min_tokens_saved: int = 0
    """Do nothing unless it saves this many tokens in all."""
    categories: tuple[str, ...] = ()
    """Only results of tools of these categories; all, if none is named."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results stay, by name or glob."""
    by_importance: bool = False
    """The least important go first, not the oldest."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("mask", keep=self.keep, min_tokens_saved=self.min_tokens_saved)
        check_words("mask", TOOL_CATEGORIES, categories=self.categories)
        check_words("mask", exclude_tools=self.exclude_tools)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Point to old results."""
        mine = [link for link in history.links if self._is_candidate(link)]
        old = [link for link in mine[: max(0, len(mine) - self.keep)] if not is_short_placeholder(link.result)]
        if (
            self.min_tokens_saved
            and sum(self._count_tokens_saved(history, link) for link in old) < self.min_tokens_saved
        ):
            return
        for link in self._ordered(history, old):
            if link.chain.result is not None:
                target = history.occurrence(link.chain.result)
                yield Replace(target, "mask", f"older than the newest {self.keep} results")

    def _is_candidate(self, link: ToolUse) -> bool:
        if link.result is None or link.use.category == "question" or is_tool_selected(link, self.exclude_tools, ()):
            return False
        return not self.categories or link.use.category in self.categories

    def _ordered(self, history: History, old: list[ToolUse]) -> list[ToolUse]:
        if not self.by_importance:
            return old
        from thresher.policies.importance import score_importance  # noqa: PLC0415 - only where it is asked for

        scores = score_importance(history)
        return sorted(old, key=lambda link: scores[link.chain.result or link.chain.call])

    def _count_tokens_saved(self, history: History, link: ToolUse) -> int:
        """What a pointer in its place saves, if anything."""
        place, result = link.chain.result, link.result
        if place is None or result is None or link.chain.active:
            return 0
        label = describe_part(history[place.message], result, link.call)
        text = format_placeholder(
            short_id(history.occurrence(place).content), label, result, history.turn(place.message)
        )
        return max(
            0,
            self.scale.parts(history[place.message])[place.part]
            - self.scale.part(replace_with_placeholder(result, text)),
        )


def is_short_placeholder(part: Part | None) -> bool:
    """Whether a part is, by its looks, a pointer already: what replaces it would be no shorter."""
    return part is not None and bool(get_placeholder_id(part)) and len(part_text(part)) <= MAX_PLACEHOLDER_CHARS
