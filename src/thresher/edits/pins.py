"""Pins: parts that edits must not change, each with its reason."""

from thresher.edits.edit import Drop, Edit, Pin, Replace, Summarize, Truncate
from thresher.model import History, Place, Thinking, ToolResult
from thresher.model.harness_text import find_harness_offsets
from thresher.model.keep_marks import find_kept_places
from thresher.model.parts import Part, part_text


def find_pins(history: History, placeholders: frozenset[Place] = frozenset()) -> dict[Place, Pin]:
    """Return the pinned parts, each with its reason; verified `placeholders` do not count as injected context."""
    pinned: dict[Place, Pin] = {}
    shape = history.shape
    for index in shape.injected_messages:
        pins = _pin_message(history, index, "injection")
        pinned |= {place: pin for place, pin in pins.items() if place not in placeholders}
    for index in shape.system_messages:
        pinned |= _pin_message(history, index, "system")
    if shape.current_prompt is not None:
        pinned |= _pin_message(history, shape.current_prompt, "current")
    for chain in shape.chains:
        if chain.active:
            index = chain.call.message
            thinking = [Place(index, j) for j, part in enumerate(history[index].parts) if isinstance(part, Thinking)]
            members = (chain.call, *thinking) if chain.result is None else (chain.call, chain.result, *thinking)
            pinned.update((place, "active") for place in members)
    marked: dict[Place, Pin] = dict.fromkeys(find_kept_places(history), "marked")
    return marked | pinned


def _pin_message(history: History, index: int, pin: Pin) -> dict[Place, Pin]:
    parts = history[index].parts
    return {Place(index, j): pin for j, part in enumerate(parts) if not isinstance(part, ToolResult | Thinking)}


def find_open_loop(history: History) -> range:
    """Return the messages of the open tool loop; an empty range if the model has answered every result."""
    chains = history.chains
    if not chains or not chains[-1].active:
        return range(0)
    return range((history.shape.current_prompt or 0) + 1, len(history))


def is_edit_allowed(pin: Pin, edit: Edit, part: Part) -> bool:
    """Return whether a pin permits this edit."""
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
    """Return whether a truncation removes only text that the harness wrote."""
    spans = find_harness_offsets(part_text(part))
    return all(any(start <= gap.start and gap.stop <= stop for start, stop in spans) for gap in edit.gaps)
