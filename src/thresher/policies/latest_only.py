"""Light tools, whose newest answer is the one that counts: listings, file finders, what is in focus, the plan.

Tools that show what is inside files are none of these: a search's matches do not age because another was made. Of the
plan tools only those count whose call states the whole plan; a call that adds one task is never out of date.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from thresher.deprecation import renamed_fields
from thresher.edits import Drop, Edit, Replace
from thresher.edits.placeholder import get_placeholder_id
from thresher.model import History
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import (
    RENAMED_ACTIONS,
    TOOL_CATEGORIES,
    check_choice,
    check_count,
    check_words,
    is_failed_call,
    is_tool_selected,
)

LIGHT_TOOLS = (
    "ls",
    "list",
    "list_*",
    "listdir",
    "tree",
    "*_tree",
    "glob",
    "glob_file_search",
    "find",
    "find_file",
    "find_files",
    "file_search",
    "focus",
    "unfocus",
    "focus_dependencies",
)
"""The tools that are meant when none are named; besides, whatever lists a folder."""

_WHOLE_PLAN_NAMES = (
    "todowrite todoread todo_write todo_read write_todos update_todo_list manage_todo_list managetodolist todo",
    "todo__todo_write todo__todo_read tasklist update_plan create_plan focus_chain task_tracker task_tracking",
    "update_topic report_intent get_goal update_goal create_goal",
)
WHOLE_PLAN_TOOLS = frozenset(name for names in _WHOLE_PLAN_NAMES for name in names.split())
"""Plan tools whose every call, or answer, is the whole state."""

OUTDATED_REASON = "not the newest of its tool"


@renamed_fields(do="action", values=RENAMED_ACTIONS)
@dataclass(frozen=True, kw_only=True)
class KeepLatestOnly:
    """Of each light tool, keep only the newest answers."""

    tools: tuple[str, ...] = ()
    """Names or globs; with no categories either, the light tools."""
    categories: tuple[str, ...] = ()
    """Whole categories; of `plan` only tools that state the whole plan."""
    keep: int = 1
    """How many answers of each tool stay; one that failed is not counted."""
    action: Literal["replace", "drop"] = "replace"
    """Whether a pointer stands in for an older answer, or call and answer go."""

    def __post_init__(self) -> None:
        check_words("latest-only", tools=self.tools)
        check_words("latest-only", TOOL_CATEGORIES, categories=self.categories)
        check_count("latest-only", keep=self.keep)
        check_choice("latest-only", "action", self.action, ("replace", "drop"))

    def __call__(self, history: History) -> Iterator[Edit]:
        """Point from the older answers, or let them go, the oldest first."""
        newest: dict[str, list[int]] = defaultdict(list)
        meant: dict[str, bool] = {}
        found: list[tuple[ToolUse, int]] = []
        for link in reversed(history.links):
            name = link.call.name
            if name not in meant:
                meant[name] = is_tool_selected(link, self._selected_tools(), ())
            if not (meant[name] or self._is_of_category(link)):
                continue
            turns = newest[name.lower()]
            if len(turns) >= self.keep:
                found.append((link, turns[0] if turns else 0))
            elif not is_failed_call(link):
                turns.append(history.turn(link.chain.call.message))
        for link, turn in reversed(found):
            if self.action == "drop":
                yield Drop(history.occurrence(link.chain.call), "latest-only", OUTDATED_REASON)
            elif link.chain.result is not None and link.result is not None and not get_placeholder_id(link.result):
                note = f"newer one at turn {turn}" if turn else ""
                yield Replace(history.occurrence(link.chain.result), "latest-only", OUTDATED_REASON, note=note)

    def _selected_tools(self) -> tuple[str, ...]:
        return self.tools if self.tools or self.categories else LIGHT_TOOLS

    def _is_of_category(self, link: ToolUse) -> bool:
        if not self.tools and not self.categories:
            return link.use.operation == "list"
        partial = link.use.category == "plan" and link.call.name.lower() not in WHOLE_PLAN_TOOLS
        return link.use.category in self.categories and not partial
