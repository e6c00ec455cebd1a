"""What memory keeps of a session, for the verbs that read one: there when its file is gone, without its secrets."""

from typing import TYPE_CHECKING

from thresher.model import Session

if TYPE_CHECKING:
    from thresher.memory import Memory


def open_existing_memory() -> "Memory | None":
    """Memory, where something is kept: who only looks for it leaves no empty one behind."""
    from thresher.memory import Memory

    memory = Memory(discover=False)
    return memory if memory.store.exists() else None


def find_archived_session(reference: str) -> Session | None:
    """The session whose id begins like that, as memory keeps it; nothing is looked for and nothing is synced."""
    from thresher.store import NotStoredError

    memory = open_existing_memory()
    try:
        return memory.session(reference) if memory is not None else None
    except NotStoredError:
        return None
