"""The ledger of a window: the edits of each conversation prefix, and a few named facts.

A replan record holds the edits that were decided for one prefix of a conversation; its key is the digest of that
prefix. A conversation uses the newest record of its longest prefix that has one. After a rewind to an earlier message,
it therefore uses the edits that it had at that message. A fork shares the edits of the common prefix. Each record
stores only the difference from its parent record.

The ledger is one SQLite database, in memory or in a file. Each replan is one database row, written before the request
is sent. After a crash the row is complete or absent. If two processes replan the same prefix at once, both use the row
that was written first.

A request must not wait for the ledger, and must not fail because of it. So a lock times out soon, every failure is a
`LedgerError`, and inside `attempt_once` the first failure ends all access: the window then goes on without the ledger.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from thresher.edits import Edit
from thresher.errors import ThresherError
from thresher.model import Occurrence
from thresher.policies.table import RENAMED_POLICIES
from thresher.store.sqlite_file import SqliteFile, SqliteSchema

if TYPE_CHECKING:
    from sqlite3 import Connection

LOCK_TIMEOUT_SECONDS = 0.25
"""Seconds to wait for a lock of another process, which writes one row at a time."""
MAX_CACHED_REPLANS = 64
"""Maximum number of records in memory; the ledger reads other records again when it needs them."""
EditsByTarget = dict[Occurrence, Edit]
"""Active edits, indexed by the first part that each one targets."""
RENAMED_EDIT_KINDS = {"stub": "replace", "cut": "truncate", "fold": "summarize"}
"""Edit kinds of earlier versions, and their current names."""
RENAMED_TRIGGERS = {
    "worth": "break_even",
    "ride": "piggyback",
    "high": "high_water",
    "over": "overflow",
    "arrival": "oversized_result",
    "other": "external",
}
"""Triggers of earlier versions, and their current names."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (number INTEGER PRIMARY KEY, chain BLOB NOT NULL, serial INTEGER NOT NULL, "
    "body BLOB NOT NULL, UNIQUE (chain, serial))",
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
)
_SCHEMA = SqliteSchema(1, _TABLES)


class LedgerError(ThresherError):
    """A ledger could not be read or written."""


class ReplanRecord(Struct, frozen=True):
    """A replan for one prefix of a conversation, as the ledger stores it."""

    chain: bytes
    """Digest of all rows of the prefix."""
    serial: int
    """Number of earlier replans for the same prefix."""
    rows: int
    parent: tuple[bytes, int] | None
    trigger: str
    at: float
    added: tuple[Edit, ...] = ()
    removed: tuple[Occurrence, ...] = ()

    @property
    def key(self) -> tuple[bytes, int]:
        """Key of the record: prefix digest and serial number."""
        return self.chain, self.serial


