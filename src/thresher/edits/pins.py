"""What may not change, and why: system text, injected context, the human's latest words, chains that are still open."""

from thresher.edits.edit import Drop, Edit, Pin, Replace, Summarize, Truncate
from thresher.model import History, Place, Thinking, ToolResult
from thresher.model.harness_text import find_harness_offsets
from thresher.model.parts import Part, part_text


def find_pins(history: History, believed: frozenset[Place] = frozenset()) -> dict[Place, Pin]:
    """The pinned parts, each with its reason; true stand-ins (`believed`) are no context that somebody injected."""
    pinned: dict[Place, Pin] = {}
    shape = history.shape
    for index in shape.injected_messages:
        pinned |= {
            place: pin for place, pin in _pin_message(history, index, "injection").items() if place not in believed
        }
    for index in shape.system_messages:
        pinned |= _pin_message(history, index, "system")
    if shape.current_prompt is not None:
        pinned |= _pin_message(history, shape.current_prompt, "current")
    for chain in shape.chains:
        if chain.active:
            pinned |= _thoughts(history, chain.call.message)
            pinned[chain.call] = "active"
            if chain.result is not None:
                pinned[chain.result] = "active"
    return pinned


def _thoughts(history: History, index: int) -> dict[Place, Pin]:
    parts = history[index].parts
    return {Place(index, j): "active" for j, part in enumerate(parts) if isinstance(part, Thinking)}


def _pin_message(history: History, index: int, pin: Pin) -> dict[Place, Pin]:
    parts = history[index].parts
    return {Place(index, j): pin for j, part in enumerate(parts) if not isinstance(part, ToolResult | Thinking)}


def find_open_loop(history: History) -> range:
    """The messages of a tool loop that the model has not ended: empty when it owes no answer to a result."""
    chains = history.chains
    if not chains or not chains[-1].active:
        return range(0)
    return range((history.shape.current_prompt or 0) + 1, len(history))


def is_edit_allowed(pin: Pin, edit: Edit, part: Part) -> bool:
    """Whether a pinned part may still be edited so."""
    if pin in ("", edit.over):
        return True
    match edit:
        case Truncate():
            if pin == "active":
                return isinstance(part, ToolResult)
            return edit.over == "injection" and pin == "current" and _removes_only_harness_text(part, edit)
        case Drop() | Replace() | Summarize():
            return False


def _removes_only_harness_text(part: Part, edit: Truncate) -> bool:
    """Whether a cut takes nothing that a human wrote."""
    spans = find_harness_offsets(part_text(part))
    return all(any(start <= gap.start and gap.stop <= stop for start, stop in spans) for gap in edit.gaps)
