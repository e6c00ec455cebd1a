"""The policy `mask`: replace old tool results by placeholders; calls and the latest results stay."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Replace
from thresher.edits.placeholder import describe_part, format_placeholder, get_placeholder_id
from thresher.edits.rewrite import replace_with_placeholder
from thresher.model import History, Part, part_text
from thresher.model.human_words import ANSWERED_CATEGORIES
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import TOOL_CATEGORIES, check_count, check_words, is_tool_selected
from thresher.store import short_id
from thresher.tokens import TokenWeights, default_token_weights

MAX_PLACEHOLDER_CHARS = 2_000
"""Maximum characters of a short placeholder, which stays as it is."""


@renamed_fields(at_least="min_tokens_saved", except_names="exclude_tools")
@dataclass(frozen=True, kw_only=True)
class MaskOldResults:
    """Replace all tool results except the latest by placeholders; answers to questions stay."""

    keep: int = 10
    """Number of the latest results that stay."""
    min_tokens_saved: int = 0
    """Minimum total tokens to save; if the policy would save fewer, it proposes nothing."""
    categories: tuple[str, ...] = ()
    """Tool categories whose results are replaced; empty: all."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results stay, by name or glob."""
    by_importance: bool = False
    """True if the least important results are replaced first; False: the oldest first."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("mask", keep=self.keep, min_tokens_saved=self.min_tokens_saved)
        check_words("mask", TOOL_CATEGORIES, categories=self.categories)
        check_words("mask", exclude_tools=self.exclude_tools)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose placeholders for old results."""
        candidates = [link for link in history.links if self._is_candidate(link)]
        old = candidates[: max(0, len(candidates) - self.keep)]
        old = [link for link in old if not is_short_placeholder(link.result)]
        needed = self.min_tokens_saved
        if needed and sum(self._count_tokens_saved(history, link) for link in old) < needed:
            return
        for link in self._ordered(history, old):
            if link.chain.result is not None:
                target = history.occurrence(link.chain.result)
                yield Replace(target, "mask", f"older than the latest {self.keep} results")

    def _is_candidate(self, link: ToolUse) -> bool:
        if (
            link.result is None
            or link.use.category in ANSWERED_CATEGORIES
            or is_tool_selected(link, self.exclude_tools, ())
        ):
            return False
        return not self.categories or link.use.category in self.categories

    def _ordered(self, history: History, old: list[ToolUse]) -> list[ToolUse]:
        if not self.by_importance:
            return old
        from thresher.policies.importance import score_importance  # noqa: PLC0415 - rarely used

        scores = score_importance(history)
        return sorted(old, key=lambda link: scores[link.chain.result or link.chain.call])

    def _count_tokens_saved(self, history: History, link: ToolUse) -> int:
        """Return the tokens that a placeholder saves, at least 0."""
        place, result = link.chain.result, link.result
        if place is None or result is None or link.chain.active:
            return 0
        label = describe_part(history[place.message], result, link.call)
        id_ = short_id(history.occurrence(place).content)
        text = format_placeholder(id_, label, result, history.turn(place.message), call=link.call)
        before = self.scale.parts(history[place.message])[place.part]
        return max(0, before - self.scale.part(replace_with_placeholder(result, text)))


def is_short_placeholder(part: Part | None) -> bool:
    """Return whether a part is a short placeholder, which a new placeholder would not shorten."""
    return part is not None and bool(get_placeholder_id(part)) and len(part_text(part)) <= MAX_PLACEHOLDER_CHARS
