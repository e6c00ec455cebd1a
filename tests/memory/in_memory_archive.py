"""In-memory archive: the smallest implementation of the protocol, without SQL."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import count
from uuid import uuid4

from msgspec import structs

from thresher.memory.archive.protocol import ABSENT_STATES, BlockRow, EncodedBlock, SessionFilter, StoredSession
from thresher.memory.records import SourceRecord

_names = count()


class InMemoryArchive:
    """Rows in dictionaries. A failed transaction restores a copy."""

    def __init__(self) -> None:
        self.name = f"memory:{next(_names)}"
        self._is_held = False
        self._in_transaction = False
        self._rows = _Rows()

    def exists(self) -> bool:
        return bool(self._rows.sources or self._rows.sessions)

    def size(self) -> int:
        return sum(len(body) for _, body in self._rows.blocks.values())

    @contextmanager
    def lease(self, *, wait: bool = True, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
        if self._is_held:
            assert not wait, "one thread would wait for itself"
            assert on_wait is None
            yield False
            return
        self._is_held = True
        try:
            yield True
        finally:
            self._is_held = False

    @contextmanager
    def connected(self) -> Iterator[None]:
        yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._in_transaction:
            yield
            return
        before = deepcopy(self._rows)
        self._in_transaction = True
        try:
            yield
        except BaseException:
            self._rows = before
            raise
        finally:
            self._in_transaction = False

    def flush(self) -> None:
        pass

    def compact(self) -> None:
        pass

    def generation(self) -> str:
        return self._rows.generation

    def renew_generation(self) -> None:
        self._rows.generation = uuid4().hex

    def find_sessions(self, where: SessionFilter) -> list[StoredSession]:
        return [row for row in map(self._with_state, self._rows.sessions.values()) if _matches(row, where)]

    def _with_state(self, row: StoredSession) -> StoredSession:
        source = self._rows.sources.get(row.source)
        gone = not row.is_present or (source is not None and source.state in ABSENT_STATES)
        return row._replace(session=structs.replace(row.session, gone=gone))

    def find_keys(self, where: SessionFilter) -> list[int]:
        return [row.key for row in self.find_sessions(where)]

    def read_layout(self, key: int) -> bytes:
        return self._rows.layouts[key]

    def put_session(self, row: StoredSession, layout: bytes | None = None) -> int:
        if not row.key:
            self._rows.last_session += 1
            row = row._replace(session=structs.replace(row.session, key=self._rows.last_session))
        self._rows.sessions[row.key] = row
        if layout is not None:
            self._rows.layouts[row.key] = layout
        return row.key

    def remove_sessions(self, keys: Collection[int]) -> None:
        self.remove_blocks([block.id for block in self.find_blocks(keys)])
        for key in keys:
            self._rows.sessions.pop(key, None)
            self._rows.layouts.pop(key, None)

    def find_blocks(self, sessions: Collection[int] | None = None, *, after: int = 0) -> list[BlockRow]:
        blocks = (block for block, _ in self._rows.blocks.values() if block.id > after)
        return sorted(block for block in blocks if sessions is None or block.session in sessions)

    def read_blocks(self, session: int, first: int = 0, last: int | None = None) -> list[bytes]:
        found = self.find_blocks([session])
        numbers = range(first, 1 << 40 if last is None else last + 1)
        return [self._rows.blocks[block.id][1] for block in found if block.number in numbers]

    def add_block(self, session: int, number: int, block: EncodedBlock) -> int:
        self._rows.last_block += 1
        id = self._rows.last_block
        self._rows.blocks[id] = (BlockRow(session, number, id, block.digest), block.body)
        return id

    def remove_blocks(self, ids: Collection[int]) -> None:
        for id in ids:
            self._rows.blocks.pop(id, None)

    def tombstones(self, after: int = 0) -> list[tuple[int, int]]:
        return sorted((at, block) for block, at in self._rows.tombstones.items() if at > after)

    def add_tombstones(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._rows.last_position += 1
            self._rows.tombstones[block] = self._rows.last_position

    def clear_tombstones(self, upto: int) -> None:
        self._rows.tombstones = {block: at for block, at in self._rows.tombstones.items() if at > upto}

    def sources(self) -> Mapping[str, SourceRecord]:
        return dict(self._rows.sources)

    def put_sources(self, known: Iterable[SourceRecord]) -> None:
        self._rows.sources |= {one.path: one for one in known}

    def remove_sources(self, paths: Collection[str]) -> None:
        for path in paths:
            self._rows.sources.pop(path, None)

    def add_forgotten(self, digests: Iterable[bytes]) -> None:
        self._rows.forgotten.update(digests)

    def has_forgotten(self, digests: Iterable[bytes]) -> bool:
        return not self._rows.forgotten.isdisjoint(digests)


class _Rows:
    def __init__(self) -> None:
        self.generation = uuid4().hex
        self.sessions: dict[int, StoredSession] = {}
        self.layouts: dict[int, bytes] = {}
        self.blocks: dict[int, tuple[BlockRow, bytes]] = {}
        self.tombstones: dict[int, int] = {}
        self.sources: dict[str, SourceRecord] = {}
        self.forgotten: set[bytes] = set()
        self.last_session = self.last_block = self.last_position = 0


def _matches(row: StoredSession, where: SessionFilter) -> bool:
    facts = row.session
    equal = (
        (where.agent, facts.agent),
        (where.id, facts.id),
        (where.file, facts.file),
        (where.source, row.source),
        (where.origin_id, row.origin_id),
        (where.root, facts.root),
        (where.branch, facts.branch),
    )
    return (
        (where.keys is None or row.key in where.keys)
        and all(wanted == value for wanted, value in equal if wanted)
        and (not where.owner or row.owner == where.owner)
        and (not where.subagent or facts.subagent)
        and facts.id.startswith(where.id_prefix)
        and where.project.encode().lower() in facts.project.encode().lower()  # ASCII letters only
    )
