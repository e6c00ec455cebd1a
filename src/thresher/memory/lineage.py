"""Families: which sessions go back to one beginning.

A session belongs with the one it was started by, forked from or goes on from; with its copies (the same id and
beginning in another file); and with those that begin with the very same message, as a resumed session that copies
its history does. A family's root is the id of its first ancestor, as far as that is known: where the parent has
not been seen, its id stands for it, and when it comes and has a parent itself, the whole family moves there.
"""

from hashlib import blake2b
from sqlite3 import Connection

from thresher.model import Session

DISTINCT = 20
"""Characters that an id of a message must have to be nobody else's: others count their messages."""


def start_of(session: Session) -> str:
    """What a session begins with: an id that only copies share, or else a digest of the words."""
    first = next(session.messages(), None)
    if first is None:
        return ""
    if len(first.id) >= DISTINCT:
        return f"id:{first.id}"
    told = f"{first.time}\n{first.text}"
    return f"text:{blake2b(told.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def settle_root(connection: Connection, key: int) -> None:
    """Give a session its root, and join the families that it links."""
    row = connection.execute("SELECT agent, id, parent, owner, start FROM sessions WHERE key = ?", (key,)).fetchone()
    agent, id, parent, owner, start = row
    links = [_root(connection, "key = ?", owner)]
    if parent and parent != id:
        links.append(_root(connection, "agent = ? AND id = ? AND key <> ?", agent, parent, key) or parent)
    links.append(_root(connection, "agent = ? AND id = ? AND start = ? AND key <> ?", agent, id, start, key))
    if start.startswith("id:"):
        links.append(_root(connection, "agent = ? AND start = ? AND key <> ?", agent, start, key))
    # Ids that count from one, or are names of files, are had by sessions that know nothing of each other.
    namesake = _root(connection, "agent = ? AND id = ? AND start <> ? AND key <> ?", agent, id, start, key)
    own = f"{id}~{key}" if namesake else id
    roots = [root for root in links if root] or [own]
    connection.execute("UPDATE sessions SET root = ? WHERE key = ?", (roots[0], key))
    for other in {*roots, own} - {roots[0]}:
        connection.execute("UPDATE sessions SET root = ? WHERE agent = ? AND root = ?", (roots[0], agent, other))


def _root(connection: Connection, where: str, *values: object) -> str:
    found = connection.execute(f"SELECT root FROM sessions WHERE {where} AND root <> '' LIMIT 1", values).fetchone()
    return str(found[0]) if found else ""
