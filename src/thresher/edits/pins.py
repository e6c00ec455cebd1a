"""Pins: parts that edits must not change, each with its reason."""

from collections.abc import Iterator

from thresher.edits.edit import Drop, Edit, Pin, Replace, Summarize, Truncate
from thresher.model import History, Message, Place, Summary, Text, Thinking, ToolResult, Unknown
from thresher.model.context_marks import starts_with_mark
from thresher.model.harness_text import declares_context, find_harness_offsets
from thresher.model.keep_marks import find_kept_places
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Part, part_text
from thresher.model.turns import is_injected


def find_pins(history: History, placeholders: frozenset[Place] = frozenset()) -> dict[Place, Pin]:
    """Return the pinned parts, each with its reason; verified `placeholders` do not count as injected context."""
    pinned: dict[Place, Pin] = {}
    shape = history.shape
    for place in _find_injected_places(history):
        if place not in placeholders:
            pinned[place] = "injection"
    for index in shape.system_messages:
        pinned |= _pin_message(history, index, "system")
    if shape.current_prompt is not None:
        pinned |= _pin_message(history, shape.current_prompt, "current")
    words = max(history.human_words, default=None)
    if words is not None and words.message > (shape.current_prompt or 0):
        pinned |= {words: "current", history.chain_at[words].call: "current"}
    for chain in shape.chains:
        if chain.active:
            index = chain.call.message
            thinking = [Place(index, j) for j, part in enumerate(history[index].parts) if isinstance(part, Thinking)]
            members = (chain.call, *thinking) if chain.result is None else (chain.call, chain.result, *thinking)
            pinned.update((place, "active") for place in members)
    marked: dict[Place, Pin] = dict.fromkeys(find_kept_places(history), "marked")
    return marked | pinned


def _find_injected_places(history: History) -> Iterator[Place]:
    """Yield the places of declared context, and of attachments that no later prompt follows.

    An attachment, such as the text of a skill or a reminder, belongs to the prompt next to it: it is pinned from the
    model's last answer before the current prompt on.
    """
    answers = (i for i in reversed(range(history.shape.current_prompt or 0)) if history[i].role == "assistant")
    start = next(answers, -1)
    for index, message in enumerate(history.messages):
        if message.role != "user" and message.author != "context":
            continue
        whole = index > start and is_injected(message)
        declared = _find_context_parts(message)
        for j, part in enumerate(message.parts):
            is_marked = isinstance(part, Text) and starts_with_mark(part.text, history.context_marks)
            if (whole or j in declared or is_marked) and not isinstance(part, ToolResult | Thinking):
                yield Place(index, j)


@cached_per_message
def _find_context_parts(message: Message) -> tuple[int, ...]:
    """Return the indexes of the parts of a user message that declare context, or whose kind is not known."""
    if message.author == "context":
        return tuple(range(len(message.parts)))
    kinds = Summary | Unknown if is_injected(message) else ()
    parts = enumerate(message.parts)
    return tuple(
        [j for j, part in parts if isinstance(part, kinds) or (isinstance(part, Text) and declares_context(part.text))]
    )


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
            if isinstance(part, ToolResult):  # the draft keeps a person's words inside it
                return pin in ("active", "current")
            return edit.over == "injection" and pin == "current" and _removes_only_harness_text(part, edit)
        case Drop() | Replace() | Summarize():
            return False


def _removes_only_harness_text(part: Part, edit: Truncate) -> bool:
    """Return whether a truncation removes only text that the harness wrote."""
    spans = find_harness_offsets(part_text(part))
    return all(any(start <= gap.start and gap.stop <= stop for start, stop in spans) for gap in edit.gaps)
