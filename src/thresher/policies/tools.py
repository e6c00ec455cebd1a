"""The policy `tools`: drop, replace, summarize or truncate tool calls, selected by name, category or outcome.

Questions with their answers and reports of completion are edited only if a name or a glob other than `*` selects the
tool, or if its category is selected. A person's words inside other results, such as a comment on a refusal, stay unless
a name selects the tool.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from thresher.deprecation import renamed_fields
from thresher.edits import (
    Drop,
    Edit,
    Elision,
    Replace,
    Summarize,
    Truncate,
    apply_elisions,
    elide_long_arguments,
    elide_to_limit,
)
from thresher.edits.placeholder import to_label_line as flat
from thresher.edits.truncate import MIN_SAVING_DIVISOR
from thresher.errors import OptionError
from thresher.model import History, Message, Place, Text, ToolCall, ToolChain, ToolResult
from thresher.model.human_words import ANSWERED_CATEGORIES
from thresher.model.one_liners import describe_chain
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_outcomes import has_failed
from thresher.policies import base
from thresher.policies.base import RENAMED_ACTIONS, TOOL_CATEGORIES, check_choice, check_count, check_words

POLICY_NAME = "tools"
ToolAction = Literal["drop", "replace", "replace_calls", "truncate_calls", "summarize", "truncate"]
MIN_CUT_CHARS = 100
"""Minimum of a length limit, which includes the truncation note."""
MAX_LINE_CHARS = 200
INTERRUPTED_PREFIX = "[Request interrupted"


@renamed_fields(do="action", except_names="exclude_tools", values=RENAMED_ACTIONS)
@dataclass(frozen=True, kw_only=True)
class EditToolCalls:
    """Apply one action to the calls of some tools.

    `EditToolCalls(categories=("file_edit",))` drops all file edits, `EditToolCalls(failed=True)` all failed calls.
    `EditToolCalls(names=("mcp__*",), exclude_tools=("mcp__db__*",), action="replace")` only replaces results.
    `EditToolCalls(names=("*",), older_exchanges_only=True, action="summarize")` writes one line for each call.
    `EditToolCalls(names=("Bash",), action="truncate", head=2000, tail=6000)` keeps head and tail of results. Without
    `names`, `categories` and `failed`, no call is selected.
    """

    names: tuple[str, ...] = ()
    """Tools by name or glob, ignoring case."""
    categories: tuple[str, ...] = ()
    """Tool categories."""
    exclude_tools: tuple[str, ...] = ()
    """Tools to exclude, by name or glob."""
    failed: bool | None = None
    """True: only calls that failed or were interrupted; False: only the others; None: both."""
    older_exchanges_only: bool = False
    """True if calls since the human's last prompt are excluded."""
    keep_last: int = 0
    """Number of latest calls to exclude."""
    action: ToolAction = "drop"
    """Edit to propose. `drop` and `summarize` apply to the call and its result, `replace` and `truncate` to the result,
    and `replace_calls` and `truncate_calls` to the arguments."""
    limit: int = 10_000
    """Maximum characters of a result for `truncate` without `head` and `tail`, or of one argument for
    `truncate_calls`."""
    head: int = 0
    """Characters that `truncate` keeps from the start. The sum of `head` and `tail` includes the note."""
    tail: int = 0
    """Characters that `truncate` keeps from the end."""

    def __post_init__(self) -> None:
        check_words(POLICY_NAME, names=self.names, exclude_tools=self.exclude_tools)
        check_words(POLICY_NAME, TOOL_CATEGORIES, categories=self.categories)
        check_choice(POLICY_NAME, "action", self.action, get_args(ToolAction))
        check_count(POLICY_NAME, limit=self.limit, head=self.head, tail=self.tail, keep_last=self.keep_last)
        if self.action == "truncate" and self._max_chars < MIN_CUT_CHARS:
            least, got = MIN_CUT_CHARS, self._max_chars
            raise OptionError(f"policy `{POLICY_NAME}`: `truncate` must keep {least} characters or more, got {got}")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first."""
        end = history.exchanges[-1].start if self.older_exchanges_only and history.exchanges else len(history)
        for link in history.links[: max(0, len(history.links) - self.keep_last)]:
            if link.chain.call.message < end and self._is_selected(link):
                yield from self._edit_call(history, link)

    def _is_selected(self, link: ToolUse) -> bool:
        if self.failed is not None and self.failed != is_failed_or_interrupted(link):
            return False
        if base.is_tool_selected(link, self.exclude_tools, ()):
            return False

        if link.use.category in ANSWERED_CATEGORIES:
            return self._is_named(link) or link.use.category in self.categories
        everything = self.failed is not None and not self.names and not self.categories
        return everything or base.is_tool_selected(link, self.names, self.categories)

    def _is_named(self, link: ToolUse) -> bool:
        """Return whether a name or a glob other than `*` selects the tool."""
        return base.is_tool_selected(link, tuple([name for name in self.names if name != "*"]), ())

    def _edit_call(self, history: History, link: ToolUse) -> Iterator[Edit]:
        call = history.occurrence(link.chain.call)
        result = history.occurrence(link.chain.result) if link.chain.result else None
        why = "failed" if self.failed else link.use.category.replace("_", " ")
        named = self._is_named(link) or link.use.category in ANSWERED_CATEGORIES
        match self.action:
            case "drop":
                yield Drop(call, POLICY_NAME, why, removes_human_words=named)
            case "replace_calls":
                yield Replace(call, POLICY_NAME, why)
            case "truncate_calls":
                gaps = elide_long_arguments(link.call.arguments, self.limit)
                if gaps:
                    yield Truncate(call, POLICY_NAME, f"arguments longer than {self.limit:,}", gaps)
            case "summarize":
                targets = (call,) if result is None else (call, result)
                label = _describe_call(link.call, link.result)
                yield Summarize(targets, POLICY_NAME, why, "", label, removes_human_words=named)
            case "replace" if result is not None:
                note = "interrupted" if _is_interrupted(link) else ""
                yield Replace(result, POLICY_NAME, why, note, removes_human_words=named)
            case "truncate" if link.result is not None and result is not None:
                gaps = self._find_result_cuts(link, link.result)
                if gaps:
                    why = f"longer than {self._max_chars:,}"
                    yield Truncate(result, POLICY_NAME, why, gaps, removes_human_words=named)

    @property
    def _max_chars(self) -> int:
        return self.head + self.tail or self.limit

    def _find_result_cuts(self, link: ToolUse, result: ToolResult) -> tuple[Elision, ...]:
        """Return the spans to elide; if the outcome selects calls, it must be recognizable in the text that stays."""
        for tail in (0.5, 0.9):
            gaps = self._find_cuts(result.text, tail)
            after = ToolResult(result.call_id, (Text(apply_elisions(result.text, gaps)),), result.is_error)
            if self.failed is None or has_failed(after, link.use) == base.is_failed_call(link):
                return gaps
        return ()

    def _find_cuts(self, text: str, tail: float) -> tuple[Elision, ...]:
        """Return the spans to elide; with `head` and `tail`, a text may be up to a tenth too long."""
        ends = self.head + self.tail
        if not ends:
            return elide_to_limit(text, self.limit, tail=tail)
        if len(text) <= ends + ends // MIN_SAVING_DIVISOR:
            return ()
        return elide_to_limit(text, ends, tail=self.tail / ends)


@lru_cache(maxsize=1024)
def _describe_call(call: ToolCall, result: ToolResult | None) -> str:
    """Describe a call and its result in one line, independent of the rest of the history."""
    answers = () if result is None else (Message("tool", (result,), author="tool"),)
    alone = History((Message("assistant", (call,), author="model"), *answers))
    chain = ToolChain(Place(0, 0), Place(1, 0) if result else None, active=False)
    return flat(describe_chain(alone, chain), MAX_LINE_CHARS)


def is_failed_or_interrupted(link: ToolUse) -> bool:
    """Return whether a call has an error, was interrupted, or has no result."""
    return base.is_failed_call(link) or _is_interrupted(link)


def _is_interrupted(link: ToolUse) -> bool:
    """Return whether a result, or its placeholder, reports an interruption."""
    text = link.result.text[:200].lstrip() if link.result else ""
    return text.startswith(INTERRUPTED_PREFIX) or (text.startswith("[thresher ") and text.endswith("· interrupted]"))
