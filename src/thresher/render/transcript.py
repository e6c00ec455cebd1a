"""Render a session as lines for a terminal and as JSON values."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from thresher.edits import Edit, Plan, Summarize, list_targets
from thresher.edits.explain import EDIT_LABELS
from thresher.model import (
    History,
    Image,
    Message,
    Part,
    Session,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    content_id,
    part_text,
)
from thresher.model.message import Author
from thresher.model.tool_calls import describe_tool_call
from thresher.render.text import format_count, format_token_count, plural, shorten, strip_control_codes
from thresher.tokens import count, estimate_part_tokens

if TYPE_CHECKING:
    from rich.text import Text as RichText

MAX_PART_LINES = 12
"""Maximum number of lines to show of a part; further lines are only counted."""
MAX_THINKING_LINES = 4
MAX_RESULT_LINES = 6
MAX_LINE_WIDTH = 400

_STYLES = {
    "human": "bold green",
    "model": "bold blue",
    "tool": "magenta",
    "harness": "dim",
    "recall": "dim yellow",
    "context": "dim",
}
_AUTHOR_LABELS = {name: name for name in get_args(Author)} | {"human": "you", "tool": "result"}


def transcript_lines(session: Session, *, full: bool = False, plan: Plan | None = None) -> Iterator["RichText"]:
    """Yield the lines of a session: messages, tool calls, results, and the edit of each part if a plan is given.

    Each message has its number, which also counts messages that a compaction repeats.
    """
    yield from heading_lines(session)
    edits = _index_edits(session.history, plan) if plan is not None else {}
    first = 0
    for number, segment in enumerate(session.segments):
        if number:
            yield rule_line(
                f"compacted: the model continues from a summary ({format_token_count(count(segment))} tokens)"
            )
        yield from _history_lines(segment, edits if segment is session.history else {}, first, full=full)
        yield from _unanswered_call_lines(segment)
        first += len(segment)
    for branch in session.branches:
        yield rule_line(f"rewound: {plural(len(branch.history), 'message')}")
        yield from _history_lines(branch.history, {}, first, full=full, carried=True)
        first += len(branch.history)
    if session.problems:
        yield rule_line("problems found while reading")
        yield from (_styled_line(f"  {problem}", "yellow") for problem in session.problems)


def _history_lines(
    history: History, edits: dict[int, dict[int, Edit]], first: int, *, full: bool, carried: bool = False
) -> Iterator["RichText"]:
    """Yield the lines of a history, whose first message has the number `first`.

    With `carried`, include messages that a compaction repeats.
    """
    calls = {call.id: call for message in history for call in message.calls}
    for index, message in enumerate(history):
        if carried or not message.carried:
            yield from message_lines(message, calls, first + index, full=full, edits=edits.get(index))


def _index_edits(history: History, plan: Plan) -> dict[int, dict[int, Edit]]:
    """Map a message index and a part index to the edit of the part."""
    edits: dict[int, dict[int, Edit]] = {}
    for edit in plan.edits:
        for target in list_targets(edit):
            message, part = history.places[target]
            edits.setdefault(message, {})[part] = edit
    return edits


def _edit_line(edit: Edit) -> "RichText":
    scope = f" for {len(edit.targets)} parts" if isinstance(edit, Summarize) and len(edit.targets) > 1 else ""
    saved = f", saves {edit.saved:,} tokens{scope}" if edit.saved else ""
    return _styled_line(f"  ⤷ {EDIT_LABELS[type(edit).__name__]}: {edit.why} [{edit.policy}]{saved}", "bold yellow")


def _styled_line(text: str, style: str = "") -> "RichText":
    from rich.text import Text as RichText

    return RichText(strip_control_codes(text), style=style)


def rule_line(text: str) -> "RichText":
    """Return a line that separates two sections."""
    return _styled_line(f"\n── {text} ──", "bold yellow")


def heading_lines(session: Session) -> Iterator["RichText"]:
    """Yield the facts of a session."""
    from rich.text import Text as RichText

    yield RichText.assemble((session.agent, "cyan"), "  ", (session.id, "bold"), "  ", shorten(session.title, 80))
    facts = [session.project, session.git_branch, f"version {session.version}" if session.version else ""]
    if session.started and session.ended:
        facts.append(f"{session.started:%Y-%m-%d %H:%M} to {session.ended:%H:%M}")
    yield _styled_line(" · ".join(filter(None, facts)), "dim")
    messages = list(session.messages())
    counted = [
        plural(len(messages), "message"),
        plural(sum(1 for message in messages for _ in message.calls), "call"),
        plural(session.compactions, "compaction") if session.compactions else "",
        plural(len(session.children), "sub-agent") if session.children else "",
        f"about {format_token_count(count(session.history))} tokens now",
    ]
    yield _styled_line(" · ".join(filter(None, counted)), "dim")
    for child in session.children:
        title = shorten(child.title, 60)
        yield _styled_line(f"  sub-agent {child.id}: {plural(len(child.history), 'message')}  {title}", "dim")


def message_lines(
    message: Message,
    calls: dict[str, ToolCall],
    number: int,
    *,
    full: bool,
    edits: dict[int, Edit] | None = None,
    is_marked: bool = False,
) -> Iterator["RichText"]:
    """Yield the lines of a message: its number and facts, then its parts. `is_marked` points to its number."""
    from rich.text import Text as RichText

    facts = [f"{message.time:%H:%M:%S}" if message.time else "", message.model]
    if message.source:
        facts.append(f"line {message.source.line}")
    facts.append(_format_usage(message))
    label = _AUTHOR_LABELS[message.author] if message.role != "system" else "system"
    facts_text = " · ".join(filter(None, (f"#{number}", *facts)))
    marker = (" ◀", "bold yellow") if is_marked else ""
    yield RichText.assemble("\n", (f"{label:<8}", _STYLES[message.author]), (facts_text, "dim"), marker)
    for index, part in enumerate(message.parts):
        yield from _part(part, calls, full=full)
        if edits and index in edits:
            yield _edit_line(edits[index])


def _format_usage(message: Message) -> str:
    if message.usage is None:
        return f"{format_token_count(sum(map(estimate_part_tokens, message.parts)))} tokens"
    usage = message.usage
    cached = f" ({format_token_count(usage.cache_read)} from cache)" if usage.cache_read else ""
    return f"{format_token_count(usage.context)} in{cached}, {format_token_count(usage.output)} out"


def _part(part: Part, calls: dict[str, ToolCall], *, full: bool) -> Iterator["RichText"]:
    match part:
        case Text():
            yield from _folded_lines(part.text, "", full=full, truncate=False)
        case Thinking():
            text = part.text or "[signed, not shown]"
            yield from _folded_lines(text, "italic dim", full=full, limit=MAX_THINKING_LINES, prefix="  ~ ")
        case ToolCall():
            yield _styled_line(f"  ▸ {part.name}  {shorten(_call_target(part), 100)}", "bold")
            if full:
                yield from _folded_lines(part.arguments, "dim", full=True, prefix="    ")
        case ToolResult():
            yield from _result(part, calls.get(part.call_id), full=full)
        case Summary():
            yield from _folded_lines(part.text, "yellow", full=full, prefix="  § ", truncate=False)
        case Image():
            yield _styled_line(f"  [image {part.media_type or part.url}]", "dim")
        case Unknown():
            yield _styled_line(f"  [{part.kind or 'unknown part'}: {format_count(len(part.data))} characters]", "dim")


def _call_target(call: ToolCall) -> str:
    use = describe_tool_call(call)
    return use.command or use.path or use.intent or call.arguments


def _result(part: ToolResult, call: ToolCall | None, *, full: bool) -> Iterator["RichText"]:
    text = part.text
    mark, style = ("✗", "red") if part.is_error else ("✓", "green")
    name = call.name if call else part.name or "no call with this id"
    size = f"{plural(text.count(chr(10)) + 1, 'line')}, {plural(len(text), 'character')}" if text else "empty"
    yield _styled_line(f"  {mark} {name}  {size}", style)
    yield from _folded_lines(text, "dim", full=full, limit=MAX_RESULT_LINES, prefix="    ")
    for item in part.content:
        if not isinstance(item, Text):
            yield from _part(item, {}, full=full)


def _folded_lines(
    text: str, style: str, *, full: bool, limit: int = MAX_PART_LINES, prefix: str = "  ", truncate: bool = True
) -> Iterator["RichText"]:
    lines = strip_control_codes(text).rstrip().split("\n")
    shown = lines if full or len(lines) <= limit + 1 else lines[:limit]
    for line in shown:
        yield _styled_line(prefix + (_truncate_line(line) if truncate and not full else line), style)
    if len(shown) < len(lines):
        yield _styled_line(f"{prefix}… {plural(len(lines) - len(shown), 'more line')}", "dim cyan")


def _truncate_line(line: str) -> str:
    more = len(line) - MAX_LINE_WIDTH
    return line if more <= 0 else f"{line[:MAX_LINE_WIDTH]}… {format_count(more)} more characters"


def _unanswered_call_lines(segment: History) -> Iterator["RichText"]:
    for chain in segment.chains:
        if chain.result is None:
            call = segment[chain.call.message].parts[chain.call.part]
            if isinstance(call, ToolCall):
                yield _styled_line(f"\n  {call.name} was called but has no result", "yellow")


def session_value(session: Session) -> dict[str, Any]:
    """Return the session as JSON values."""
    return {
        "agent": session.agent,
        "id": session.id,
        "file": session.file,
        "project": session.project,
        "branch": session.git_branch,
        "title": session.title,
        "version": session.version,
        "parent": session.parent,
        "started": session.started.isoformat() if session.started else None,
        "ended": session.ended.isoformat() if session.ended else None,
        "compactions": session.compactions,
        "tokens": count(session.history),
        "segments": [[_message_value(message) for message in segment] for segment in session.segments],
        "branches": [[_message_value(message) for message in branch.history] for branch in session.branches],
        "children": [{"id": child.id, "call_id": child.call_id, "file": child.file} for child in session.children],
        "problems": [str(problem) for problem in session.problems],
    }


def _message_value(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "author": message.author,
        "id": message.id,
        "time": message.time.isoformat() if message.time else None,
        "line": message.source.line if message.source else None,
        "is_replayed": message.carried,
        "parts": [_part_value(part) for part in message.parts],
    }


def _part_value(part: Part) -> dict[str, Any]:
    value: dict[str, Any] = {"kind": type(part).__name__, "id": content_id(part), "text": part_text(part)}
    if isinstance(part, ToolCall):
        value |= {"name": part.name, "call_id": part.id}
    elif isinstance(part, ToolResult):
        value |= {"call_id": part.call_id, "is_error": part.is_error}
    return value
