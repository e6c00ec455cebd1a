"""What may not change, and why: system text, injected context, the human's latest words, chains that are still open."""

from thresher.edits.edit import Cut, Drop, Edit, Fold, Pin, Stub
from thresher.model import History, Place, Thinking, ToolResult
from thresher.model.marks import harness_spans
from thresher.model.parts import Part, part_text


def pins(history: History, believed: frozenset[Place] = frozenset()) -> dict[Place, Pin]:
    """The pinned parts, each with its reason; true stand-ins (`believed`) are no context that somebody injected."""
    pinned: dict[Place, Pin] = {}
    shape = history.shape
    for index in shape.injections:
        pinned |= {place: pin for place, pin in _all(history, index, "injection").items() if place not in believed}
    for index in shape.system:
        pinned |= _all(history, index, "system")
    if shape.current is not None:
        pinned |= _all(history, shape.current, "current")
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


def _all(history: History, index: int, pin: Pin) -> dict[Place, Pin]:
    parts = history[index].parts
    return {Place(index, j): pin for j, part in enumerate(parts) if not isinstance(part, ToolResult | Thinking)}


def open_loop(history: History) -> range:
    """The messages of a tool loop that the model has not ended: empty when it owes no answer to a result."""
    chains = history.chains
    if not chains or not chains[-1].active:
        return range(0)
    return range((history.shape.current or 0) + 1, len(history))


def allows(pin: Pin, edit: Edit, part: Part) -> bool:
    """Whether a pinned part may still be edited so."""
    if pin in ("", edit.over):
        return True
    match edit:
        case Cut():
            if pin == "active":
                return isinstance(part, ToolResult)
            return edit.over == "injection" and pin == "current" and _only_harness(part, edit)
        case Drop() | Stub() | Fold():
            return False


def _only_harness(part: Part, edit: Cut) -> bool:
    """Whether a cut takes nothing that a human wrote."""
    spans = harness_spans(part_text(part))
    return all(any(start <= gap.start and gap.stop <= stop for start, stop in spans) for gap in edit.gaps)
