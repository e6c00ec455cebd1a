"""Cache of legal history prefixes, so that a history that grew is validated only at its end.

An agent's history grows one turn at a time, and most rules compare adjacent messages. If the prefix is legal, it is
enough to validate a short history: an added user message, the last turn of the prefix, and the new messages. A full
validation is needed if ids repeat, if an assistant message directly follows an assistant message that ends the prefix,
or if a dialect's rules compare steps that are not adjacent (`Dialect.links_steps`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from weakref import ref

from thresher.dialects.table import get_native_dialect
from thresher.model import History, Message, Text, ToolCall
from thresher.model.jsontext import load_json_object

OPENING_MESSAGE = Message("user", (Text("go on"),))
_legal: deque[tuple[str | None, list[ref[Message]]]] = deque(maxlen=8)
"""The latest legal histories with their dialects, as weak references to their messages."""


def remember_legal(history: History, dialect: str | None) -> None:
    """Add a legal history to the cache."""
    known = _longest_legal_prefix(history.messages, dialect)
    if len(known) < len(history):
        _legal.append((dialect, [*known, *map(ref, history.messages[len(known) :])]))


def extract_unchecked_tail(history: History, dialect: str | None) -> History | None:
    """Return a short history that is legal if and only if this one is, or None if a full validation is needed."""
    messages, known = history.messages, len(_longest_legal_prefix(history.messages, dialect))
    cut = _find_tail_start(messages, known)
    new = messages[cut:]
    if not cut or any(_links_steps(one) for one in new):
        return None
    return History((OPENING_MESSAGE, *new)) if _call_ids(new).isdisjoint(_call_ids(messages[:cut])) else None


def extract_grown_tail(messages: Sequence[Message], known: int) -> History | None:
    """Return a short history that is legal if and only if `messages` are, or None if a full validation is needed.

    The caller ensures that the first `known` messages are legal and that no id repeats. If the last turn
    lacks a call, return None, because signatures link the steps of a turn.
    """
    cut = _find_tail_start(messages, known)
    calls = any(isinstance(part, ToolCall) for message in messages[cut:known] for part in message.parts)
    return History((OPENING_MESSAGE, *messages[cut:])) if cut and calls else None


def iterate_unique_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield all ids that must be unique: ids of calls, and ids of items in the Responses API."""
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


def _find_tail_start(messages: Sequence[Message], known: int) -> int:
    """Return the start of the last turn in the known prefix, or 0.

    Also return 0 if the prefix ends with an assistant message and another one follows it: the second one reopens a tool
    loop, which has its own rules.
    """
    if 0 < known < len(messages) and messages[known - 1].role == messages[known].role == "assistant":
        return 0
    for index in range(known - 1, 0, -1):
        if messages[index].role == "assistant" and messages[index - 1].role != "assistant":
            return index
    return 0


def _call_ids(messages: Sequence[Message]) -> set[str]:
    return {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
