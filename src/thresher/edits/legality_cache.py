"""What is known to be legal already: the start of a history that has only grown since it was last looked at.

An agent's history grows by a turn at a time, and the rules look at neighbours: when the start was legal, it is enough
to look at its last turn and what is new, behind a user's word. What rules look at from afar is left to the full look:
ids that repeat, and the dialects whose rules tie one step to others (`Dialect.links_steps`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from weakref import ref

from thresher.dialects.table import get_native_dialect
from thresher.model import History, Message, Text, ToolCall
from thresher.model.jsontext import load_json_object

OPENING_MESSAGE = Message("user", (Text("go on"),))
_legal: deque[tuple[str | None, list[ref[Message]]]] = deque(maxlen=8)
"""The latest legal histories, by dialect; their messages are not kept alive."""


def remember_legal(history: History, dialect: str | None) -> None:
    """Note that a history is legal."""
    known = _longest_legal_prefix(history.messages, dialect)
    if len(known) < len(history):
        _legal.append((dialect, [*known, *map(ref, history.messages[len(known) :])]))


def extract_unchecked_tail(history: History, dialect: str | None) -> History | None:
    """A small history that is legal if and only if this one is; None where there is no telling."""
    messages, known = history.messages, len(_longest_legal_prefix(history.messages, dialect))
    # A model that goes on where it had ended opens its loop again, and that has rules of its own.
    goes_on = 0 < known < len(messages) and messages[known - 1].role == messages[known].role == "assistant"
    cut = 0 if goes_on else _last_turn(messages, known)
    new = messages[cut:]
    if not cut or any(_links_steps(one) for one in new):
        return None
    return History((OPENING_MESSAGE, *new)) if _call_ids(new).isdisjoint(_call_ids(messages[:cut])) else None


def extract_grown_tail(messages: Sequence[Message], known: int) -> History | None:
    """A small history that is legal if and only if this one is, given that it was so far and that no id repeats.

    Signatures tie the steps of one turn together, so the step that is looked back at must have a call if any has.
    """
    goes_on = 0 < known < len(messages) and messages[known - 1].role == messages[known].role == "assistant"
    cut = 0 if goes_on else _last_turn(messages, known)
    calls = any(isinstance(part, ToolCall) for message in messages[cut:known] for part in message.parts)
    return History((OPENING_MESSAGE, *messages[cut:])) if cut and calls else None


def iterate_unique_ids(messages: Sequence[Message]) -> Iterator[str]:
    """The ids that may not come twice: of calls, and of the items of the Responses API."""
    for message in messages:
        for owner in (message, *message.parts):
            if isinstance(owner, ToolCall):
                yield owner.id
            if owner.pocket is not None and '"id"' in owner.pocket.fields:
                native = get_native_dialect(owner.pocket.format)
                if native is not None and native.has_item_ids:
                    yield f"item {load_json_object(owner.pocket.fields).get('id')}"


def _links_steps(message: Message) -> bool:
    native = get_native_dialect(message.pocket.format) if message.pocket is not None else None
    return native is not None and native.links_steps


def _longest_legal_prefix(messages: Sequence[Message], dialect: str | None) -> list[ref[Message]]:
    fitting = (known for name, known in tuple(_legal) if name == dialect and _is_prefix(messages, known))
    return max(fitting, key=len, default=[])


def _is_prefix(messages: Sequence[Message], known: list[ref[Message]]) -> bool:
    if not 0 < len(known) <= len(messages) or known[-1]() is not messages[len(known) - 1]:
        return False
    return all(one() is message for one, message in zip(known, messages, strict=False))


def _last_turn(messages: Sequence[Message], length: int) -> int:
    """Where the last turn of the first so many messages begins: with the assistant, behind another's message."""
    for index in range(length - 1, 0, -1):
        if messages[index].role == "assistant" and messages[index - 1].role in ("user", "tool"):
            return index
    return 0


def _call_ids(messages: Sequence[Message]) -> set[str]:
    return {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
