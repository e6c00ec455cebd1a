"""Placeholders: one line that replaces removed content, with its id and enough facts to decide whether to restore it.

`[thresher t1:0123456789abcdef · Read src/a.py · 342 lines, 12,034 chars · failed · turn 14]`

A placeholder in an input history counts only if its id is in the content store: see `find_verified_placeholders`.
"""

import re
from collections.abc import Callable, Iterable

from thresher.model import History, Image, Message, Part, Place, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.jsontext import load_json_object
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import describe_tool_call
from thresher.model.tool_outcomes import has_failed

PLACEHOLDER_PREFIX = "[thresher "
PLACEHOLDER_ARGUMENT = "removed"
"""Name of the argument that holds the placeholder of a call's removed arguments."""
_OLD_PLACEHOLDER_ARGUMENT = "left_out"
"""Name that earlier versions of Thresher used for `PLACEHOLDER_ARGUMENT`."""
ID_SLOT = "t1:................"
"""Temporary id in a note until the real id is known. It has the same length, so that limits hold."""
SUMMARY_END = "[/thresher]"
"""Marker at the end of a summary, so that text after the marker does not count as part of the summary."""
_PLACEHOLDER = re.compile(r"\[thresher (t1:[0-9a-f]{16}) · [^\n\[\]]{0,2000}\]")
_WHOLE_PLACEHOLDER = re.compile(rf"\s*{_PLACEHOLDER.pattern}(?:\n(?:(?!\[/thresher\])[\s\S])*\[/thresher\])?\s*")
MAX_LABEL_LENGTH = 80
MAX_PATH_LENGTH = 300
"""Maximum length of a label with a path, because a truncated path is of little use."""
MAX_NOTE_LENGTH = 1_500
ROLE_LABELS = {
    "user": "user message",
    "assistant": "assistant message",
    "system": "system text",
    "tool": "tool message",
}


def find_placeholder_ids(text: str) -> list[str]:
    """Return the ids of all placeholders in a text."""
    return _PLACEHOLDER.findall(text) if PLACEHOLDER_PREFIX in text else []


def get_placeholder_id(part: Part) -> str:
    """Return the id of a part that consists only of a placeholder, else an empty string."""
    if isinstance(part, ToolCall):
        text = _read_placeholder_argument(part) if PLACEHOLDER_PREFIX in part.arguments else ""
    elif isinstance(part, Text | ToolResult | Summary):
        text = part_text(part)
    else:
        return ""
    if not text.lstrip().startswith(PLACEHOLDER_PREFIX):
        return ""
    match = _WHOLE_PLACEHOLDER.fullmatch(text)
    return match[1] if match else ""


def _read_placeholder_argument(call: ToolCall) -> str:
    """Return the placeholder that replaced a call's long arguments, or an empty string."""
    arguments = load_json_object(call.arguments)
    placeholder = arguments.get(PLACEHOLDER_ARGUMENT, arguments.get(_OLD_PLACEHOLDER_ARGUMENT))
    return placeholder if isinstance(placeholder, str) else ""


def find_verified_placeholders(history: History, known: Callable[[Iterable[str]], set[str]]) -> frozenset[Place]:
    """Return the places of parts that contain nothing but a placeholder with a known id."""
    claims = {
        Place(i, j): id_ for i, message in enumerate(history.messages) for j, id_ in _claimed_placeholders(message)
    }
    stored = known(set(claims.values())) if claims else set()
    return frozenset(place for place, id_ in claims.items() if id_ in stored)


@cached_per_message
def _claimed_placeholders(message: Message) -> tuple[tuple[int, str], ...]:
    """Return the index and the id of each part that looks like a placeholder."""
    return tuple([(j, id_) for j, part in enumerate(message.parts) if (id_ := get_placeholder_id(part))])


def format_placeholder(
    short: str, label: str, part: Part, turn: int, note: str = "", *, call: ToolCall | None = None, opening: str = ""
) -> str:
    """Format the placeholder of one part; `call` is the call that a result answers, `opening` the way to restore it."""
    way = f"open: {opening}" if opening else ""
    outcome = "failed" if isinstance(part, ToolResult) and _has_failed(part, call) else ""
    words = (
        label,
        describe_size(part),
        outcome,
        f"turn {turn}" if turn else "",
        to_label_line(note, MAX_NOTE_LENGTH),
        way,
    )
    return f"[thresher {short} · {' · '.join(word for word in words if word)}]"


def add_kept_text(placeholder: str, kept: str) -> str:
    """Append a text that stays, such as a person's words, to a placeholder."""
    return f"{placeholder}\n{strip_summary_end(kept).strip()}\n{SUMMARY_END}"


def _has_failed(result: ToolResult, call: ToolCall | None) -> bool:
    return result.is_error or (call is not None and has_failed(result, describe_tool_call(call)))


def format_summary(short: str, label: str, text: str) -> str:
    """Format a summary: a heading line in placeholder form, the text, and the end marker."""
    top = f"[thresher {short} · {to_label_line(label, MAX_PATH_LENGTH)}]"
    return f"{top}\n{strip_summary_end(text)}\n{SUMMARY_END}" if text else top


def strip_summary_end(text: str) -> str:
    """Remove end markers from a text, including those that only form when another one is removed."""
    while SUMMARY_END in text:
        text = text.replace(SUMMARY_END, "")
    return text


def describe_size(part: Part) -> str:
    """Describe the size of a part: lines, characters, images."""
    text = part_text(part)
    images = sum(isinstance(item, Image) for item in part.content) if isinstance(part, ToolResult) else 0
    lines = text.count("\n") + 1 if text else 0
    words = [f"{lines:,} lines" if lines > 1 else "", f"{len(text):,} chars" if text else ""]
    words.append(f"{images} image{'s' * (images > 1)}" if images else "")
    return ", ".join(word for word in words if word)


def describe_part(message: Message, part: Part, call: ToolCall | None) -> str:
    """Describe a part in a few words: the tool with its path or command, or the role of the message."""
    if isinstance(part, ToolCall):
        call = part
    if call is None:
        return "image" if isinstance(part, Image) else ROLE_LABELS[message.role]
    use = describe_tool_call(call)
    if use.path:
        return to_label_line(f"{call.name} {use.path}", MAX_PATH_LENGTH)
    return to_label_line(f"{call.name} {use.command or use.intent}")


def to_label_line(text: str, limit: int = MAX_LABEL_LENGTH) -> str:
    """Return the text on one line, shortened in the middle, without brackets that would end a placeholder."""
    flat = " ".join(text.replace("[", "(").replace("]", ")").split())
    half = (limit - 1) // 2
    return flat if len(flat) <= limit else f"{flat[:half]}…{flat[-half:]}"
