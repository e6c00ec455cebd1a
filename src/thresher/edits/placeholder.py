"""What stands in for something that was left out: one line with the id to ask for, and enough to decide whether to.

`[thresher t1:0123456789abcdef · Read src/a.py · 342 lines, 12,034 chars · failed · turn 14]`

A line like this in a history that comes in is believed only if its id is in the store: see
`find_verified_placeholders`.
"""

import re
from collections.abc import Callable, Iterable

from thresher.model import History, Image, Message, Part, Place, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.jsontext import load_json_object
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import describe_tool_call

PLACEHOLDER_PREFIX = "[thresher "
PLACEHOLDER_ARGUMENT = "removed"
"""The argument of a call that holds the placeholder of those that were removed."""
_OLD_PLACEHOLDER_ARGUMENT = "left_out"
"""As histories may hold it already."""
ID_SLOT = "t1:................"
"""Takes the place of the id in a note until it is known; of the same length, so that limits hold."""
SUMMARY_END = "[/thresher]"
"""Closes a summary, so that what stands behind it is nobody's but its author's."""
_PLACEHOLDER = re.compile(r"\[thresher (t1:[0-9a-f]{16}) · [^\n\[\]]{0,2000}\]")
_WHOLE_PLACEHOLDER = re.compile(rf"\s*{_PLACEHOLDER.pattern}(?:\n(?:(?!\[/thresher\])[\s\S])*\[/thresher\])?\s*")
MAX_LABEL_LENGTH = 80
MAX_PATH_LENGTH = 300
"""A path is told whole: half of one opens nothing."""
MAX_NOTE_LENGTH = 1_500
ROLE_LABELS = {
    "user": "user message",
    "assistant": "assistant message",
    "system": "system text",
    "tool": "tool message",
}


def find_placeholder_ids(text: str) -> list[str]:
    """The ids that the stand-ins in a text name."""
    return _PLACEHOLDER.findall(text) if PLACEHOLDER_PREFIX in text else []


def get_placeholder_id(part: Part) -> str:
    """The id of the stand-in that this part is as a whole, or nothing."""
    if isinstance(part, ToolCall):
        text = _read_placeholder_argument(part) if PLACEHOLDER_PREFIX in part.arguments else ""
    elif isinstance(part, Text | ToolResult | Summary):
        text = part_text(part)
    else:
        return ""
    found = (
        _WHOLE_PLACEHOLDER.fullmatch(text) if text.lstrip()[: len(PLACEHOLDER_PREFIX)] == PLACEHOLDER_PREFIX else None
    )
    return found[1] if found else ""


def _read_placeholder_argument(call: ToolCall) -> str:
    """What a call says in the place of its longer arguments."""
    arguments = load_json_object(call.arguments)
    said = arguments.get(PLACEHOLDER_ARGUMENT, arguments.get(_OLD_PLACEHOLDER_ARGUMENT))
    return said if isinstance(said, str) else ""


def find_verified_placeholders(history: History, known: Callable[[Iterable[str]], set[str]]) -> frozenset[Place]:
    """The places of true stand-ins: parts that are nothing else, and whose ids are `known`."""
    claims = {
        Place(i, j): id_ for i, message in enumerate(history.messages) for j, id_ in _claimed_placeholders(message)
    }
    stored = known(set(claims.values())) if claims else set()
    return frozenset(place for place, id_ in claims.items() if id_ in stored)


@cached_per_message
def _claimed_placeholders(message: Message) -> tuple[tuple[int, str], ...]:
    """The parts of a message that look as if they stood in for something, each with the id it names."""
    found = ((j, get_placeholder_id(part)) for j, part in enumerate(message.parts))
    return tuple([(j, id_) for j, id_ in found if id_])


def format_placeholder(short: str, label: str, part: Part, turn: int, note: str = "") -> str:
    """The line that stands in for one part."""
    outcome = "failed" if isinstance(part, ToolResult) and part.is_error else ""
    words = (label, describe_size(part), outcome, f"turn {turn}" if turn else "", to_label_line(note, MAX_NOTE_LENGTH))
    return f"[thresher {short} · {' · '.join(word for word in words if word)}]"


def format_summary(short: str, label: str, text: str) -> str:
    """The text that stands in for many parts: a line that says what it is, and what there is to tell."""
    top = f"[thresher {short} · {to_label_line(label, MAX_PATH_LENGTH)}]"
    return f"{top}\n{strip_summary_end(text)}\n{SUMMARY_END}" if text else top


def strip_summary_end(text: str) -> str:
    """A text that cannot end its summary early, not even by what is left when a closing mark was taken out."""
    while SUMMARY_END in text:
        text = text.replace(SUMMARY_END, "")
    return text


def describe_size(part: Part) -> str:
    """How large a part is, in words."""
    text = part_text(part)
    images = sum(isinstance(item, Image) for item in part.content) if isinstance(part, ToolResult) else 0
    lines = text.count("\n") + 1 if text else 0
    words = [f"{lines:,} lines" if lines > 1 else "", f"{len(text):,} chars" if text else ""]
    words.append(f"{images} image{'s' * (images > 1)}" if images else "")
    return ", ".join(word for word in words if word)


def describe_part(message: Message, part: Part, call: ToolCall | None) -> str:
    """What a part is, in a few words: the tool and what it worked on, or whose message it is."""
    if isinstance(part, ToolCall):
        call = part
    if call is None:
        return "image" if isinstance(part, Image) else ROLE_LABELS[message.role]
    use = describe_tool_call(call)
    if use.path:
        return to_label_line(f"{call.name} {use.path}", MAX_PATH_LENGTH)
    return to_label_line(f"{call.name} {use.command or use.intent}")


def to_label_line(text: str, limit: int = MAX_LABEL_LENGTH) -> str:
    """The text on one line, shortened in the middle, and unable to end a stand-in early."""
    flat = " ".join(text.replace("[", "(").replace("]", ")").split())
    half = (limit - 1) // 2
    return flat if len(flat) <= limit else f"{flat[:half]}…{flat[-half:]}"
