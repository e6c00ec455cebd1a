"""Group sessions into families and compare versions of a session.

A session belongs to the family of its parent, and of the session that it forks or continues. Copies of a session
(same id and beginning in another file) also belong together. So do sessions that begin with the same message id: a
resumed session may start with a copy of the earlier history.

The root of a family is usually the id of its first known ancestor. If the parent is not archived yet, the parent's id
is the root. When the parent arrives and has a parent itself, the whole family moves to that root. A root is unique only
within one agent, since two agents may use the same id.

If a file loses messages, the archive keeps the old session as a separate version, marked as gone. A message is not
lost if its text is anywhere in the new version, or if the new version extends it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from thresher.memory.archive.protocol import StoredSession
from thresher.memory.records import to_storable_text
from thresher.model import Message, Part, Session, ToolCall
from thresher.model.parts import part_text

MIN_UNIQUE_ID_LENGTH = 20
"""Minimum length of a unique message id; shorter ids are often counters."""
UNANSWERED = "+"
"""Mark in the origin id of a session that starts with an undated message. At the end of the id, the mark means that no
answer follows, so many runs may share the origin."""
EMPTY_ARGUMENTS = ("", "{}", "null")
"""Arguments that a call may have while it is incomplete."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def compute_origin_id(session: Session) -> str:
    """Return the id of the first message if it is unique, otherwise a digest of the beginning.

    Many runs begin with the same prompt. So if the first message has no date, the digest includes all messages up to
    the first answer.
    """
    messages = session.messages()
    first = next(messages, None)
    if first is None:
        return ""
    if len(first.id) >= MIN_UNIQUE_ID_LENGTH:
        return f"id:{to_storable_text(first.id)}"
    origin = f"text:{_digest([first])}"
    if first.time:
        return origin
    beginning = [first]
    while beginning[-1].role != "assistant":
        following = next(messages, None)
        if following is None:
            return origin + UNANSWERED
        beginning.append(following)
    return f"{origin}{UNANSWERED}{_digest(beginning)}"


def _digest(messages: Iterable[Message]) -> str:
    texts = "\n".join(text for message in messages for text in (str(message.time), *_part_texts(message)))
    return blake2b(texts.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _part_texts(message: Message) -> tuple[str, ...]:
    return tuple(part_text(part) for part in message.parts)


# --- families --------------------------------------------------------------------------------------------------------


def choose_family_root(
    row: StoredSession, relatives: Sequence[StoredSession], kin: int = 0
) -> tuple[str, frozenset[str]]:
    """Return a session's root, and the roots of linked families that must move to it.

    `relatives` are all candidate relatives, oldest first. `kin` is the key of a known relative.
    """
    facts, origin = row.session, row.origin_id
    others = [other for other in relatives if other.key != facts.key and other.session.root]
    same_agent = [other for other in others if other.session.agent == facts.agent]
    links = [_first_root(other for other in others if other.key == key) for key in (row.owner, kin)]
    if facts.parent and facts.parent != facts.id:
        links.append(_first_root(other for other in same_agent if other.session.id == facts.parent) or facts.parent)
    copies = [other for other in same_agent if other.session.id == facts.id]
    if _is_unique_id(facts.id, origin):
        links.append(_first_root(copies))
    elif origin and not origin.endswith(UNANSWERED):
        links.append(_first_root(other for other in copies if other.origin_id == origin))
    if is_shared_origin(origin):
        links.append(_first_root(other for other in same_agent if other.origin_id == origin))
    # An id may be a counter or a file name, so unrelated sessions may have the same one.
    current_root = facts.root or (f"{facts.id}~{facts.key}" if copies else facts.id)
    roots = [root for root in links if root] or [current_root]
    return roots[0], frozenset((*roots, current_root)) - {roots[0]}


def is_shared_origin(origin: str) -> bool:
    """Return whether this origin is a unique message id, which only copies of one session share."""
    return origin.startswith("id:")


def _is_unique_id(id: str, origin: str) -> bool:
    """Return whether only copies share this id: it is a UUID, or the session starts with a unique message id."""
    return is_shared_origin(origin) or _UUID.fullmatch(id) is not None


def _first_root(rows: Iterable[StoredSession]) -> str:
    return next((row.session.root for row in rows), "")


# --- versions --------------------------------------------------------------------------------------------------------


def count_missing_messages(old: Iterable[Message], new: Iterable[Message]) -> int:
    """Return the number of old messages that the new version lacks."""
    new_messages = [*new]
    new_texts = {(message.role, _part_texts(message)) for message in new_messages}
    new_by_id = {message.id or str(position): message for position, message in enumerate(new_messages)}
    return sum(
        (message.role, _part_texts(message)) not in new_texts
        and not _has_grown(message, new_by_id.get(message.id or str(position)))
        for position, message in enumerate(old)
    )


def _has_grown(old: Message, new: Message | None) -> bool:
    """Return whether each part of the old message is in the new one, unchanged or extended."""
    parts = new.parts if new is not None else ()
    return bool(parts) and all(any(_extends(part, before) for part in parts) for before in old.parts)


def _extends(new: Part, old: Part) -> bool:
    match old, new:
        case ToolCall(id=old_id, arguments=arguments), ToolCall(id=new_id):
            was_incomplete = old_id == new_id and arguments in EMPTY_ARGUMENTS
        case _:
            was_incomplete = False
    return was_incomplete or part_text(new).startswith(part_text(old))


# --- forgotten sessions ----------------------------------------------------------------------------------------------


def compute_forgotten_digest(agent: str, id: str, start: str) -> bytes:
    """Return the digest that identifies a forgotten session.

    The digest covers the agent and the id, and also the session's beginning unless the id is unique.
    """
    return _digest_name(agent, id) if _is_unique_id(id, start) else _digest_name(agent, id, start)


def list_forgotten_digests(agent: str, id: str, start: str, owner: str = "") -> Iterator[bytes]:
    """Yield the digests under which a session may be forgotten.

    They identify the session by its id alone, by id and beginning, by id and unanswered beginning, or by its owner.
    """
    answered, _, _ = start.partition(UNANSWERED)
    yield _digest_name(agent, id)
    yield _digest_name(agent, id, start)
    yield _digest_name(agent, id, answered + UNANSWERED)
    if owner:
        yield _digest_name(agent, owner)


def _digest_name(*parts: str) -> bytes:
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
