"""Edits are the work that was done: they stay whole, until there are so many that the old ones become a list.

Then the old edits of a file, wherever they stand, are folded into one text that says how many there were, when, and
what each was for. The newest stay as they are, and so does an edit that is the only old one of its file.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import basename

from thresher.edits import Edit, Summarize
from thresher.edits.placeholder import to_label_line
from thresher.model import History, Message, Occurrence
from thresher.model.message_cache import cached_per_message
from thresher.model.one_liners import format_edit_list
from thresher.model.paths import normalize_path
from thresher.model.tool_actions import parse_chain_action
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count
from thresher.policies.file_accesses import CHANGE_OPERATIONS, find_changed_paths

MAX_HISTORY_CHARS = 1000
"""Characters of one file's list."""


@dataclass(frozen=True, kw_only=True)
class SummarizeOldEdits:
    """Fold the old edits of each file into one list, in very long sessions."""

    keep_all_edits: bool = True
    """Keep all edits until there are more than `compress_after`; False folds the old ones from the start."""
    compress_after: int = 40
    """How many edits make a session very long."""
    keep_newest: int = 10
    """How many of the newest edits always stay, whatever their files."""

    def __post_init__(self) -> None:
        check_count("edit-history", compress_after=self.compress_after, keep_newest=self.keep_newest)

    def __call__(self, history: History) -> Iterator[Edit]:
        """One fold for each file with several old edits, the oldest first."""
        links = [
            link
            for link in history.links
            if link.use.category == "file_edit" and link.use.operation in CHANGE_OPERATIONS
        ]
        if self.keep_all_edits and len(links) <= self.compress_after:
            return
        old: dict[str, list[ToolUse]] = defaultdict(list)
        for link in links[: max(len(links) - self.keep_newest, 0)]:
            if link.use.path:
                old[normalize_path(link.use.path)].append(link)
        for path, changes in old.items():
            if len(changes) > 1:
                yield _summarize_file(history, path, changes)


def _summarize_file(history: History, path: str, links: list[ToolUse]) -> Summarize:
    places = [place for link in links for place in link.chain[:2] if place is not None]
    targets = tuple([history.occurrence(place) for place in places])
    first, last = (history.turn(link.chain.call.message) for link in (links[0], links[-1]))
    known = _text_cache(history[places[0].message])
    if (first, last, targets) not in known:
        turns = f"turn {first}" if first == last else f"turns {first}-{last}"
        known[first, last, targets] = (
            f"{_format_label(history, path, links)}, {turns}",
            _format_history(history, path, links),
        )
    label, text = known[first, last, targets]
    return Summarize(targets, "edit-history", "old edits of one file", text, label=label)


@cached_per_message
def _text_cache(_: Message) -> dict[tuple[int, int, tuple[Occurrence, ...]], tuple[str, str]]:
    """The labels and texts that were made for folds which begin in a message."""
    return {}


def _format_label(history: History, path: str, links: list[ToolUse]) -> str:
    deeds = [parse_chain_action(history, link.chain) for link in links]
    made = sum(deed is None or not deed.outcome.failed for deed in deeds)
    return f"Edits to {to_label_line(basename(path))}: {made} change{'s' * (made != 1)}"


def _format_history(history: History, path: str, links: list[ToolUse]) -> str:
    ledger = format_edit_list(history, [link.chain for link in links], limit=MAX_HISTORY_CHARS)
    others = sorted({other for link in links for other in find_changed_paths(link.call, link.use)} - {path, ""})
    also = to_label_line(f"also changed with them: {', '.join(others)}", MAX_HISTORY_CHARS // 2) if others else ""
    return "\n".join(text for text in (ledger, also) if text)
