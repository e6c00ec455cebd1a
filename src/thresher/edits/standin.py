"""What stands in for something that was left out: one line with the id to ask for, and enough to decide whether to.

`[thresher t1:0123456789abcdef · Read src/a.py · 342 lines, 12,034 chars · failed · turn 14]`

A line like this in a history that comes in is believed only if its id is in the store: see `believed`.
"""

import re
from collections.abc import Callable, Iterable

from thresher.model import History, Image, Message, Part, Place, Summary, Text, ToolCall, ToolResult, part_text
from thresher.model.memo import per_message
from thresher.model.tools import tool_use

MARK = "[thresher "
ID = "t1:................"
"""Takes the place of the id in a note until it is known; of the same length, so that limits hold."""
_STAND_IN = re.compile(r"\[thresher (t1:[0-9a-f]{16}) ·[^\n]*\]")
LABEL = 80
LONGEST_PATH = 300
"""A path is told whole: half of one opens nothing."""
ROLES = {"user": "user message", "assistant": "assistant message", "system": "system text", "tool": "tool message"}


def ids_in(text: str) -> list[str]:
    """The ids that the stand-ins in a text name."""
    return _STAND_IN.findall(text) if MARK in text else []


def is_pointer(part: Part) -> str:
    """The id of the stand-in that this part is as a whole, or nothing."""
    if not isinstance(part, Text | ToolResult | Summary | ToolCall):
        return ""
    text = part_text(part)
    if MARK not in text[:200]:
        return ""
    found = _STAND_IN.search(text)
    return found[1] if found else ""


def believed(history: History, known: Callable[[Iterable[str]], set[str]]) -> frozenset[Place]:
    """The places of true stand-ins: those whose ids are `known`."""
    claims = {Place(i, j): ids for i, message in enumerate(history.messages) for j, ids in _claims(message)}
    if not claims:
        return frozenset()
    stored = known({id_ for ids in claims.values() for id_ in ids})
    return frozenset(place for place, ids in claims.items() if stored.issuperset(ids))


@per_message
def _claims(message: Message) -> tuple[tuple[int, list[str]], ...]:
    """The parts of a message that look as if something stood in for something, with the ids they name."""
    found = ((j, ids_in(part_text(part))) for j, part in enumerate(message.parts))
    return tuple([(j, ids) for j, ids in found if ids])


def pointer(short: str, label: str, part: Part, turn: int, note: str = "") -> str:
    """The line that stands in for one part."""
    outcome = "failed" if isinstance(part, ToolResult) and part.is_error else ""
    words = (label, size(part), outcome, f"turn {turn}" if turn else "", note)
    return f"[thresher {short} · {' · '.join(word for word in words if word)}]"


def heading(short: str, label: str) -> str:
    """The line above a summary."""
    return f"[thresher {short} · {label}]"


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
