"""Decide which rows of an archive a session adds, replaces or removes.

A session's messages are stored in blocks. Leading blocks with unchanged digests stay, and the rest is replaced. If a
session grew, only its last block is replaced before new ones are added. If it was rewound, all blocks from the first
changed one are replaced. A stored block never changes, and its id is never reused. So an index can update itself from
its highest block id and the list of blocks that were removed since.

If a session in a file loses messages, the old version stays under another ordinal, and the current version is stored
separately. If the file loses the whole session, the stored version stays and is marked as absent.

For a permanently forgotten session, the archive keeps only a digest that identifies it. A sync skips such a session,
even if a file still contains it.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from msgspec import Raw, structs

from thresher.memory.archive import families
from thresher.memory.archive.block_codec import (
    decode_message,
    decode_messages,
    decode_messages_lazily,
    is_damaged,
    rebuild_session,
)
from thresher.memory.archive.protocol import (
    Archive,
    BlockRow,
    EncodedBlock,
    EncodedSession,
    SessionFilter,
    StoredSession,
)
from thresher.memory.records import MESSAGES_PER_BLOCK, ArchivedSession, hash_hidden_path
from thresher.model import Message, Session
from thresher.store.errors import NotStoredError

MISSING_MESSAGE = Message("user", ())
"""Replacement for a deleted message that the index still contains, during a sync or after an interrupted one."""
BLOCK_CACHE_SIZE = 32
"""Number of decoded blocks that a message reader caches."""
SessionName = tuple[str, str, str, int]
"""Agent, id, file and ordinal."""


class PlacedSession(NamedTuple):
    """A stored session with the numbers and ids of its new blocks."""

    key: int
    blocks: tuple[tuple[int, int], ...]
    new_messages: int


class StoredDigests(NamedTuple):
    """Block digests of a stored session."""

    made_by: str
    digests: tuple[bytes, ...]
    source_version: str = ""


# --- writing ---------------------------------------------------------------------------------------------------------


def store_session(
    archive: Archive, entry: EncodedSession, *, ordinal: int, source: str, owner: int, grown: bool = False
) -> PlacedSession | None:
    """Store a session; return None if it has no messages but its stored version has some.

    `grown` is true if the file still contains everything that it contained at the last sync.
    """
    facts = entry.session
    versions = archive.find_sessions(SessionFilter(agent=facts.agent, id=facts.id, file=facts.file))
    previous = next((version for version in versions if version.ordinal == ordinal), None)
    stored = archive.find_blocks([previous.key]) if previous else []
    if stored and not entry.blocks:
        return None
    known_messages = previous.session.messages if previous else 0
    lost = 0 if grown else _count_lost_messages(archive, stored, entry.blocks)
    if previous and lost:  # keep the old version under another ordinal
        archive.put_session(previous._replace(ordinal=-previous.key, is_present=False))
    before = None if lost else previous
    row = build_session_row(entry, before, ordinal=ordinal, source=source, owner=owner)
    key = archive.put_session(row, entry.layout)
    if before is None or _family_links(before) != _family_links(row):
        row = row._replace(session=structs.replace(row.session, key=key))
        _join_families(archive, row, kin=previous.key if previous and lost < known_messages else 0)
    blocks = _replace_blocks(archive, key, entry, before, stored if before else [])
    if not lost:
        _drop_restored_version(archive, key, [version for version in versions if version.ordinal < 0], entry.blocks)
    return PlacedSession(key, blocks, max(0, facts.messages - known_messages + lost))


def build_session_row(
    entry: EncodedSession, before: StoredSession | None, *, ordinal: int, source: str, owner: int
) -> StoredSession:
    """Build a session's row; keep the key and root of the row `before`, and any missing owner or call."""
    facts = entry.session
    if before is not None:
        # If the owner's file is gone, its sub-agent is read alone, so the owner and the call are unknown.
        owner = owner or before.owner
        previous = before.session
        facts = structs.replace(facts, key=previous.key, root=previous.root, call=facts.call or previous.call)
    return StoredSession(facts, ordinal, source, owner, entry.origin_id, True, entry.text_size, entry.source_version)


def _family_links(row: StoredSession) -> tuple[int, str, str]:
    return row.owner, row.session.parent, row.origin_id


