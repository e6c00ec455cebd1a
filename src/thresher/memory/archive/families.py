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
from sqlite3 import Connection

from thresher.memory.archive.block_codec import decode_messages
from thresher.memory.archive.schema import EncodedBlock, StoredBlock, count_same_blocks, remove_blocks, select_blocks
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


def assign_family_root(connection: Connection, key: int, kin: int = 0) -> None:
    """Give a session its root, and join the families that it links; `kin` is of its family, whatever else is known."""
    row = connection.execute("SELECT agent, id, parent, owner, start, root FROM sessions WHERE key = ?", (key,))
    agent, id, parent, owner, start, before = row.fetchone()
    links = [_root(connection, "key = ?", owner), _root(connection, "key = ?", kin)]
    if parent and parent != id:
        links.append(_root(connection, "agent = ? AND id = ? AND key <> ?", agent, parent, key) or parent)
    if _is_unique_id(id, start):
        links.append(_root(connection, "agent = ? AND id = ? AND key <> ?", agent, id, key))
    elif start and not start.endswith(UNANSWERED):
        links.append(_root(connection, "agent = ? AND id = ? AND start = ? AND key <> ?", agent, id, start, key))
    if start.startswith("id:"):
        links.append(_root(connection, "agent = ? AND start = ? AND key <> ?", agent, start, key))
    # Ids that count from one, or are names of files, are had by sessions that know nothing of each other.
    namesake = _root(connection, "agent = ? AND id = ? AND key <> ?", agent, id, key)
    own = before or (f"{id}~{key}" if namesake else id)
    roots = [root for root in links if root] or [own]
    connection.execute("UPDATE sessions SET root = ? WHERE key = ?", (roots[0], key))
    for other in {*roots, own} - {roots[0]}:
        connection.execute("UPDATE sessions SET root = ? WHERE agent = ? AND root = ?", (roots[0], agent, other))


def _is_unique_id(id: str, start: str) -> bool:
    """Whether an id is of the agent's own making, and so nobody else's."""
    return start.startswith("id:") or _UUID.fullmatch(id) is not None


def _root(connection: Connection, where: str, *values: object) -> str:
    found = connection.execute(f"SELECT root FROM sessions WHERE {where} AND root <> '' LIMIT 1", values).fetchone()
    return str(found[0]) if found else ""


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


def retire_version(connection: Connection, key: int) -> None:
    """Keep a session as it is, gone, and give its name free."""
    connection.execute("UPDATE sessions SET ordinal = -key, present = FALSE WHERE key = ?", (key,))


def count_lost_messages(connection: Connection, old: Sequence[StoredBlock], new: Sequence[EncodedBlock]) -> int:
    """How many messages of the old blocks are not in the new ones any more."""
    same = count_same_blocks(old, new)
    if same == len(old):
        return 0
    asked = "SELECT body FROM blocks WHERE id = ?"
    bodies = [connection.execute(asked, (id,)).fetchone()[0] for id, _ in old[same:]]
    fresh = (message for block in new[same:] for message in decode_messages(block.body))
    return count_missing_messages((message for body in bodies for message in decode_messages(body)), fresh)


def drop_restored_version(connection: Connection, key: int, blocks: Sequence[EncodedBlock]) -> None:
    """Let go of what was last set aside for a session, where all of it has come back."""
    found = connection.execute(
        "SELECT old.key FROM sessions AS old JOIN sessions AS new USING (agent, id, file) "
        "WHERE new.key = ? AND new.ordinal >= 0 AND old.ordinal < 0 ORDER BY old.key DESC LIMIT 1",
        (key,),
    ).fetchone()
    old = select_blocks(connection, found[0]) if found else []
    if not old or count_lost_messages(connection, old, blocks):
        return
    remove_blocks(connection, old)
    connection.execute("INSERT OR IGNORE INTO tombstones VALUES (?)", (-found[0],))
    connection.execute("UPDATE sessions SET owner = ? WHERE owner = ?", (key, found[0]))
    connection.execute("DELETE FROM sessions WHERE key = ?", found)


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