class Ledger:
    """Replan records and facts, in memory or in a file that several processes may share."""

    def __init__(self, path: str | Path | None = None, *, lock_timeout: float | None = None) -> None:
        """Open nothing yet. `lock_timeout` is the number of seconds to wait for a file that another process locks."""
        self.path = None if path is None else Path(path)
        timeout = LOCK_TIMEOUT_SECONDS if lock_timeout is None else lock_timeout
        self._file = SqliteFile(self.path, _SCHEMA, error=LedgerError, advice="name another file", timeout=timeout)
        self._is_one_attempt = False
        self._failure: LedgerError | None = None
        """The failure that ended all access until the end of `attempt_once`."""
        self._connection: Connection | None = None
        self._process = 0
        self._version = -1
        self._last_number = 0
        self._numbers_by_prefix: dict[bytes, list[int]] = {}
        """Row numbers of the replan records, for each prefix digest."""
        self._cached_replans: dict[int, ReplanRecord] = {}
        self._cached_edits: dict[tuple[bytes, int], EditsByTarget] = {}

    @property
    def is_shared(self) -> bool:
        """True if other processes may write to the ledger."""
        return self.path is not None

    @contextmanager
    def attempt_once(self) -> Iterator[None]:
        """Access the file until the first failure; raise that failure again, without a new attempt, until the end."""
        self._is_one_attempt = True
        try:
            yield
        finally:
            self._is_one_attempt, self._failure = False, None

    # --- replans -------------------------------------------------------------------------------------------------

    def latest_replan(self, chain: Sequence[bytes]) -> ReplanRecord | None:
        """Return the latest replan of the longest prefix that has one. `chain` lists the digests of all prefixes."""
        self._refresh()
        if not self._numbers_by_prefix:
            return None
        digest = next((digest for digest in reversed(chain) if digest in self._numbers_by_prefix), None)
        return None if digest is None else self._load_replan(self._numbers_by_prefix[digest][-1])

    def active_edits(self, replan: ReplanRecord | None) -> EditsByTarget:
        """Return all edits that are active after a replan."""
        if replan is None:
            return {}
        if replan.key not in self._cached_edits:
            ancestry, keys = [replan], {replan.key}
            while (parent := ancestry[-1].parent) is not None and parent not in self._cached_edits:
                ancestry.append(self._find_replan(parent))
                if ancestry[-1].key in keys:
                    raise LedgerError(f"{self._file.name}: a stored replan is its own parent; start a new ledger")
                keys.add(ancestry[-1].key)
            for record in reversed(ancestry):
                before = self._cached_edits[record.parent] if record.parent is not None else {}
                removed = set(record.removed)
                kept = {target: edit for target, edit in before.items() if target not in removed}
                self._cached_edits[record.key] = kept | index_by_target(record.added)
            for old in list(self._cached_edits)[:-MAX_CACHED_REPLANS]:
                if old != replan.key:
                    del self._cached_edits[old]
        return self._cached_edits[replan.key]

    def _find_replan(self, key: tuple[bytes, int]) -> ReplanRecord:
        digest, serial = key
        numbers = self._numbers_by_prefix.get(digest, [])
        if serial >= len(numbers):
            raise LedgerError(f"{self._file.name}: the parent of a stored replan is missing; start a new ledger")
        return self._load_replan(numbers[serial])

    def _load_replan(self, number: int) -> ReplanRecord:
        if number not in self._cached_replans:
            if len(self._cached_replans) >= MAX_CACHED_REPLANS:
                self._cached_replans.pop(next(iter(self._cached_replans)))
            body = self._query("SELECT body FROM epochs WHERE number = ?", (number,))[0][0]
            self._cached_replans[number] = _decode_replan(body, self._file.name)
        return self._cached_replans[number]

    def record_replan(
        self,
        chain: Sequence[bytes],
        before: ReplanRecord | None,
        trigger: str,
        at: float,
        added: tuple[Edit, ...],
        removed: tuple[Occurrence, ...],
    ) -> tuple[ReplanRecord, bool]:
        """Store a replan for the last prefix in `chain`; return the replan and True.

        If another process has already stored a replan with the same key, return that replan and False.
        """
        serial = len(self._numbers_by_prefix.get(chain[-1], ()))
        parent = before.key if before else None
        replan = ReplanRecord(chain[-1], serial, len(chain), parent, trigger, at, added, removed)
        self._execute(
            "INSERT INTO epochs (chain, serial, body) VALUES (?, ?, ?) ON CONFLICT (chain, serial) DO NOTHING",
            (replan.chain, replan.serial, msgspec.json.encode(replan)),
        )
        self._load_new_rows()
        stored = self._find_replan(replan.key)
        return stored, stored == replan

    # --- facts ---------------------------------------------------------------------------------------------------

    def get_fact(self, name: str) -> Any:
        """Return the fact with this name, or None."""
        row = self._query("SELECT value FROM facts WHERE name = ?", (name,))
        return self._decode_fact(row[0][0]) if row else None

    def find_facts(self, prefix: str) -> dict[str, Any]:
        """Return all facts whose names start with `prefix`, indexed by the rest of the name."""
        bounds = (prefix, prefix + "\U0010ffff")
        rows = self._query("SELECT name, value FROM facts WHERE name >= ? AND name < ?", bounds)
        return {name[len(prefix) :]: self._decode_fact(value) for name, value in rows}

    def _decode_fact(self, value: Any) -> Any:
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise LedgerError(
                f"{self._file.name}: cannot decode a stored fact ({error}); start a new ledger"
            ) from error

    def set_fact(self, name: str, value: Any) -> None:
        """Store a fact and replace any earlier value."""
        self._execute(
            "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, msgspec.json.encode(value)),
        )

    def save(self, path: str | Path) -> None:
        """Copy the ledger to a file; the file appears only when it is complete."""
        target = Path(path)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            part.touch(mode=0o600)
            self._query("VACUUM INTO ?", (str(part),))
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise LedgerError(f"{target}: cannot save the ledger ({error}); name another file") from error

    def close(self) -> None:
        """Close the file; the next use opens it again. A ledger in memory stays open."""
        if self.path is not None and self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- the database --------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the rows that other processes have written."""
        if self.path is None and self._connection is not None:
            return
        version = self._query("PRAGMA data_version", ())[0][0]
        if version != self._version:
            self._version = version
            self._load_new_rows()

    def _load_new_rows(self) -> None:
        rows = self._query("SELECT number, chain FROM epochs WHERE number > ? ORDER BY number", (self._last_number,))
        for number, chain in rows:
            self._numbers_by_prefix.setdefault(chain, []).append(number)
            self._last_number = number

    def _query(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        with self._remember_failure(), self._file.translate_errors():
            return self._connect().execute(statement, values).fetchall()

    def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._remember_failure(), self._file.translate_errors():
            self._connect().execute(statement, values)

    @contextmanager
    def _remember_failure(self) -> Iterator[None]:
        """Raise the earlier failure of `attempt_once`, if any; otherwise keep a new one for the next access."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except LedgerError as error:
            self._failure = error if self._is_one_attempt else None
            raise

    def _connect(self) -> "Connection":
        """Return the database connection; a forked process opens its own connection."""
        if self._connection is None or (self.path is not None and self._process != os.getpid()):
            self._connection = self._file.connect(any_thread=True)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._process = os.getpid()
            self._version = -1
        return self._connection