def _join_families(archive: Archive, row: StoredSession, *, kin: int) -> None:
    """Set a session's root and merge all families that it links."""
    agent, find = row.session.agent, archive.find_sessions
    relatives = find(SessionFilter(keys=(row.owner, kin)))
    for id in {row.session.id, row.session.parent} - {""}:
        relatives += find(SessionFilter(agent=agent, id=id))
    if families.is_shared_origin(row.origin_id):
        relatives += find(SessionFilter(agent=agent, origin_id=row.origin_id))
    root, merged = families.choose_family_root(row, sorted(relatives, key=lambda session: session.key), kin)
    for other in [row, *(session for old in merged for session in find(SessionFilter(agent=agent, root=old)))]:
        archive.put_session(other._replace(session=structs.replace(other.session, root=root)))


def _replace_blocks(
    archive: Archive, key: int, entry: EncodedSession, before: StoredSession | None, stored: Sequence[BlockRow]
) -> tuple[tuple[int, int], ...]:
    """Write the changed blocks; return the number and id of each."""
    facts, previous = entry.session, before.session if before else None
    is_comparable = previous is not None and previous.made_by == facts.made_by
    same = count_same_digests([block.digest for block in stored], entry.blocks) if is_comparable else 0
    _remove_blocks(archive, stored[same:])
    if previous is None or (previous.title, previous.branch) != (facts.title, facts.branch):
        archive.add_tombstones([-key])
    return tuple((number, archive.add_block(key, number, block)) for number, block in [*enumerate(entry.blocks)][same:])


def _remove_blocks(archive: Archive, blocks: Iterable[BlockRow]) -> None:
    ids = [block.id for block in blocks]
    if ids:
        archive.remove_blocks(ids)
        archive.add_tombstones(ids)


def count_same_digests(stored: Sequence[bytes], blocks: Sequence[EncodedBlock]) -> int:
    """Return the number of leading blocks with unchanged digests."""
    pairs = enumerate(zip(stored, blocks, strict=False))
    return next((n for n, (digest, block) in pairs if block.digest != digest), min(len(stored), len(blocks)))


def _count_lost_messages(archive: Archive, old: Sequence[BlockRow], new: Sequence[EncodedBlock]) -> int:
    """Return the number of messages that the stored blocks contain and the new blocks lack."""
    same = count_same_digests([block.digest for block in old], new)
    if same == len(old):
        return 0
    stored = _without_damaged(_decode_all(archive.read_blocks(old[0].session, same)))
    return families.count_missing_messages(stored, _decode_all(block.body for block in new[same:]))


def _decode_all(bodies: Iterable[bytes]) -> Iterator[Message]:
    return (message for body in bodies for message in decode_messages(body))


def _without_damaged(messages: Iterable[Message]) -> Iterator[Message]:
    return (message for message in messages if not is_damaged(message))


def _drop_restored_version(
    archive: Archive, key: int, versions: Sequence[StoredSession], blocks: Sequence[EncodedBlock]
) -> None:
    """Remove the latest lost version of a session if the new blocks contain all messages of that version."""
    old_blocks = archive.find_blocks([versions[-1].key]) if versions else []
    if not old_blocks or _count_lost_messages(archive, old_blocks, blocks):
        return
    _remove_blocks(archive, old_blocks)
    archive.add_tombstones([-versions[-1].key])
    for child in archive.find_sessions(SessionFilter(owner=versions[-1].key)):
        archive.put_session(child._replace(owner=key))
    archive.remove_sessions([versions[-1].key])


def mark_absent(archive: Archive, source: str, keys: Collection[int], same: Collection[str]) -> None:
    """Mark stored sessions of a file as absent, except those with a key in `keys` or an id in `same`."""
    for row in archive.find_sessions(SessionFilter(source=source)):
        if row.is_present and row.key not in keys and row.session.id not in same:
            archive.put_session(row._replace(is_present=False))


# --- forgetting ------------------------------------------------------------------------------------------------------


def forget_sessions(archive: Archive, keys: Iterable[int], *, for_good: bool) -> int:
    """Remove sessions and their sub-agents; return their number. With `for_good`, no sync stores them again."""
    queue, selected = deque(keys), dict[int, None]()
    while queue:
        key = queue.popleft()
        if key not in selected:
            selected[key] = None
            queue += archive.find_keys(SessionFilter(owner=key))
    rows = archive.find_sessions(SessionFilter(keys=[*selected]))
    archive.remove_sessions([row.key for row in rows])
    if for_good:
        names = ((row.session.agent, row.session.id, row.origin_id) for row in rows)
        archive.add_forgotten(families.compute_forgotten_digest(*name) for name in names)
        hide_sources(archive, {row.source for row in rows})
    if rows:  # even if a later step fails, no index that contains them is used again
        archive.renew_generation()
    return len(rows)


