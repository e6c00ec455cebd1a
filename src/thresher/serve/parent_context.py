"""What a conversation knew at one moment: when it started a sub-agent, before a human's words, or now.

A sub-agent knows only its prompt. What its parent knew is all that the parent's model had been shown up to the call
that started it: the messages of that stretch, the summary of those before where it was compacted, and what it said
itself before the call in the same message. Results of calls that were made at the same time were not there yet, so
such calls are left out; the one that asks for this context is among them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import structs

from thresher.errors import OptionError
from thresher.model import History, Message, Session, Text, Thinking, ToolCall
from thresher.model.jsontext import load_json_object
from thresher.model.parts import Part
from thresher.model.tool_calls import describe_tool_call
from thresher.model.turns import is_prompt
from thresher.store import NotStoredError


class ParentContext(NamedTuple):
    """What was known, and when that was."""

    history: History
    moment: str


def find_parent_context(session: Session, *, agent: str = "", call: str = "", upto: int | None = None) -> ParentContext:
    """What a conversation knew.

    When it started the sub-agent `agent` (the start of its id); or when it, or a sub-agent below it, made a `call`;
    or before the human's message number `upto`, counting from 1 only what humans wrote; or else when it made the
    call that is still open, be that to a sub-agent.
    """
    if upto is not None:
        return _context_before_prompt(session, upto)
    if agent:
        return find_context_at_spawn(session, _find_subagent(session, agent))
    if call and (found := _history_before_call(session, lambda one: one.id == call)) is not None:
        return ParentContext(found, "up to the call that asks")
    return _current_context(session.history)


def find_context_at_spawn(session: Session, child: Session) -> ParentContext:
    """What was shown to the model that started a sub-agent: this session's, or that of another one below it."""
    prompt = next((message.text.strip() for message in child.messages() if is_prompt(message)), "")
    for parent in (session, *_iter_descendants(session)):
        found = _history_before_call(parent, lambda call: _is_spawning_call(call, child.call_id, prompt))
        if found is not None and parent.id != child.id:
            return ParentContext(found, f"when it started sub-agent {child.id}")
    raise NotStoredError(f"the call that started sub-agent `{child.id}` is not in the record of its parent")


def _current_context(history: History) -> ParentContext:
    """Up to the first call that is not answered yet, if the model still waits for it."""
    waiting = [chain for chain in history.chains if chain.active and chain.result is None]
    if not waiting:
        return ParentContext(history, "now")
    spawned = any(spawn.chain in waiting for spawn in history.spawns)
    at = min(chain.call.message for chain in waiting)
    return ParentContext(
        _truncate_at_call(history, at),
        "when it started its sub-agents" if spawned else "up to the call that is open now",
    )


def _context_before_prompt(session: Session, number: int) -> ParentContext:
    """All since the start, since humans count from there; what a compaction repeats is there once."""
    if number < 1:
        raise OptionError(f"human messages count from 1; there is no {number}")
    messages = [*session.messages()]
    human = [at for at, message in enumerate(messages) if message.role == "user" and message.author == "human"]
    if number > len(human):
        return ParentContext(
            _with_messages(session.history, messages), f"all of it: there are only {len(human)} human messages"
        )
    return ParentContext(
        _with_messages(session.history, messages[: human[number - 1]]), f"before human message {number}"
    )


def _history_before_call(session: Session, is_it: Callable[[ToolCall], bool]) -> History | None:
    """What was shown to the model when it made a call; the last one, where an id repeats."""
    ways = [*session.segments, *(branch.history for branch in session.branches)]
    for history in reversed(ways):
        for at in range(len(history) - 1, -1, -1):
            made = [] if history[at].carried else [call for call in history[at].calls if is_it(call)]
            if made:
                return _truncate_at_call(history, at, made[0].id)
    return None


def _is_spawning_call(call: ToolCall, call_id: str, prompt: str) -> bool:
    """Whether a call started the sub-agent; old records do not name the call, and then its prompt tells."""
    if call_id:
        return call.id == call_id
    if not prompt or describe_tool_call(call).category != "subagent":
        return False
    return any(
        isinstance(value, str) and value.strip() == prompt for value in load_json_object(call.arguments).values()
    )


def _truncate_at_call(history: History, at: int, call_id: str = "") -> History:
    """All before a message, and what it says before its call (its first, if none is named)."""
    said = tuple(_parts_before_call(history[at], call_id))
    last = [structs.replace(history[at], parts=said, records=(), pocket=None)] if said else []
    return _with_messages(history, [*history.messages[:at], *last])


def _parts_before_call(message: Message, call_id: str) -> Iterator[Part]:
    for part in message.parts:
        if isinstance(part, ToolCall) and call_id in ("", part.id):
            return
        if isinstance(part, Text | Thinking):
            yield part


def _with_messages(history: History, messages: list[Message]) -> History:
    return History(tuple(messages), history.tools)


def _find_subagent(session: Session, agent: str) -> Session:
    """The sub-agent of that id."""
    found = [child for child in _iter_descendants(session) if child.id.startswith(agent)]
    exact = [child for child in found if child.id == agent] or found
    if not exact:
        known = ", ".join(child.id for child in _iter_descendants(session)) or "none"
        raise NotStoredError(f"session `{session.id}` started no sub-agent `{agent}`; it started {known}")
    if len(exact) > 1:
        raise OptionError(f"`{agent}` could be {', '.join(child.id for child in exact)}; say more of the id")
    return exact[0]


def _iter_descendants(session: Session) -> Iterator[Session]:
    for child in session.children:
        yield child
        yield from _iter_descendants(child)