def _decode_replan(body: bytes, name: str) -> ReplanRecord:
    try:
        fields = msgspec.json.decode(body)
        fields["trigger"] = RENAMED_TRIGGERS.get(fields["trigger"], fields["trigger"])
        for edit in fields["added"]:
            edit["kind"] = RENAMED_EDIT_KINDS.get(edit["kind"], edit["kind"])
            edit["policy"] = RENAMED_POLICIES.get(edit["policy"], edit["policy"])
        return msgspec.convert(fields, ReplanRecord)
    except (KeyError, TypeError, msgspec.MsgspecError, ValueError) as error:
        raise LedgerError(f"{name}: cannot decode a stored replan ({error}); start a new ledger") from error


def diff_edits(before: EditsByTarget, after: EditsByTarget) -> tuple[tuple[Edit, ...], tuple[Occurrence, ...]]:
    """Return the edits that were added or changed, and the targets whose edits were removed."""
    added = (edit for target, edit in after.items() if target not in before or not is_same_edit(before[target], edit))
    return tuple(added), tuple(target for target in before if target not in after)


def is_same_edit(first: Edit, second: Edit) -> bool:
    """Return True if two edits have the same effect; their measured savings may differ."""
    return structs.replace(first, before=0, saved=0) == structs.replace(second, before=0, saved=0)


def index_by_target(edits: Sequence[Edit]) -> EditsByTarget:
    """Index edits by the first part that each one targets."""
    return {edit.target: edit for edit in edits}
