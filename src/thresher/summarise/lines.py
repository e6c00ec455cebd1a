"""One line for one tool chain, and one text for all edits of a file."""

from collections.abc import Sequence

from thresher.model import Chain, History
from thresher.summarise.changes import Change, changes
from thresher.summarise.deeds import Deed, deed_of
from thresher.summarise.outcomes import error_line
from thresher.summarise.words import clip, clip_path, line, lines_in, plural

LONGEST_LINE = 160
ITEM = 120
"""Characters of one item in a list of edits."""


def one_line(history: History, chain: Chain) -> str:
    """What a chain did and how it ended, in one line; the path stays whole where it can."""
    deed = deed_of(history, chain)
    if deed is None:
        return ""
    before, subject, after = _said(deed)
    end = _ending(deed)
    room = LONGEST_LINE - len(before) - len(end)
    is_path = subject == line(deed.use.path)
    subject = clip_path(subject, room) if is_path else clip(subject, max(room - len(after), 60))
    return clip(before + subject + clip(after, room - len(subject)) + end, LONGEST_LINE)


def edits_ledger(history: History, chains: Sequence[Chain], *, limit: int = 1000) -> str:
    """All changes to one file as one text: how many, when, and what each was; of too many the latest."""
    deeds = [deed for deed in (deed_of(history, chain) for chain in chains) if deed is not None]
    if not deeds:
        return ""
    made = [deed for deed in deeds if not deed.end.failed]
    failed = len(deeds) - len(made)
    head = ", ".join([plural(len(made), "change"), *([f"{failed} failed"] if failed else []), span(deeds)])
    path = clip_path(line(deeds[0].use.path) or "a file", max(limit - len(head) - 30, 12))
    head = f"[Edits to {path}: {head}"
    items = _latest([_item(deed) for deed in made], limit - len(head) - 3)
    return clip(f"{head}: {items}]" if items else f"{head}]", limit)


def counted(change: Change) -> str:
    """The lines that came and went: `+12 −3 lines`; a whole new file has only lines."""
    if change.operation == "write" and not change.removed:
        return plural(change.added, "line")
    return f"+{change.added} −{change.removed} lines" if change.added or change.removed else ""


def span(deeds: Sequence[Deed]) -> str:
    """`turns 10-50`, or `turn 10`."""
    return turns([deed.turn for deed in deeds])


def turns(numbers: Sequence[int]) -> str:
    """`turns 10-50`, or `turn 10`; from the first number to the last."""
    first, last = max(min(numbers), 1), max(*numbers, 1)
    return f"turn {first}" if first == last else f"turns {first}-{last}"


def _latest(items: Sequence[str], room: int) -> str:
    """As many of the last items as fit, in order, and how many came before them."""
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


def _item(deed: Deed) -> str:
    change = _change(deed)
    said = line(deed.use.intent) or (f"`{clip(change.first, 80)}`" if change.first else change.operation)
    lines = counted(change).removesuffix(" lines")
    return clip(f"{said} ({lines})" if lines else said, ITEM)


def _change(deed: Deed) -> Change:
    """What happens to the file that the call names, among all that it changes."""
    found = changes(deed.call, deed.use, deed.fields)
    return next((change for change in found if change.path == deed.use.path), found[0])


_DONE = {"write": "Wrote", "delete": "Deleted", "move": "Moved", "list": "Listed", "read": "Read"}


def _said(deed: Deed) -> tuple[str, str, str]:
    """What was done: the verb, the thing, and what more there is to say."""
    use = deed.use
    intent = f": {line(use.intent)}" if use.intent else ""
    path = line(use.path)
    match use.category:
        case "file_edit":
            lines = counted(_change(deed)) if use.operation != "delete" else ""
            others = len(changes(deed.call, use, deed.fields)) - 1
            more = f" and {plural(others, 'other file')}" if others else ""
            return (
                f"{_DONE.get(use.operation, 'Edited')} ",
                path or "a file",
                more + (f" ({lines})" if lines else "") + intent,
            )
        case "file_read" | "execution" | "project" if use.operation == "read" or (use.operation == "list" and path):
            return f"{_DONE[use.operation]} ", path or "a file", _size(deed)
        case "file_read":
            place = f" in {path}" if path else ""
            return "Searched for ", f'"{deed.query}"' if deed.query else "files", place + _size(deed)
        case "execution" | "project" if deed.command:
            return "Ran: ", deed.command, ""
        case "web" if deed.query:
            verb = "Fetched " if "://" in deed.query else "Searched the web: "
            return verb, deed.query, ""
        case "subagent":
            return "Asked sub-agent ", f'"{line(use.intent)}"', ""
        case "question":
            answer = line(deed.end.output)
            return "Asked the user: ", f'"{deed.question}"', f" → {answer}" if answer else ""
        case "plan":
            return "Updated the plan", intent, ""
        case _:
            about = path or deed.query or line(deed.call.arguments).strip("{}")
            return f"Called {clip(line(deed.call.name) or 'a tool', 60)}", f": {about}" if about else "", ""


def _size(deed: Deed) -> str:
    return f" ({plural(lines_in(deed.end.output), 'line')})" if deed.end.known and not deed.end.failed else ""


def _ending(deed: Deed) -> str:
    if not deed.end.known:
        return ""
    if not deed.end.failed:
        return " → ok" if deed.is_command and deed.command else ""
    if deed.end.code:
        return f" → failed (exit {deed.end.code})"
    told = error_line(deed.end)
    return f" → failed: {clip(told, 60)}" if told else " → failed"
