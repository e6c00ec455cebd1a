"""A session to be read in a terminal, and the same as plain values."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
from thresher.model.tool_calls import describe_tool_call
from thresher.render.text import format_count, format_token_count, plural, shorten, strip_control_codes
from thresher.tokens import count, estimate_part_tokens

if TYPE_CHECKING:
    from rich.text import Text as RichText

MAX_PART_LINES = 12
"""Lines of one part that are shown before the rest is folded."""

_STYLES = {
    "human": "bold green",
    "model": "bold blue",
    "tool": "magenta",
    "harness": "dim",
    "recall": "dim yellow",
}
_NAMES = {"human": "you", "model": "model", "tool": "result", "harness": "harness", "recall": "recall"}


def transcript_lines(session: Session, *, full: bool = False, plan: Plan | None = None) -> Iterator["RichText"]:
    """The session, line by line: who spoke, what was called, what came back; with a plan, what becomes of each part."""
    yield from _heading(session)
    fates = _index_edits(session.history, plan) if plan is not None else {}
    for number, segment in enumerate(session.segments):
        if number:
            yield _rule(f"compacted: the model goes on from a summary ({format_token_count(count(segment))} tokens)")
        names = {part.id: part for message in segment for part in message.calls}
        shown = fates if segment is session.history else {}
        for index, message in enumerate(segment):
            if not message.carried:
                yield from _message(message, names, full=full, fates=shown.get(index))
        yield from _unanswered_call_lines(segment)
    for branch in session.branches:
        yield _rule(f"taken back: {plural(len(branch.history), 'message')}")
        names = {part.id: part for message in branch.history for part in message.calls}
        for message in branch.history:
            yield from _message(message, names, full=full)
    if session.problems:
        yield _rule("problems met while reading")
        yield from (_styled_line(f"  {problem}", "yellow") for problem in session.problems)


def _index_edits(history: History, plan: Plan) -> dict[int, dict[int, Edit]]:
    """The edit of each part that has one, by message and part."""
    fates: dict[int, dict[int, Edit]] = {}
    for edit in plan.edits:
        for target in list_targets(edit):
            message, part = history.places[target]
            fates.setdefault(message, {})[part] = edit
    return fates


def _edit_line(edit: Edit) -> "RichText":
    together = " together" if isinstance(edit, Summarize) and len(edit.targets) > 1 else ""
    saved = f", saves {edit.saved:,} tokens{together}" if edit.saved else ""
    return _styled_line(f"  ⤷ {EDIT_LABELS[type(edit).__name__]}: {edit.why} [{edit.policy}]{saved}", "bold yellow")


def _styled_line(text: str, style: str = "") -> "RichText":
    from rich.text import Text as RichText

    return RichText(strip_control_codes(text), style=style)


def _rule(text: str) -> "RichText":
    return _styled_line(f"\n── {text} ──", "bold yellow")


def _heading(session: Session) -> Iterator["RichText"]:
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


def _message(
    message: Message, calls: dict[str, ToolCall], *, full: bool, fates: dict[int, Edit] | None = None
) -> Iterator["RichText"]:
    from rich.text import Text as RichText

    facts = [f"{message.time:%H:%M:%S}" if message.time else "", message.model]
    if message.source:
        facts.append(f"line {message.source.line}")
    facts.append(_format_usage(message))
    name = _NAMES[message.author] if message.role != "system" else "system"
    yield RichText.assemble("\n", (f"{name:<8}", _STYLES[message.author]), (" · ".join(filter(None, facts)), "dim"))
    for number, part in enumerate(message.parts):
        yield from _part(part, calls, full=full)
        if fates and number in fates:
            yield _edit_line(fates[number])


def _format_usage(message: Message) -> str:
    if message.usage is None:
        return f"{format_token_count(sum(map(estimate_part_tokens, message.parts)))} tokens"
    usage = message.usage
    cached = f" ({format_token_count(usage.cache_read)} from cache)" if usage.cache_read else ""
    return f"{format_token_count(usage.context)} in{cached}, {format_token_count(usage.output)} out"


def _part(part: Part, calls: dict[str, ToolCall], *, full: bool) -> Iterator["RichText"]:
    match part:
        case Text():
            yield from _folded_lines(part.text, "", full=full, cut=False)
        case Thinking():
            shown = part.text or "[signed, not shown]"
            yield from _folded_lines(shown, "italic dim", full=full, most=4, lead="  ~ ")
        case ToolCall():
            yield _styled_line(f"  ▸ {part.name}  {shorten(_call_target(part), 100)}", "bold")
            if full:
                yield from _folded_lines(part.arguments, "dim", full=True, lead="    ")
        case ToolResult():
            yield from _result(part, calls.get(part.call_id), full=full)
        case Summary():
            yield from _folded_lines(part.text, "yellow", full=full, lead="  § ", cut=False)
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
    yield from _folded_lines(text, "dim", full=full, most=6, lead="    ")
    for item in part.content:
        if not isinstance(item, Text):
            yield from _part(item, {}, full=full)


def _folded_lines(
    text: str, style: str, *, full: bool, most: int = MAX_PART_LINES, lead: str = "  ", cut: bool = True
) -> Iterator["RichText"]:
    lines = strip_control_codes(text).rstrip().split("\n")
    shown = lines if full or len(lines) <= most + 1 else lines[:most]
    for line in shown:
        yield _styled_line(lead + (_truncate_line(line) if cut and not full else line), style)
    if len(shown) < len(lines):
        yield _styled_line(f"{lead}… {plural(len(lines) - len(shown), 'more line')}", "dim cyan")


def _truncate_line(line: str, width: int = 400) -> str:
    return line if len(line) <= width else f"{line[:width]}… {format_count(len(line) - width)} more characters"


def _unanswered_call_lines(segment: History) -> Iterator["RichText"]:
    for chain in segment.chains:
        if chain.result is None:
            call = segment[chain.call.message].parts[chain.call.part]
            if isinstance(call, ToolCall):
                yield _styled_line(f"\n  {call.name} was called and has no result", "yellow")


def session_value(session: Session) -> dict[str, Any]:
    """The session as plain values, for `--json`."""
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
