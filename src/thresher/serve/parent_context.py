"""The context of a conversation at one moment: when it started a sub-agent, before a human message, or now.

A sub-agent knows only its prompt. When the parent's model started the sub-agent, the model's context held the messages
since the last compaction, the summary of the earlier ones, and the text before the call in the same message. The calls
of that message had no results yet, so they are removed. The call that requests this context may be one of them.
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
    """The context of a conversation at one moment, and a description of that moment."""

    history: History
    moment: str


def find_parent_context(session: Session, *, agent: str = "", call: str = "", upto: int | None = None) -> ParentContext:
    """Return the context of a conversation at the moment that the arguments select.

    - `upto`: before the human message of that number, counted from 1.
    - `agent`: when the sub-agent whose id starts with this prefix was started.
    - `call`: when the conversation made the call with this id.
    - None of them: when the conversation made its first call that is still open, or now if no call is open.
    """
    if upto is not None:
        return _context_before_prompt(session, upto)
    if agent:
        return find_context_at_spawn(session, _find_subagent(session, agent))
    if call and (history := _history_before_call(session, lambda other: other.id == call)) is not None:
        return ParentContext(history, "up to the call that asks")
    return _current_context(session.history)


def find_context_at_spawn(session: Session, child: Session) -> ParentContext:
    """Return the context in which this session, or one of its sub-agents, started the sub-agent `child`."""
    prompt = next((message.text.strip() for message in child.messages() if is_prompt(message)), "")
    for parent in (session, *_iter_descendants(session)):
        history = _history_before_call(parent, lambda call: _is_spawning_call(call, child.call_id, prompt))
        if history is not None and parent.id != child.id:
            return ParentContext(history, f"when it started sub-agent {child.id}")
    raise NotStoredError(f"no session holds the call that started sub-agent `{child.id}`")


def _current_context(history: History) -> ParentContext:
    """Return the context up to the first open call, or all of it if no call is open."""
    open_chains = [chain for chain in history.chains if chain.active and chain.result is None]
    if not open_chains:
        return ParentContext(history, "now")
    has_spawned = any(spawn.chain in open_chains for spawn in history.spawns)
    moment = "when it started its sub-agents" if has_spawned else "up to the call that is open now"
    return ParentContext(_truncate_at_call(history, min(chain.call.message for chain in open_chains)), moment)


def _context_before_prompt(session: Session, number: int) -> ParentContext:
    """Return all messages before a human message. Messages that a compaction repeats occur once."""
    if number < 1:
        raise OptionError(f"`upto` must be 1 or more, got {number}")
    messages = [*session.messages()]
    human = [index for index, message in enumerate(messages) if message.role == "user" and message.author == "human"]
    moment = f"before human message {number}"
    if number > len(human):
        moment = f"all of it: there are only {len(human)} human messages"
    else:
        messages = messages[: human[number - 1]]
    return ParentContext(_with_messages(session.history, messages), moment)


def _history_before_call(session: Session, is_target: Callable[[ToolCall], bool]) -> History | None:
    """Return the context in which the model made a call; if several calls match, the last one counts."""
    for history in reversed([*session.segments, *(branch.history for branch in session.branches)]):
        for index in range(len(history) - 1, -1, -1):
            call = next(filter(is_target, history[index].calls), None)
            if call is not None and not history[index].carried:
                return _truncate_at_call(history, index, call.id)
    return None


def _is_spawning_call(call: ToolCall, call_id: str, prompt: str) -> bool:
    """Return True if a call started the sub-agent. Old transcripts lack `call_id`, so the prompt is compared."""
    if call_id:
        return call.id == call_id
    if not prompt or describe_tool_call(call).category != "subagent":
        return False
    values = load_json_object(call.arguments).values()
    return any(isinstance(value, str) and value.strip() == prompt for value in values)


def _truncate_at_call(history: History, index: int, call_id: str = "") -> History:
    """Return the messages before `index`, and the text of message `index` before a call (the first one by default)."""
    message = history[index]
    parts = tuple(_parts_before_call(message, call_id))
    last = [structs.replace(message, parts=parts, records=(), pocket=None)] if parts else []
    return _with_messages(history, [*history.messages[:index], *last])


def _parts_before_call(message: Message, call_id: str) -> Iterator[Part]:
    for part in message.parts:
        if isinstance(part, ToolCall) and call_id in ("", part.id):
            return
        if isinstance(part, Text | Thinking):
            yield part


def _with_messages(history: History, messages: list[Message]) -> History:
    return History(tuple(messages), history.tools)


def _find_subagent(session: Session, prefix: str) -> Session:
    """Return the sub-agent with that id, or the only one whose id starts with `prefix`."""
    children = list(_iter_descendants(session))
    matches = [child for child in children if child.id.startswith(prefix)]
    matches = [child for child in matches if child.id == prefix] or matches
    if not matches:
        known = ", ".join(child.id for child in children) or "none"
        raise NotStoredError(f"session `{session.id}` has no sub-agent `{prefix}`; its sub-agents: {known}")
    if len(matches) > 1:
        raise OptionError(f"`{prefix}` matches several sub-agents: {', '.join(child.id for child in matches)}")
    return matches[0]


def _iter_descendants(session: Session) -> Iterator[Session]:
    for child in session.children:
        yield child
        yield from _iter_descendants(child)
