"""The policy `edit-history`: summarize the old edits of each file in very long sessions.

One summary lists the number of edits, their turns and the purpose of each. The latest edits stay as they are, and so
does an edit that is the only old one of its file.
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

POLICY_NAME = "edit-history"
MAX_HISTORY_CHARS = 1000
"""Maximum characters of one file's list."""


@dataclass(frozen=True, kw_only=True)
class SummarizeOldEdits:
    """Summarize the old edits of each file as a list, in very long sessions."""

    keep_all_edits: bool | None = None
    """True if all edits stay; False: old edits are always summarized; None: if there are more than `compress_after`."""
    compress_after: int = 40
    """Number of edits above which a session counts as very long."""
    keep_newest: int = 10
    """Number of the latest edits, of any file, that always stay."""

    def __post_init__(self) -> None:
        check_count(POLICY_NAME, compress_after=self.compress_after, keep_newest=self.keep_newest)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose one summary per file with several old edits, oldest first."""
        edits = (link for link in history.links if link.use.category == "file_edit")
        links = [link for link in edits if link.use.operation in CHANGE_OPERATIONS]
        if self.keep_all_edits or (self.keep_all_edits is None and len(links) <= self.compress_after):
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
        label = f"{_format_label(history, path, links)}, {turns}"
        known[first, last, targets] = label, _format_history(history, path, links)
    label, text = known[first, last, targets]
    return Summarize(targets, POLICY_NAME, "old edits of one file", text, label=label)


@cached_per_message
def _text_cache(_: Message) -> dict[tuple[int, int, tuple[Occurrence, ...]], tuple[str, str]]:
    """Cache the labels and texts of summaries whose first summarized part is in this message."""
    return {}


def _format_label(history: History, path: str, links: list[ToolUse]) -> str:
    actions = [parse_chain_action(history, link.chain) for link in links]
    changes = sum(action is None or not action.outcome.failed for action in actions)
    return f"Edits to {to_label_line(basename(path))}: {changes} change{'s' * (changes != 1)}"


def _format_history(history: History, path: str, links: list[ToolUse]) -> str:
    ledger = format_edit_list(history, [link.chain for link in links], limit=MAX_HISTORY_CHARS)
    others = sorted({other for link in links for other in find_changed_paths(link.call, link.use)} - {path, ""})
    also = to_label_line(f"also changed with them: {', '.join(others)}", MAX_HISTORY_CHARS // 2) if others else ""
    return "\n".join(text for text in (ledger, also) if text)
