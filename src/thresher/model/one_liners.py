"""Describe a tool chain in one line, and all edits of a file in one text."""

from collections.abc import Sequence
from typing import NamedTuple

from thresher.model import History, ToolChain
from thresher.model.file_changes import ToolFileChange, extract_file_changes
from thresher.model.text import clip, clip_path, count_text_lines, count_with_noun, to_printable_line
from thresher.model.tool_actions import ChainAction, parse_chain_action
from thresher.model.tool_outcomes import find_error_line

MAX_LINE_CHARS = 160
MAX_ITEM_CHARS = 120
"""Maximum length of one item in a list of edits."""


def describe_chain(history: History, chain: ToolChain) -> str:
    """Describe the action and outcome of a tool chain in one line; clip the details first, then the path."""
    action = parse_chain_action(history, chain)
    if action is None:
        return ""
    before, subject, after = _describe_action(action)
    outcome = _format_outcome(action)
    width = MAX_LINE_CHARS - len(before) - len(outcome)
    is_path = subject == to_printable_line(action.use.path)
    subject = clip_path(subject, width) if is_path else clip(subject, max(width - len(after), 60))
    return clip(before + subject + clip(after, width - len(subject)) + outcome, MAX_LINE_CHARS)


def format_edit_list(history: History, chains: Sequence[ToolChain], *, limit: int = 1000) -> str:
    """Describe the changes to one file: their number and turns, then the latest changes that fit."""
    actions = [action for action in (parse_chain_action(history, chain) for chain in chains) if action is not None]
    if not actions:
        return ""
    succeeded = [action for action in actions if not action.outcome.failed]
    failed = len(actions) - len(succeeded)
    failures = [f"{failed} failed"] if failed else []
    head = ", ".join(
        [count_with_noun(len(succeeded), "change"), *failures, format_turn_range([action.turn for action in actions])]
    )
    path = clip_path(to_printable_line(actions[0].use.path) or "a file", max(limit - len(head) - 30, 12))
    head = f"[Edits to {path}: {head}"
    items = _join_latest(_merge_edits(succeeded), limit - len(head) - 3)
    return clip(f"{head}: {items}]" if items else f"{head}]", limit)


def format_line_changes(change: ToolFileChange) -> str:
    """Format the number of changed lines as `+12 −3 lines`, or `12 lines` for a new file."""
    if change.operation == "write" and not change.removed:
        return count_with_noun(change.added, "line")
    return f"+{change.added} −{change.removed} lines" if change.added or change.removed else ""


def format_turn_range(numbers: Sequence[int]) -> str:
    """Format a range of turns as `turns 10-50` or `turn 10`."""
    first, last = max(min(numbers), 1), max(*numbers, 1)
    return f"turn {first}" if first == last else f"turns {first}-{last}"


class _EditItem(NamedTuple):
    """One or more changes with the same description."""

    text: str
    change_count: int


def _join_latest(items: Sequence[_EditItem], width: int) -> str:
    """Join the last items that fit, in order; if items are omitted, state the number of their changes first."""
    start = len(items)
    length = 0
    earlier = sum(item.change_count for item in items)
    while start:
        text, count = items[start - 1]
        note = len(f"… {earlier - count} earlier; ") if earlier > count else 0
        if length + len(text) + note > width:
            break
        length += len(text) + 2
        earlier -= count
        start -= 1
    before = f"… {earlier} earlier; " if earlier else ""
    return before + "; ".join(item.text for item in items[start:]) if start < len(items) else ""


def _merge_edits(actions: Sequence[ChainAction]) -> list[_EditItem]:
    """Describe each change; changes with the same description are one item, in the place of the latest one."""
    changes_by_description: dict[str, list[ToolFileChange]] = {}
    for action in actions:
        change = _main_change(action)
        description = _describe_edit(action, change)
        changes = changes_by_description.pop(description, [])
        changes.append(change)
        changes_by_description[description] = changes
    return [_format_edits(description, changes) for description, changes in changes_by_description.items()]


def _describe_edit(action: ChainAction, change: ToolFileChange) -> str:
    return to_printable_line(action.use.intent) or (
        f"`{clip(change.first_line, 80)}`" if change.first_line else change.operation
    )


def _format_edits(description: str, changes: Sequence[ToolFileChange]) -> _EditItem:
    if len(changes) == 1:
        lines = format_line_changes(changes[0]).removesuffix(" lines")
    else:
        description = f"{clip(description, MAX_ITEM_CHARS - 40)} {len(changes)}x"
        lines = f"+{sum(change.added for change in changes)} −{sum(change.removed for change in changes)}"
    return _EditItem(clip(f"{description} ({lines})" if lines else description, MAX_ITEM_CHARS), len(changes))


def _main_change(action: ChainAction) -> ToolFileChange:
    """Return the change to the file that the call names; if there is none, return the first change."""
    changes = extract_file_changes(action.call, action.use, action.fields)
    return next((change for change in changes if change.path == action.use.path), changes[0])


_PAST_TENSE_VERBS = {"write": "Wrote", "delete": "Deleted", "move": "Moved", "list": "Listed", "read": "Read"}


def _describe_action(action: ChainAction) -> tuple[str, str, str]:
    """Return the verb, the object and the details of an action."""
    use = action.use
    intent = f": {to_printable_line(use.intent)}" if use.intent else ""
    path = to_printable_line(use.path)
    match use.category:
        case "file_edit":
            lines = format_line_changes(_main_change(action)) if use.operation != "delete" else ""
            others = len(extract_file_changes(action.call, use, action.fields)) - 1
            more = f" and {count_with_noun(others, 'other file')}" if others else ""
            verb = _PAST_TENSE_VERBS.get(use.operation, "Edited")
            return f"{verb} ", path or "a file", more + (f" ({lines})" if lines else "") + intent
        case "file_read" | "execution" | "project" if use.operation == "read" or (use.operation == "list" and path):
            return f"{_PAST_TENSE_VERBS[use.operation]} ", path or "a file", _format_output_size(action)
        case "file_read":
            folder = f" in {path}" if path else ""
            subject = f'"{action.query}"' if action.query else "files"
            return "Searched for ", subject, folder + _format_output_size(action)
        case "execution" | "project" if action.command:
            return "Ran: ", action.command, ""
        case "web" if action.query:
            verb = "Fetched " if "://" in action.query else "Searched the web: "
            return verb, action.query, ""
        case "subagent":
            return "Asked sub-agent ", f'"{to_printable_line(use.intent)}"', ""
        case "question":
            answer = to_printable_line(action.outcome.output)
            return "Asked the user: ", f'"{action.question}"', f" → {answer}" if answer else ""
        case "plan":
            return "Updated the plan", intent, ""
        case "completion":
            return "Reported completion", intent, ""
        case _:
            about = path or action.query or to_printable_line(action.call.arguments).strip("{}")
            tool = clip(to_printable_line(action.call.name) or "a tool", 60)
            return f"Called {tool}", f": {about}" if about else "", ""


def _format_output_size(action: ChainAction) -> str:
    if not action.outcome.is_known or action.outcome.failed:
        return ""
    return f" ({count_with_noun(count_text_lines(action.outcome.output), 'line')})"


def _format_outcome(action: ChainAction) -> str:
    if not action.outcome.is_known:
        return ""
    if not action.outcome.failed:
        return " → ok" if action.is_command and action.command else ""
    if action.outcome.exit_code:
        return f" → failed (exit {action.outcome.exit_code})"
    error = find_error_line(action.outcome)
    return f" → failed: {clip(error, 60)}" if error else " → failed"
