"""Which rows a session becomes: what is written, which version stays, what forgetting removes; for any archive.

A session's messages are stored in blocks. A block whose digest is there already stays; from the first that differs on
all are replaced. So a session that grew rewrites its last block, and one that was rewound is noticed. Blocks are never
changed and their ids never used again: an index only has to know the highest id that it has seen, and which blocks were
removed since.

A file may lose messages that it held before. Then the session stays as it was, under another ordinal, and what the file
holds now is stored beside it. If the file holds nothing of it, nothing is changed.

A forgotten session leaves a digest of its name, so that a file that still holds it does not bring it back.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from msgspec import Raw, structs

from thresher.memory.archive import families
from thresher.memory.archive.block_codec import decode_message, decode_messages, decode_messages_lazily, rebuild_session
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
"""Stands for a message that an index still knows during a sync, or after one that was interrupted."""
BLOCK_CACHE_SIZE = 32
"""Decoded blocks that a reader of single messages keeps."""
SessionName = tuple[str, str, str, int]
"""Agent, id, file and ordinal."""


class PlacedSession(NamedTuple):
    """A stored session: the numbers and ids of its new blocks."""

    key: int
    blocks: tuple[tuple[int, int], ...]
    new_messages: int


class StoredDigests(NamedTuple):
    """A session as it is stored now."""

    made_by: str
    digests: tuple[bytes, ...]
    source_version: str = ""


# --- writing ---------------------------------------------------------------------------------------------------------


def store_session(
    archive: Archive, entry: EncodedSession, *, ordinal: int, source: str, owner: int, grown: bool = False
) -> PlacedSession | None:
    """Store a session; return None if its file holds nothing of it any more.

    With `grown`, the file still holds all that it held before.
    """
    facts = entry.session
    versions = archive.find_sessions(SessionFilter(agent=facts.agent, id=facts.id, file=facts.file))
    kept = next((one for one in versions if one.ordinal == ordinal), None)
    stored = archive.find_blocks([kept.key]) if kept else []
    if stored and not entry.blocks:
        return None
    known = kept.session.messages if kept else 0
    lost = 0 if grown else _count_lost_messages(archive, stored, entry.blocks)
    if kept and lost:  # keep it as it is, and free its name
        archive.put_session(kept._replace(ordinal=-kept.key, is_present=False))
    before = None if lost else kept
    row = build_session_row(entry, before, ordinal=ordinal, source=source, owner=owner)
    key = archive.put_session(row, entry.layout)
    if before is None or _family_links(before) != _family_links(row):
        row = row._replace(session=structs.replace(row.session, key=key))
        _join_families(archive, row, kin=kept.key if kept and lost < known else 0)
    blocks = _replace_blocks(archive, key, entry, before, stored if before else [])
    if not lost:
        _drop_restored_version(archive, key, [one for one in versions if one.ordinal < 0], entry.blocks)
    return PlacedSession(key, blocks, max(0, facts.messages - known + lost))


def build_session_row(
    entry: EncodedSession, before: StoredSession | None, *, ordinal: int, source: str, owner: int
) -> StoredSession:
    """Return the row of a session, given the one that it replaces."""
    facts = entry.session
    if before is not None:
        # A sub-agent whose owner's file is gone is read alone, and knows less of where it belongs.
        owner = owner or before.owner
        known = before.session
        facts = structs.replace(facts, key=known.key, root=known.root, call=facts.call or known.call)
    return StoredSession(facts, ordinal, source, owner, entry.origin_id, True, entry.text_size, entry.source_version)


def _family_links(row: StoredSession) -> tuple[int, str, str]:
    return row.owner, row.session.parent, row.origin_id


def _join_families(archive: Archive, row: StoredSession, *, kin: int) -> None:
    """Give a session its root, and one root to all families that it links."""
    agent, find = row.session.agent, archive.find_sessions
    relatives = find(SessionFilter(keys=(row.owner, kin)))
    for id in {row.session.id, row.session.parent} - {""}:
        relatives += find(SessionFilter(agent=agent, id=id))
    if families.is_shared_origin(row.origin_id):
        relatives += find(SessionFilter(agent=agent, origin_id=row.origin_id))
    root, merged = families.choose_family_root(row, sorted(relatives, key=lambda one: one.key), kin)
    for other in [row, *(one for old in merged for one in find(SessionFilter(agent=agent, root=old)))]:
        archive.put_session(other._replace(session=structs.replace(other.session, root=root)))


def _replace_blocks(
    archive: Archive, key: int, entry: EncodedSession, before: StoredSession | None, stored: Sequence[BlockRow]
) -> tuple[tuple[int, int], ...]:
    """Write the blocks that differ; return the number and the id of each."""
    facts, old = entry.session, before.session if before else None
    is_comparable = old is not None and old.made_by == facts.made_by
    same = count_same_digests([one.digest for one in stored], entry.blocks) if is_comparable else 0
    _remove_blocks(archive, stored[same:])
    if old is None or (old.title, old.branch) != (facts.title, facts.branch):
        archive.add_tombstones([-key])
    return tuple((number, archive.add_block(key, number, block)) for number, block in [*enumerate(entry.blocks)][same:])


def _remove_blocks(archive: Archive, blocks: Iterable[BlockRow]) -> None:
    ids = [one.id for one in blocks]
    if ids:
        archive.remove_blocks(ids)
        archive.add_tombstones(ids)


def count_same_digests(stored: Sequence[bytes], blocks: Sequence[EncodedBlock]) -> int:
    """Return how many leading blocks are as they are stored."""
    pairs = enumerate(zip(stored, blocks, strict=False))
    return next((n for n, (digest, block) in pairs if block.digest != digest), min(len(stored), len(blocks)))


def _count_lost_messages(archive: Archive, old: Sequence[BlockRow], new: Sequence[EncodedBlock]) -> int:
    """Return how many messages of the stored blocks are not in the new ones."""
    same = count_same_digests([one.digest for one in old], new)
    if same == len(old):
        return 0
    stored = _decode_all(archive.read_blocks(old[0].session, same))
    return families.count_missing_messages(stored, _decode_all(block.body for block in new[same:]))


def _decode_all(bodies: Iterable[bytes]) -> Iterator[Message]:
    return (message for body in bodies for message in decode_messages(body))


def _drop_restored_version(
    archive: Archive, key: int, lost: Sequence[StoredSession], blocks: Sequence[EncodedBlock]
) -> None:
    """Remove the version that was last set aside for a session, if all of it is back."""
    old = archive.find_blocks([lost[-1].key]) if lost else []
    if not old or _count_lost_messages(archive, old, blocks):
        return
    _remove_blocks(archive, old)
    archive.add_tombstones([-lost[-1].key])
    for child in archive.find_sessions(SessionFilter(owner=lost[-1].key)):
        archive.put_session(child._replace(owner=key))
    archive.remove_sessions([lost[-1].key])


def mark_absent(archive: Archive, source: str, keys: Collection[int], same: Collection[str]) -> None:
    """Mark what a file no longer holds: neither by its key, nor as one of the ids that did not change."""
    for row in archive.find_sessions(SessionFilter(source=source)):
        if row.is_present and row.key not in keys and row.session.id not in same:
            archive.put_session(row._replace(is_present=False))


# --- forgetting ------------------------------------------------------------------------------------------------------


def forget_sessions(archive: Archive, keys: Iterable[int], *, for_good: bool) -> int:
    """Remove sessions and their sub-agents; `for_good`, so that they do not come back. Return how many."""
    waiting, every = deque(keys), dict[int, None]()
    while waiting:
        key = waiting.popleft()
        if key not in every:
            every[key] = None
            waiting += archive.find_keys(SessionFilter(owner=key))
    rows = archive.find_sessions(SessionFilter(keys=[*every]))
    archive.remove_sessions([row.key for row in rows])
    if for_good:
        names = ((row.session.agent, row.session.id, row.origin_id) for row in rows)
        archive.add_forgotten(families.compute_forgotten_digest(*name) for name in names)
        hide_sources(archive, {row.source for row in rows})
    if rows:  # whatever happens next: no index that still knows them is used again
        archive.renew_generation()
    return len(rows)


def is_forgotten(archive: Archive, entry: EncodedSession) -> bool:
    """Return whether a session, or the one whose sub-agent it is, is to stay forgotten."""
    facts = entry.session
    owner = facts.parent if facts.subagent else ""
    return archive.has_forgotten(families.list_forgotten_digests(facts.agent, facts.id, entry.origin_id, owner))


def hide_sources(archive: Archive, paths: Iterable[str]) -> None:
    """Keep no name of a file without stored sessions, nor of what was read with it."""
    known = archive.sources()
    for path in paths:
        if path in known and not archive.find_keys(SessionFilter(source=path)):
            hidden = known[path]._replace(path=hash_hidden_path(path), problem="", whole="")
            archive.remove_sources([path, *(one.path for one in known.values() if one.whole == path)])
            archive.put_sources([hidden])


# --- reading ---------------------------------------------------------------------------------------------------------


def read_stored_digests(archive: Archive, source: str) -> Mapping[SessionName, StoredDigests]:
    """Return what is stored of the sessions that a file holds."""
    rows = [row for row in archive.find_sessions(SessionFilter(source=source)) if row.is_present]
    blocks = groupby(archive.find_blocks([row.key for row in rows]) if rows else (), key=lambda one: one.session)
    digests = {session: tuple(one.digest for one in some) for session, some in blocks}
    return {
        (facts.agent, facts.id, facts.file, row.ordinal): StoredDigests(
            facts.made_by, digests.get(row.key, ()), row.source_version
        )
        for row in rows
        for facts in [row.session]
    }


def read_messages(archive: Archive, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
    """Return messages of a session by their places in it."""
    last = None if stop is None else max(stop - 1, 0) // MESSAGES_PER_BLOCK
    found = [*_decode_all(archive.read_blocks(key, start // MESSAGES_PER_BLOCK, last))]
    begin = start % MESSAGES_PER_BLOCK
    return found[begin : None if stop is None else begin + stop - start]


@contextmanager
def open_message_reader(archive: Archive) -> Iterator[Callable[[int, int], Message]]:
    """Read single messages by session and place; an empty one for a place that is not there any more."""

    @lru_cache(maxsize=BLOCK_CACHE_SIZE)
    def block(key: int, number: int) -> Sequence[Raw | Message]:
        found = archive.read_blocks(key, number, number)
        return decode_messages_lazily(found[0]) if found else ()

    def message(key: int, at: int) -> Message:
        number, place = divmod(at, MESSAGES_PER_BLOCK)
        found = block(key, number)[place : place + 1]
        return decode_message(found[0]) if found else MISSING_MESSAGE

    with archive.connected():
        yield message


def read_session(archive: Archive, key: int, *, children: bool = True) -> tuple[ArchivedSession, Session]:
    """Return a session's facts and the session as it was read, with its sub-agents."""
    with archive.connected():
        found = archive.find_sessions(SessionFilter(keys=[key]))
        if not found:
            raise NotStoredError(f"no session has the key {key}; a search tells which there are")
        below = archive.find_keys(SessionFilter(owner=key)) if children else []
        inner = [read_session(archive, child)[1] for child in below]
        facts = found[0].session
        return facts, rebuild_session(facts, archive.read_layout(key), read_messages(archive, key), inner)
