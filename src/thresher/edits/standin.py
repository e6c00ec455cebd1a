"""What stands in for something that was left out: one line with the id to ask for, and enough to decide whether to.

`[thresher t1:0123456789abcdef · Read src/a.py · 342 lines, 12,034 chars · failed · turn 14]`

A line like this in a history that comes in is believed only if its id is in the store: see `believed`.
"""

import re
from collections.abc import Callable, Iterable

from thresher.model import History, Image, Message, Part, Place, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.jsontext import load_fields
from thresher.model.memo import per_message
from thresher.model.tools import tool_use

MARK = "[thresher "
LEFT_OUT = "left_out"
"""The argument that stands in for those that a call has lost."""
ID = "t1:................"
"""Takes the place of the id in a note until it is known; of the same length, so that limits hold."""
END = "[/thresher]"
"""Closes a summary, so that what stands behind it is nobody's but its author's."""
_STAND_IN = re.compile(r"\[thresher (t1:[0-9a-f]{16}) · [^\n\[\]]{0,2000}\]")
_WHOLE = re.compile(rf"\s*{_STAND_IN.pattern}(?:\n(?:(?!\[/thresher\])[\s\S])*\[/thresher\])?\s*")
LABEL = 80
LONGEST_PATH = 300
"""A path is told whole: half of one opens nothing."""
LONGEST_NOTE = 1_500
ROLES = {"user": "user message", "assistant": "assistant message", "system": "system text", "tool": "tool message"}


def ids_in(text: str) -> list[str]:
    """The ids that the stand-ins in a text name."""
    return _STAND_IN.findall(text) if MARK in text else []


def is_pointer(part: Part) -> str:
    """The id of the stand-in that this part is as a whole, or nothing."""
    if isinstance(part, ToolCall):
        text = _left_out(part) if MARK in part.arguments else ""
    elif isinstance(part, Text | ToolResult | Summary):
        text = part_text(part)
    else:
        return ""
    found = _WHOLE.fullmatch(text) if text.lstrip()[: len(MARK)] == MARK else None
    return found[1] if found else ""


def _left_out(call: ToolCall) -> str:
    """What a call says in the place of its longer arguments."""
    said = load_fields(call.arguments).get(LEFT_OUT)
    return said if isinstance(said, str) else ""


def believed(history: History, known: Callable[[Iterable[str]], set[str]]) -> frozenset[Place]:
    """The places of true stand-ins: parts that are nothing else, and whose ids are `known`."""
    claims = {Place(i, j): id_ for i, message in enumerate(history.messages) for j, id_ in _claims(message)}
    stored = known(set(claims.values())) if claims else set()
    return frozenset(place for place, id_ in claims.items() if id_ in stored)


@per_message
def _claims(message: Message) -> tuple[tuple[int, str], ...]:
    """The parts of a message that look as if they stood in for something, each with the id it names."""
    found = ((j, is_pointer(part)) for j, part in enumerate(message.parts))
    return tuple([(j, id_) for j, id_ in found if id_])


def pointer(short: str, label: str, part: Part, turn: int, note: str = "") -> str:
    """The line that stands in for one part."""
    outcome = "failed" if isinstance(part, ToolResult) and part.is_error else ""
    words = (label, size(part), outcome, f"turn {turn}" if turn else "", one_line(note, LONGEST_NOTE))
    return f"[thresher {short} · {' · '.join(word for word in words if word)}]"


def summary(short: str, label: str, text: str) -> str:
    """The text that stands in for many parts: a line that says what it is, and what there is to tell."""
    top = f"[thresher {short} · {one_line(label, LONGEST_PATH)}]"
    return f"{top}\n{unclosed(text)}\n{END}" if text else top


def unclosed(text: str) -> str:
    """A text that cannot end its summary early, not even by what is left when a closing mark was taken out."""
    while END in text:
        text = text.replace(END, "")
    return text


def size(part: Part) -> str:
    """How large a part is, in words."""
    text = part_text(part)
    images = sum(isinstance(item, Image) for item in part.content) if isinstance(part, ToolResult) else 0
    lines = text.count("\n") + 1 if text else 0
    words = [f"{lines:,} lines" if lines > 1 else "", f"{len(text):,} chars" if text else ""]
    words.append(f"{images} image{'s' * (images > 1)}" if images else "")
    return ", ".join(word for word in words if word)


def label_of(message: Message, part: Part, call: ToolCall | None) -> str:
    """What a part is, in a few words: the tool and what it worked on, or whose message it is."""
    if isinstance(part, ToolCall):
        call = part
    if call is None:
        return "image" if isinstance(part, Image) else ROLES[message.role]
    use = tool_use(call)
    if use.path:
        return one_line(f"{call.name} {use.path}", LONGEST_PATH)
    return one_line(f"{call.name} {use.command or use.intent}")


def one_line(text: str, limit: int = LABEL) -> str:
    """The text on one line, shortened in the middle, and unable to end a stand-in early."""
    flat = " ".join(text.replace("[", "(").replace("]", ")").split())
    half = (limit - 1) // 2
    return flat if len(flat) <= limit else f"{flat[:half]}…{flat[-half:]}"
