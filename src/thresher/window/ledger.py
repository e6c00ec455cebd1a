"""What a window remembers: which edits hold for a conversation that begins so, and a few facts beside them.

An epoch says which edits were decided when a conversation had come so far; the chain digest of its rows is its key.
A longer conversation that begins the same has the newest epoch along its chain; so a rewind finds the edits of that
time, and a fork shares those of its stem. Each epoch holds only what it changed against the one before it.

The ledger is one SQLite database, in memory or in a file. A decision is one row, written before anything is sent:
a crash leaves all of it or nothing, and of two processes that decide at once the first one's decision holds for both.
"""

import os
from collections.abc import Sequence
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

MAX_CACHED_REPLANS = 64
"""Decisions that are held in memory: the others are read again when they are wanted."""
EditsByTarget = dict[Occurrence, Edit]
"""The edits that hold, by the first part that each speaks of."""
RENAMED_EDIT_KINDS = {"stub": "replace", "cut": "truncate", "fold": "summarize"}
"""Edits as earlier versions wrote them."""
RENAMED_TRIGGERS = {
    "worth": "break_even",
    "ride": "piggyback",
    "high": "high_water",
    "over": "overflow",
    "arrival": "oversized_result",
    "other": "external",
}
"""Triggers as earlier versions wrote them."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (number INTEGER PRIMARY KEY, chain BLOB NOT NULL, serial INTEGER NOT NULL, "
    "body BLOB NOT NULL, UNIQUE (chain, serial))",
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
)
_SCHEMA = SqliteSchema(1, _TABLES)


class LedgerError(ThresherError):
    """A ledger cannot be read or written."""


class ReplanRecord(Struct, frozen=True):
    """What was decided when a conversation had come so far."""

    chain: bytes
    """The digest of its rows, the last and all before it."""
    serial: int
    """How many decisions were made at this very point before."""
    rows: int
    parent: tuple[bytes, int] | None
    trigger: str
    at: float
    added: tuple[Edit, ...] = ()
    removed: tuple[Occurrence, ...] = ()

    @property
    def key(self) -> tuple[bytes, int]:
        """Which one it is."""
        return self.chain, self.serial


class Ledger:
    """Epochs and facts, in memory or in a file that others may share."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._file = SqliteFile(self.path, _SCHEMA, error=LedgerError, advice="name another file")
        self._connection: Connection | None = None
        self._process = 0
        self._version = -1
        self._last_number = 0
        self._numbers_by_prefix: dict[bytes, list[int]] = {}
        """For each point at which something was decided, the numbers of the decisions."""
        self._cached_replans: dict[int, ReplanRecord] = {}
        self._cached_edits: dict[tuple[bytes, int], EditsByTarget] = {}

    @property
    def is_shared(self) -> bool:
        """Whether others may write to it, too."""
        return self.path is not None

    # --- epochs --------------------------------------------------------------------------------------------------

    def latest_replan(self, chain: Sequence[bytes]) -> ReplanRecord | None:
        """The latest decision for a conversation with these rows."""
        self._refresh()
        if not self._numbers_by_prefix:
            return None
        known = next((self._numbers_by_prefix[one] for one in reversed(chain) if one in self._numbers_by_prefix), None)
        return None if known is None else self._load_replan(known[-1])

    def active_edits(self, epoch: ReplanRecord | None) -> EditsByTarget:
        """The edits that hold in an epoch."""
        if epoch is None:
            return {}
        if epoch.key not in self._cached_edits:
            line = [epoch]
            while line[-1].parent is not None and line[-1].parent not in self._cached_edits:
                line.append(self._find_replan(line[-1].parent))
            for one in reversed(line):
                before = self._cached_edits[one.parent] if one.parent is not None else {}
                gone = set(one.removed)
                kept = {target: edit for target, edit in before.items() if target not in gone}
                self._cached_edits[one.key] = kept | {edit.target: edit for edit in one.added}
            for old in list(self._cached_edits)[:-MAX_CACHED_REPLANS]:
                if old != epoch.key:
                    del self._cached_edits[old]
        return self._cached_edits[epoch.key]

    def _find_replan(self, key: tuple[bytes, int]) -> ReplanRecord:
        known = self._numbers_by_prefix.get(key[0], [])
        if key[1] >= len(known):
            raise LedgerError(f"{self._file.name}: a decision is missing that others build on; begin a new ledger")
        return self._load_replan(known[key[1]])

    def _load_replan(self, number: int) -> ReplanRecord:
        if number not in self._cached_replans:
            if len(self._cached_replans) >= MAX_CACHED_REPLANS:
                self._cached_replans.pop(next(iter(self._cached_replans)))
            body = self._query("SELECT body FROM epochs WHERE number = ?", (number,))[0][0]
            self._cached_replans[number] = _decode_replan(body, self._file.name)
        return self._cached_replans[number]

    def record_replan(self, epoch: ReplanRecord) -> ReplanRecord:
        """Write a decision down; if another made one at this point meanwhile, that one holds and is handed back."""
        self._execute(
            "INSERT INTO epochs (chain, serial, body) VALUES (?, ?, ?) ON CONFLICT (chain, serial) DO NOTHING",
            (epoch.chain, epoch.serial, msgspec.json.encode(epoch)),
        )
        self._load_new_rows()
        return self._find_replan(epoch.key)

    def new_replan(
        self,
        chain: Sequence[bytes],
        before: ReplanRecord | None,
        trigger: str,
        at: float,
        added: tuple[Edit, ...],
        removed: tuple[Occurrence, ...],
    ) -> ReplanRecord:
        """A decision at the end of a conversation, not written down yet."""
        serial = len(self._numbers_by_prefix.get(chain[-1], ()))
        return ReplanRecord(chain[-1], serial, len(chain), before.key if before else None, trigger, at, added, removed)

    # --- facts ---------------------------------------------------------------------------------------------------

    def get_fact(self, name: str) -> Any:
        """What is known under a name, or None."""
        row = self._query("SELECT value FROM facts WHERE name = ?", (name,))
        return msgspec.json.decode(row[0][0]) if row else None

    def find_facts(self, prefix: str) -> dict[str, Any]:
        """All that is known under names that begin so, by the rest of the name."""
        rows = self._query(
            "SELECT name, value FROM facts WHERE name >= ? AND name < ?", (prefix, prefix + "\U0010ffff")
        )
        return {name[len(prefix) :]: msgspec.json.decode(value) for name, value in rows}

    def set_fact(self, name: str, value: Any) -> None:
        """Write a fact down, over what was there."""
        self._execute(
            "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, msgspec.json.encode(value)),
        )

    def save(self, path: str | Path) -> None:
        """Copy all of it into a file, which is there whole or not at all."""
        target = Path(path)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            self._query("VACUUM INTO ?", (str(part),))
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise LedgerError(f"{target}: the ledger cannot be saved here ({error}); name another file") from error

    # --- the database --------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read what others have written since."""
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
        with self._file.translate_errors():
            return self._connect().execute(statement, values).fetchall()

    def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._file.translate_errors():
            self._connect().execute(statement, values)

    def _connect(self) -> "Connection":
        """The connection; a process that was forked off opens its own."""
        if self._connection is None or (self.path is not None and self._process != os.getpid()):
            self._connection = self._file.connect(any_thread=True)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._process = os.getpid()
            self._version = -1
        return self._connection


