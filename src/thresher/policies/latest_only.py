"""The policy `latest-only`: keep only the latest results of some tools, by default tools that list or find files.

Tools that read or search file contents are not included, because a result stays valid after the next one. The category
`plan` includes only tools that state the whole plan; a call that adds one task is never outdated.
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

_LIGHT_TOOL_NAMES = (
    "ls list list_* listdir tree *_tree glob glob_file_search find find_file find_files file_search focus unfocus "
    "focus_dependencies"
)
LIGHT_TOOLS = tuple(_LIGHT_TOOL_NAMES.split())
"""Tools selected by default, besides any other tool that lists a folder."""

_WHOLE_PLAN_TOOL_NAMES = (
    "todowrite todoread todo_write todo_read write_todos update_todo_list manage_todo_list managetodolist todo "
    "todo__todo_write todo__todo_read tasklist update_plan create_plan focus_chain task_tracker task_tracking "
    "update_topic report_intent get_goal update_goal create_goal"
)
WHOLE_PLAN_TOOLS = frozenset(_WHOLE_PLAN_TOOL_NAMES.split())
"""Plan tools whose call or result contains the whole plan."""

OUTDATED_REASON = "not the latest result of its tool"
POLICY_NAME = "latest-only"


@renamed_fields(do="action", values=RENAMED_ACTIONS)
@dataclass(frozen=True, kw_only=True)
class KeepLatestOnly:
    """Keep only the latest results of each selected tool."""

    tools: tuple[str, ...] = ()
    """Names or globs of tools. Without `tools` and `categories`: `LIGHT_TOOLS`, and any tool that lists a folder."""
    categories: tuple[str, ...] = ()
    """Tool categories. `plan` selects only tools that state the whole plan."""
    keep: int = 1
    """Number of results to keep per tool; failed calls do not count."""
    action: Literal["replace", "drop"] = "replace"
    """Edit of older results: `replace` puts a placeholder in each, `drop` removes them with their calls."""

    def __post_init__(self) -> None:
        check_words("latest-only", tools=self.tools)
        check_words("latest-only", TOOL_CATEGORIES, categories=self.categories)
        check_count("latest-only", keep=self.keep)
        check_choice("latest-only", "action", self.action, ("replace", "drop"))

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits of older results, oldest first."""
        latest: dict[str, list[int]] = defaultdict(list)
        selected: dict[str, bool] = {}
        outdated: list[tuple[ToolUse, int]] = []
        for link in reversed(history.links):
            name = link.call.name
            if name not in selected:
                selected[name] = is_tool_selected(link, self._selected_tools(), ())
            if not (selected[name] or self._is_of_category(link)):
                continue
            turns = latest[name.lower()]
            if len(turns) >= self.keep:
                outdated.append((link, turns[0] if turns else 0))
            elif not is_failed_call(link):
                turns.append(history.turn(link.chain.call.message))
        for link, turn in reversed(outdated):
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
        is_partial = link.use.category == "plan" and link.call.name.lower() not in WHOLE_PLAN_TOOLS
        return link.use.category in self.categories and not is_partial
