"""Notes about sessions whose archived messages are damaged."""

from collections.abc import Iterable

from thresher.memory.session_store import SessionStore


def describe_damage(store: SessionStore, keys: Iterable[int]) -> list[str]:
    """Return a note about each session with damaged messages."""
    ids = [session.id for session in store.find_sessions(keys)]
    what = "cannot be read, because the archive is damaged"
    # An id comes from a transcript, so it is not part of a command that a user may paste.
    return [f"part of {id} {what}; `thresher show` with this id lists the messages" for id in ids]