def _decode_replan(body: bytes, name: str) -> ReplanRecord:
    try:
        told = msgspec.json.decode(body)
        told["trigger"] = RENAMED_TRIGGERS.get(told["trigger"], told["trigger"])
        for edit in told["added"]:
            edit["kind"] = RENAMED_EDIT_KINDS.get(edit["kind"], edit["kind"])
            edit["policy"] = RENAMED_POLICIES.get(edit["policy"], edit["policy"])
        return msgspec.convert(told, ReplanRecord)
    except (KeyError, TypeError, msgspec.MsgspecError, ValueError) as error:
        raise LedgerError(f"{name}: a decision in it cannot be read ({error}); begin a new ledger") from error


def diff_edits(before: EditsByTarget, after: EditsByTarget) -> tuple[tuple[Edit, ...], tuple[Occurrence, ...]]:
    """What was added and what was removed between two sets of edits."""
    added = tuple(
        edit for target, edit in after.items() if target not in before or not is_same_edit(before[target], edit)
    )
    return added, tuple(target for target in before if target not in after)


def is_same_edit(one: Edit, other: Edit) -> bool:
    """Whether two edits make the same of a part, whatever they were found to save."""
    return structs.replace(one, before=0, saved=0) == structs.replace(other, before=0, saved=0)


def index_by_target(edits: Sequence[Edit]) -> EditsByTarget:
    """Edits by the first part that each speaks of."""
    return {edit.target: edit for edit in edits}
