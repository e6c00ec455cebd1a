"""Families: which sessions go back to one beginning; and versions: what a session was before its file was changed.

A session belongs with the one it was started by, forked from or goes on from; with its copies (the same id and
beginning in another file); and with those that begin with the very same message, as a resumed session that copies
its history does. A family's root is the id of its first ancestor, as far as that is known: where the parent has
not been seen, its id stands for it, and when it comes and has a parent itself, the whole family moves there. Roots are
those of one agent: two agents may have the same.

What a file held and does not hold any more stays: the session as it was is set aside under its id, gone, and what the
file holds now is another. A message is still there when its words are, wherever they stand, or when it has grown.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from thresher.memory.archive.protocol import StoredSession
from thresher.model import Message, Part, Session, ToolCall
from thresher.model.parts import part_text

MIN_UNIQUE_ID_LENGTH = 20
"""Characters that an id of a message must have to be nobody else's: others count their messages."""
UNANSWERED = "+"
"""Ends a beginning that may be that of many: a prompt without a date, and no answer yet."""
EMPTY_ARGUMENTS = ("", "{}", "null")
"""Arguments of a call that is not written yet."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def compute_origin_id(session: Session) -> str:
    """What a session begins with: an id that only copies share, or else a digest of the words.

    Many runs begin with the same prompt. Where it has no date, all up to the first answer counts.
    """
    messages = session.messages()
    first = next(messages, None)
    if first is None:
        return ""
    if len(first.id) >= MIN_UNIQUE_ID_LENGTH:
        return f"id:{first.id}"
    begun = f"text:{_digest([first])}"
    if first.time:
        return begun
    opening = [first]
    while opening[-1].role != "assistant":
        following = next(messages, None)
        if following is None:
            return begun + UNANSWERED
        opening.append(following)
    return f"{begun}{UNANSWERED}{_digest(opening)}"


def _digest(messages: Iterable[Message]) -> str:
    told = "\n".join(text for message in messages for text in (str(message.time), *_part_texts(message)))
    return blake2b(told.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _part_texts(message: Message) -> tuple[str, ...]:
    return tuple(part_text(part) for part in message.parts)


# --- families --------------------------------------------------------------------------------------------------------


def choose_family_root(
    row: StoredSession, relatives: Sequence[StoredSession], kin: int = 0
) -> tuple[str, frozenset[str]]:
    """Return a session's root, and the roots of families that it links and that move there.

    `relatives` are all other sessions that it may belong with, the oldest first; `kin` is the key of one of its
    family, whatever else is known.
    """
    facts, origin = row.session, row.origin_id
    others = [one for one in relatives if one.key != facts.key and one.session.root]
    own = [one for one in others if one.session.agent == facts.agent]
    links = [_first_root(one for one in others if one.key == key) for key in (row.owner, kin)]
    if facts.parent and facts.parent != facts.id:
        links.append(_first_root(one for one in own if one.session.id == facts.parent) or facts.parent)
    copies = [one for one in own if one.session.id == facts.id]
    if _is_unique_id(facts.id, origin):
        links.append(_first_root(copies))
    elif origin and not origin.endswith(UNANSWERED):
        links.append(_first_root(one for one in copies if one.origin_id == origin))
    if is_shared_origin(origin):
        links.append(_first_root(one for one in own if one.origin_id == origin))
    # Ids that count from one, or are names of files, are had by sessions that know nothing of each other.
    before = facts.root or (f"{facts.id}~{facts.key}" if copies else facts.id)
    roots = [root for root in links if root] or [before]
    return roots[0], frozenset((*roots, before)) - {roots[0]}


def is_shared_origin(origin: str) -> bool:
    """Return whether only copies of one session begin so."""
    return origin.startswith("id:")


def _is_unique_id(id: str, origin: str) -> bool:
    """Whether an id is of the agent's own making, and so nobody else's."""
    return is_shared_origin(origin) or _UUID.fullmatch(id) is not None


def _first_root(rows: Iterable[StoredSession]) -> str:
    return next((one.session.root for one in rows), "")


# --- versions --------------------------------------------------------------------------------------------------------


def count_missing_messages(old: Iterable[Message], new: Iterable[Message]) -> int:
    """How many messages are not there any more."""
    others = [*new]
    said = {(message.role, _part_texts(message)) for message in others}
    named = {message.id or str(place): message for place, message in enumerate(others)}
    return sum(
        (message.role, _part_texts(message)) not in said
        and not _has_grown(message, named.get(message.id or str(place)))
        for place, message in enumerate(old)
    )


def _has_grown(old: Message, new: Message | None) -> bool:
    """Whether each part of a message is still there, or more of it."""
    parts = new.parts if new is not None else ()
    return bool(parts) and all(any(_extends(part, before) for part in parts) for before in old.parts)


def _extends(new: Part, old: Part) -> bool:
    if (
        isinstance(old, ToolCall)
        and isinstance(new, ToolCall)
        and old.id == new.id
        and old.arguments in EMPTY_ARGUMENTS
    ):
        return True
    return part_text(new).startswith(part_text(old))


# --- what was forgotten ----------------------------------------------------------------------------------------------


def compute_forgotten_digest(agent: str, id: str, start: str) -> bytes:
    """The digest by which a forgotten session is known again.

    An id that is an agent's own is enough; one that may be the name of a file needs the beginning beside it.
    """
    return _digest_name(agent, id) if _is_unique_id(id, start) else _digest_name(agent, id, start)


def list_forgotten_digests(agent: str, id: str, start: str, owner: str = "") -> Iterator[bytes]:
    """All digests that would mean a session: its own, that of it when it was not answered yet, its owner's."""
    begun, _, _ = start.partition(UNANSWERED)
    yield _digest_name(agent, id)
    yield _digest_name(agent, id, start)
    yield _digest_name(agent, id, begun + UNANSWERED)
    if owner:
        yield _digest_name(agent, owner)


def _digest_name(*parts: str) -> bytes:
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