def is_forgotten(archive: Archive, entry: EncodedSession) -> bool:
    """Return whether a session, or the session that owns it, is permanently forgotten."""
    facts = entry.session
    owner = facts.parent if facts.subagent else ""
    return archive.has_forgotten(families.list_forgotten_digests(facts.agent, facts.id, entry.origin_id, owner))


def hide_sources(archive: Archive, paths: Iterable[str]) -> None:
    """Replace the paths of files without stored sessions by hashes, and remove the records of the files' parts."""
    known = archive.sources()
    for path in paths:
        if path in known and not archive.find_keys(SessionFilter(source=path)):
            hidden = known[path]._replace(path=hash_hidden_path(path), problem="", whole="")
            archive.remove_sources([path, *(source.path for source in known.values() if source.whole == path)])
            archive.put_sources([hidden])


# --- reading ---------------------------------------------------------------------------------------------------------


def read_stored_digests(archive: Archive, source: str) -> Mapping[SessionName, StoredDigests]:
    """Return the block digests of all sessions that a file still contained at the last sync."""
    rows = [row for row in archive.find_sessions(SessionFilter(source=source)) if row.is_present]
    blocks = groupby(archive.find_blocks([row.key for row in rows]) if rows else (), key=lambda block: block.session)
    digests = {session: tuple(block.digest for block in rows_of_session) for session, rows_of_session in blocks}
    stored: dict[SessionName, StoredDigests] = {}
    for row in rows:
        name = (row.session.agent, row.session.id, row.session.file, row.ordinal)
        stored[name] = StoredDigests(row.session.made_by, digests.get(row.key, ()), row.source_version)
    return stored


def read_messages(archive: Archive, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
    """Return a range of a session's messages."""
    last = None if stop is None else max(stop - 1, 0) // MESSAGES_PER_BLOCK
    messages = [*_decode_all(archive.read_blocks(key, start // MESSAGES_PER_BLOCK, last))]
    first = start % MESSAGES_PER_BLOCK
    return messages[first : None if stop is None else first + stop - start]


class MessageReader:
    """Reader that returns a message by session key and index; a deleted or damaged message is read as an empty one."""

    def __init__(self, archive: Archive) -> None:
        self.damaged_sessions: dict[int, None] = {}
        """Keys of sessions with damaged messages that this reader returned."""
        self._archive = archive
        self._block = lru_cache(maxsize=BLOCK_CACHE_SIZE)(self._read_block)

    def __call__(self, key: int, at: int) -> Message:
        """Return the message at an index of a session, and note the session if the message is damaged."""
        message = self.peek(key, at)
        if is_damaged(message):
            self.damaged_sessions[key] = None
        return message

    def peek(self, key: int, at: int) -> Message:
        """Return a message that is only compared, so that its damage does not concern the user."""
        number, position = divmod(at, MESSAGES_PER_BLOCK)
        stored = self._block(key, number)[position : position + 1]
        return decode_message(stored[0]) if stored else MISSING_MESSAGE

    def _read_block(self, key: int, number: int) -> Sequence[Raw | Message]:
        stored = self._archive.read_blocks(key, number, number)
        return decode_messages_lazily(stored[0]) if stored else ()


@contextmanager
def open_message_reader(archive: Archive) -> Iterator[MessageReader]:
    """Open a reader, and keep the connection to the archive open."""
    with archive.connected():
        yield MessageReader(archive)


def read_session(archive: Archive, key: int, *, children: bool = True) -> tuple[ArchivedSession, Session]:
    """Return a session's archive record and the complete session with its sub-agents."""
    with archive.connected():
        rows = archive.find_sessions(SessionFilter(keys=[key]))
        if not rows:
            raise NotStoredError(f"no session has the key {key}; `thresher search` lists sessions")
        child_keys = archive.find_keys(SessionFilter(owner=key)) if children else []
        sub_sessions = [read_session(archive, child)[1] for child in child_keys]
        facts = rows[0].session
        return facts, rebuild_session(facts, archive.read_layout(key), read_messages(archive, key), sub_sessions)
