"""Describe a tool chain in one line, and all edits of a file in one text."""

from collections.abc import Sequence

from thresher.model import History, ToolChain
from thresher.model.file_changes import ToolFileChange, extract_file_changes
from thresher.model.text import clip, clip_path, count_text_lines, count_with_noun, to_printable_line
from thresher.model.tool_actions import ChainAction, parse_chain_action
from thresher.model.tool_outcomes import find_error_line

MAX_LINE_CHARS = 160
MAX_ITEM_CHARS = 120
"""Maximum length of one item in a list of edits."""


def describe_chain(history: History, chain: ToolChain) -> str:
    """Describe the action and outcome of a tool chain in one line; the path is clipped last."""
    deed = parse_chain_action(history, chain)
    if deed is None:
        return ""
    before, subject, after = _describe_action(deed)
    end = _format_outcome(deed)
    room = MAX_LINE_CHARS - len(before) - len(end)
    is_path = subject == to_printable_line(deed.use.path)
    subject = clip_path(subject, room) if is_path else clip(subject, max(room - len(after), 60))
    return clip(before + subject + clip(after, room - len(subject)) + end, MAX_LINE_CHARS)


def format_edit_list(history: History, chains: Sequence[ToolChain], *, limit: int = 1000) -> str:
    """Summarize all changes to one file: how many, in which turns, and each change; the latest ones if not all fit."""
    deeds = [deed for deed in (parse_chain_action(history, chain) for chain in chains) if deed is not None]
    if not deeds:
        return ""
    made = [deed for deed in deeds if not deed.outcome.failed]
    failed = len(deeds) - len(made)
    head = ", ".join(
        [count_with_noun(len(made), "change"), *([f"{failed} failed"] if failed else []), format_action_turns(deeds)]
    )
    path = clip_path(to_printable_line(deeds[0].use.path) or "a file", max(limit - len(head) - 30, 12))
    head = f"[Edits to {path}: {head}"
    items = _join_latest([_format_edit(deed) for deed in made], limit - len(head) - 3)
    return clip(f"{head}: {items}]" if items else f"{head}]", limit)


def format_line_changes(change: ToolFileChange) -> str:
    """Format the number of changed lines as `+12 −3 lines`, or `12 lines` for a new file."""
    if change.operation == "write" and not change.removed:
        return count_with_noun(change.added, "line")
    return f"+{change.added} −{change.removed} lines" if change.added or change.removed else ""


def format_action_turns(deeds: Sequence[ChainAction]) -> str:
    """Format the turns of the actions as `turns 10-50` or `turn 10`."""
    return format_turn_range([deed.turn for deed in deeds])


def format_turn_range(numbers: Sequence[int]) -> str:
    """Format a range of turns as `turns 10-50` or `turn 10`."""
    first, last = max(min(numbers), 1), max(*numbers, 1)
    return f"turn {first}" if first == last else f"turns {first}-{last}"


def _join_latest(items: Sequence[str], room: int) -> str:
    """Join as many of the last items as fit, in order, after the number of omitted items."""
    kept = 0
    used = 0
    for place in range(len(items) - 1, -1, -1):
        note = len(f"… {place} earlier; ") if place else 0
        if used + len(items[place]) + note > room:
            break
        used += len(items[place]) + 2
        kept += 1
    missing = len(items) - kept
    before = f"… {missing} earlier; " if missing else ""
    return before + "; ".join(items[missing:]) if kept else ""


def _format_edit(deed: ChainAction) -> str:
    change = _main_change(deed)
    said = to_printable_line(deed.use.intent) or (
        f"`{clip(change.first_line, 80)}`" if change.first_line else change.operation
    )
    lines = format_line_changes(change).removesuffix(" lines")
    return clip(f"{said} ({lines})" if lines else said, MAX_ITEM_CHARS)


def _main_change(deed: ChainAction) -> ToolFileChange:
    """Return the change to the file that the call names."""
    found = extract_file_changes(deed.call, deed.use, deed.fields)
    return next((change for change in found if change.path == deed.use.path), found[0])


_PAST_TENSE_VERBS = {"write": "Wrote", "delete": "Deleted", "move": "Moved", "list": "Listed", "read": "Read"}


def _describe_action(deed: ChainAction) -> tuple[str, str, str]:
    """Return the verb, the object, and any details."""
    use = deed.use
    intent = f": {to_printable_line(use.intent)}" if use.intent else ""
    path = to_printable_line(use.path)
    match use.category:
        case "file_edit":
            lines = format_line_changes(_main_change(deed)) if use.operation != "delete" else ""
            others = len(extract_file_changes(deed.call, use, deed.fields)) - 1
            more = f" and {count_with_noun(others, 'other file')}" if others else ""
            return (
                f"{_PAST_TENSE_VERBS.get(use.operation, 'Edited')} ",
                path or "a file",
                more + (f" ({lines})" if lines else "") + intent,
            )
        case "file_read" | "execution" | "project" if use.operation == "read" or (use.operation == "list" and path):
            return f"{_PAST_TENSE_VERBS[use.operation]} ", path or "a file", _format_output_size(deed)
        case "file_read":
            place = f" in {path}" if path else ""
            return "Searched for ", f'"{deed.query}"' if deed.query else "files", place + _format_output_size(deed)
        case "execution" | "project" if deed.command:
            return "Ran: ", deed.command, ""
        case "web" if deed.query:
            verb = "Fetched " if "://" in deed.query else "Searched the web: "
            return verb, deed.query, ""
        case "subagent":
            return "Asked sub-agent ", f'"{to_printable_line(use.intent)}"', ""
        case "question":
            answer = to_printable_line(deed.outcome.output)
            return "Asked the user: ", f'"{deed.question}"', f" → {answer}" if answer else ""
        case "plan":
            return "Updated the plan", intent, ""
        case _:
            about = path or deed.query or to_printable_line(deed.call.arguments).strip("{}")
            return (
                f"Called {clip(to_printable_line(deed.call.name) or 'a tool', 60)}",
                f": {about}" if about else "",
                "",
            )


def _format_output_size(deed: ChainAction) -> str:
    return (
        f" ({count_with_noun(count_text_lines(deed.outcome.output), 'line')})"
        if deed.outcome.is_known and not deed.outcome.failed
        else ""
    )


def _format_outcome(deed: ChainAction) -> str:
    if not deed.outcome.is_known:
        return ""
    if not deed.outcome.failed:
        return " → ok" if deed.is_command and deed.command else ""
    if deed.outcome.exit_code:
        return f" → failed (exit {deed.outcome.exit_code})"
    told = find_error_line(deed.outcome)
    return f" → failed: {clip(told, 60)}" if told else " → failed"
