"""Stress test of memory: `python benchmarks/soak_memory.py [--kills 200] [--seed 1] [--only kills disk …]`.

- `kills`: a sync (sometimes a forget, or a sync that rebuilds its index) dies at a random moment, while files grow,
  are rewritten, vanish and return. After each kill, the archive is intact, a search answers, and every session
  equals its previous or its current file. After about forty kills, one sync runs to its end, and the result equals a
  fresh build: sessions, messages, index documents and search results.
- `disk`: a full disk, by a limit on file size and by a small file system. The error message is clear, nothing is
  lost, and the next sync continues.
- `together`: three syncs, two processes that search in a loop, and files that change.
- `queries` and `sources`: hostile queries and source files.

Exits with 1 if a check fails.
"""

import argparse
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any, cast

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "memory")]

from chats import line, talk  # noqa: E402 - the tests' own
from search_corpus import write_corpus  # noqa: E402 - beside this file
from tantivy import Query as IndexQuery  # noqa: E402

from thresher.errors import OptionError, UnknownFormatError  # noqa: E402
from thresher.memory import Memory  # noqa: E402
from thresher.memory.archive.block_codec import encode_value, flatten_messages  # noqa: E402
from thresher.memory.archive.protocol import SessionFilter  # noqa: E402
from thresher.memory.records import ArchivedSession  # noqa: E402
from thresher.memory.search import rank  # noqa: E402
from thresher.memory.search.query import parse_query  # noqa: E402
from thresher.memory.search.query_compiler import compile_query  # noqa: E402
from thresher.memory.session_store import MEMORY_FOLDER, SessionStore  # noqa: E402
from thresher.model import Message, Session  # noqa: E402
from thresher.model.parts import part_text  # noqa: E402
from thresher.samples import write_samples  # noqa: E402
from thresher.store.errors import StoreError  # noqa: E402
from thresher.transcripts import read_all  # noqa: E402

LIFE = 40
"""Number of kills per memory."""
PATIENCE = 10.0
"""Time limit for one query in seconds."""
LONG = 120.0
"""Time limit for one sync in seconds."""
CHILD = """
import resource, sys
from thresher.cli import forget, main, search, sync
from thresher.memory.archive.sqlite import SqliteArchive
from thresher.memory.session_store import SessionStore
from thresher.memory.ingest import workers
pace = sys.argv.pop(1)
if pace != "calm":
    SqliteArchive.__init__.__kwdefaults__["batch_seconds"] = 0.02
    SessionStore.__init__.__kwdefaults__["commit_sizes"] = (25_000_000, 400_000)
if pace == "staffed":
    workers.MUCH_BYTES = workers.FEW_FILES = 0
if limit := int(sys.argv.pop(1)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("begun", flush=True)
main()
"""
"""The command line. With `hurried`, it commits far more often, to have more moments to die; with `staffed`, it also
uses workers."""
SEARCHING = """
import sys
from pathlib import Path
from thresher.memory import Memory  # noqa: E402
memory, number = Memory(home=sys.argv[1], sources=[sys.argv[2]], discover=False), 0
while not Path(sys.argv[3]).exists():
    memory.search(sys.argv[4 + number % (len(sys.argv) - 4)], sync=number % 5 == 0)
    number += 1
print(number)
"""
PACES = ("hurried", "hurried", "staffed", "calm")
LARGE = 4_000_000
"""Maximum size of a file, so that no file dominates the sync."""
Said = tuple[bytes, ...]
Name = tuple[str, str]


class FaultError(Exception):
    """A check failed."""


def hold(what: str, is_so: object, told: object = "") -> None:
    if not is_so:
        raise FaultError(f"{what}: {told}"[:3000])


# --- what is remembered ------------------------------------------------------------------------------------------


def said(messages: Sequence[Message]) -> Said:
    return tuple(blake2b(encode_value([message]), digest_size=8).digest() for message in messages)


def in_file(path: Path) -> dict[Name, Said]:
    """Return every session of a file as the archive should store it."""
    line = list(read_all(path))
    found: dict[Name, Said] = {}
    while line:
        session: Session = line.pop()
        found[session.id, session.file] = said(flatten_messages(session))
        line += session.children
    return found


def current(store: SessionStore) -> list[ArchivedSession]:
    """Return sessions in their current version, without older versions that a file lost."""
    return [row.session for row in store.archive.find_sessions(SessionFilter()) if row.ordinal >= 0]


def remembered(home: Path) -> dict[Name, Said]:
    store = SessionStore(home / MEMORY_FOLDER)
    return {(one.id, one.file): said(store.messages(one.key)) for one in current(store)} if store.exists() else {}


def ever_said(home: Path) -> dict[str, set[int]]:
    """Return everything archived of each session, in any version."""
    store = SessionStore(home / MEMORY_FOLDER)
    found: dict[str, set[int]] = {}
    for one in store.find_sessions() if store.exists() else ():
        parts = ((message.role, part_text(part)) for message in store.messages(one.key) for part in message.parts)
        found.setdefault(one.id, set()).update(map(hash, parts))
    return found


def check_whole(home: Path) -> None:
    """Check that the archive is intact and a search answers, even if everything else is lost."""
    archive = home / "memory" / "archive.sqlite3"
    if archive.exists():
        with sqlite3.connect(archive) as connection:
            hold("integrity", connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
        connection.close()
    memory = Memory(home=home, discover=False)
    for words in ("the test fails", "commit fix branch"):
        memory.search(words, sync=False, sessions=100)


def state_of(home: Path) -> dict[str, Any]:
    """Return everything that must be equal in two memories of the same files."""
    store = SessionStore(home / MEMORY_FOLDER)
    index = store.open_index()
    hold("there is an index", index)
    assert index is not None
    counts = index.count_by_field(IndexQuery.all_query())
    hold("the index has entries of known sessions only", counts.keys() <= {one.key for one in store.find_sessions()})
    return {
        f"{one.id} {one.file}": (
            said(store.messages(one.key)),
            counts.get(one.key, 0),
            (one.root, one.gone, one.title, one.messages, one.started, one.ended, one.subagent),
        )
        for one in current(store)
    }


def answers(home: Path, queries: Sequence[str], *, scores: bool) -> list[Any]:
    """Return the matching sessions with counts, and scores unless deleted documents still affect them."""
    store = SessionStore(home / MEMORY_FOLDER)
    names = {one.key: (one.id, one.file) for one in current(store)}
    found = []
    for query in queries:
        asked = compile_query(store, parse_query(query), only=names)
        assert asked is not None
        matches, _ = asked.message_matches(asked.match_counts())
        worth = rank.score_sessions(asked, matches, asked.best_matches(rank.MAX_RANKED_TEXTS)) if scores else {}
        told = [(*names[key], many, round(worth.get(key, 0.0), 3)) for key, many in matches.items()]
        found.append((query, sorted(told)))
    return found


def without_versions(home: Path) -> None:
    """Forget older versions, which a fresh build does not have."""
    store = SessionStore(home / MEMORY_FOLDER)
    with store.write_lease():
        rows = store.archive.find_sessions(SessionFilter())
        store.forget([row.key for row in rows if row.ordinal < 0], for_good=False)


def check_same(what: str, one: Any, other: Any) -> None:
    if isinstance(one, dict) and one != other:
        differ = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
        hold(what, not differ, [(key, str(one.get(key))[-300:], str(other.get(key))[-300:]) for key in differ[:3]])
    if one != other:
        hold(what, False, [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]][:2])


# --- files that change -------------------------------------------------------------------------------------------


class World:
    """A folder of sessions that changes constantly, with the recent versions of each file."""

    def __init__(self, place: Path, seed: int, write: Callable[[Path], list[str]]) -> None:
        """`write` creates the files and returns words to search for."""
        self.random = Random(seed)
        self.folder, self.aside = place / "files", place / "aside"
        self.folder.mkdir(parents=True)
        self.aside.mkdir()
        self.queries = [*write(self.folder), "commit fix", "error line", "topic7 topic70", "topic700"][:50]
        self.files = sorted(self.folder.rglob("*.jsonl"))
        write_samples(self.folder / "samples")
        self.versions: dict[Name, set[Said]] = {}
        self.changed: set[Path] = set()

    def every(self) -> dict[Name, Said]:
        found: dict[Name, Said] = {}
        for path in sorted(self.folder.rglob("*.json*")):
            with suppress(UnknownFormatError):
                found |= in_file(path)
        return found

    def rest(self) -> None:
        """Discard previous versions."""
        self.versions, self.changed = {}, set()

    def change(self) -> str:
        path = self.random.choice(self.files)
        if not path.exists():
            shutil.copy2(self.aside / path.name, path)
            os.utime(path)
            return "back"
        self._note(path)  # it may be newer than the archived version
        what = self.random.choices(("grow", "rewind", "reword", "touch"), (6, 2, 2, 1))[0]
        lines = path.read_bytes().splitlines(keepends=True)
        if what == "grow":
            with path.open("ab", buffering=0) as file:
                file.write(self._turns(path.stem))
        elif what == "rewind" and len(lines) > 20:
            self._replace(path, b"".join(lines[: self.random.randrange(10, len(lines))]))
        elif what == "reword":
            at = self.random.randrange(len(lines))
            lines[at] = lines[at].replace(b" the ", b" another ")
            self._replace(path, b"".join(lines))
        os.utime(path)
        self.changed.add(path)
        self._note(path)
        return what

    def _note(self, path: Path) -> None:
        for name, its in in_file(path).items():
            self.versions.setdefault(name, set()).add(its)

    def _turns(self, session: str) -> bytes:
        first = self.random.randrange(1_000_000)
        words = [f"topic{self.random.randrange(2_000)}" for _ in range(90)]  # equal texts would have no defined order
        both = ("user", "assistant")
        rows = [
            line(session, first + n, both[n % 2], " ".join(words[n:])) for n in range(2 * self.random.randrange(1, 40))
        ]
        return b"".join(rows)

    def _replace(self, path: Path, data: bytes) -> None:
        new = self.aside / "new"
        new.write_bytes(data)
        new.replace(path)

    def remove(self, kept: dict[Name, Said]) -> str:
        """Delete a file whose last version is archived."""
        path = self.random.choice(self.files)
        if (
            not path.exists()
            or path in self.changed
            or any(kept.get(name) != its for name, its in in_file(path).items())
        ):
            return self.change()
        shutil.copy2(path, self.aside / path.name)
        path.unlink()
        return "gone"

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the deleted files, then delete them again."""
        absent = [path for path in self.files if not path.exists()]
        for path in absent:
            shutil.copy2(self.aside / path.name, path)
        yield
        for path in absent:
            path.unlink()


def corpus(folder: Path, messages: int, seed: int) -> list[str]:
    needles = write_corpus(folder, messages, seed).needles
    for path in sorted(folder.rglob("*.jsonl")):
        if path.stat().st_size > LARGE:
            path.unlink()
    both = [f"{one} {other}" for one in ("test", "file", "read") for other in ("call", "name", "run")]
    return [*both, *(needle for needle, _ in needles)][:46]


# --- processes ---------------------------------------------------------------------------------------------------


def started(home: Path, *arguments: str | Path, pace: str = "hurried", limit: int = 0) -> "subprocess.Popen[str]":
    """Return the command line as a preloaded process."""

    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, pace, str(limit), *map(str, arguments)],
        env=os.environ | {"THRESHER_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    if process.stdout.readline() != "begun\n":
        raise FaultError(f"it does not start: {process.communicate()[1][-2500:]}")
    return process


def ended(process: "subprocess.Popen[str]", seconds: float = LONG) -> tuple[int, str, str]:
    """Return the exit code and output of a process, which must end in time and without a traceback."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        asked = [*cast(list[str], process.args)][5:]
        raise FaultError(f"still at work after {seconds:g} s: {asked!s:.300}") from None
    hold("no traceback", "Traceback" not in err and "panicked" not in err, err[-2500:])
    return process.returncode, out, err


def sync_arguments(world: World) -> tuple[str | Path, ...]:
    return ("sync", "--no-discover", "--source", world.folder)


def synced(home: Path, world: World) -> None:
    code, _, err = ended(started(home, *sync_arguments(world), pace="calm"))
    hold("a sync is done", code == 0, err)


# --- kills -------------------------------------------------------------------------------------------------------


class Life:
    """A memory under test."""

    def __init__(self, home: Path, world: World, expected: dict[str, float]) -> None:
        self.home, self.world, self.random = home, world, world.random
        self.expected = expected
        self.counts: Counter[str] = Counter()
        self.forgotten: set[str] = set()

    def kill(self) -> None:
        """Kill one process, and check what remains."""
        self.world.rest()
        before, words = remembered(self.home), ever_said(self.home)
        for _ in range(self.random.randrange(8)):
            self.counts[f"file: {self._change(before)}"] += 1
        kind, arguments = self._work(before)
        process = started(self.home, *arguments, pace=self.random.choice(PACES))
        began = monotonic()
        until = began + self.random.uniform(0, self.expected[kind])
        while monotonic() < until and process.poll() is None:
            sleep(min(self.random.uniform(0, 0.2), max(0.0, until - monotonic())))
            if self.random.random() < 0.3:
                self.counts[f"file, meanwhile: {self._change(before)}"] += 1
        if process.poll() is None:
            process.kill()
            ended(process)  # kill its workers too, or they would continue
            self.counts[f"killed: {kind}"] += 1
            self.expected[kind] *= 1.04
        else:
            code, _, err = ended(process)
            hold("it ends well", code == 0, err)
            self.counts[f"ended before: {kind}"] += 1
            self.expected[kind] = max(0.1, 0.9 * (monotonic() - began))
        self._check(before, arguments[1] if kind == "forget" else "")
        now = ever_said(self.home)
        lost = [id for id, its in words.items() if id not in self.forgotten and not its <= now.get(id, set())]
        hold("no word is lost", not lost, lost)

    def _change(self, before: dict[Name, Said]) -> str:
        return self.world.remove(before) if self.random.random() < 0.1 else self.world.change()

    def _work(self, before: dict[Name, Said]) -> tuple[str, tuple[Any, ...]]:
        chance = self.random.random()
        ours = [id for id, file in before if Path(file) in self.world.files]
        if chance < 0.08 and len(ours) > 5:
            return "forget", ("forget", self.random.choice(sorted(ours)), "--yes")
        index = self.home / "memory" / "index"
        if chance < 0.2 and index.exists():
            self._damage(index)
            return "build", sync_arguments(self.world)
        return ("sync" if before else "build"), sync_arguments(self.world)

    def _damage(self, index: Path) -> None:
        files = sorted(index.iterdir())
        if self.random.random() < 0.5 or not files:
            shutil.rmtree(index)
        elif (victim := self.random.choice(files)).exists():
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])

    def _check(self, before: dict[Name, Said], forgotten: str) -> None:
        check_whole(self.home)
        now = remembered(self.home)
        hold("what is forgotten stays so", not self.forgotten & {id for id, _ in now})
        for name, its in before.items():
            if name[0] == forgotten and name not in now:
                self.forgotten.add(name[0])
                continue
            hold("nothing is lost", name in now, name)
            is_known = now[name] == its or now[name] in self.world.versions.get(name, ())
            there = Path(name[1]).exists() and in_file(Path(name[1])).get(name)
            hold("as it was, or as its file says", is_known or now[name] == there, (name, len(its), len(now[name])))

    def end(self, place: Path) -> None:
        """Run one complete sync and compare with a fresh build."""
        synced(self.home, self.world)
        fresh = Memory(home=place, sources=[self.world.folder], discover=False)
        with self.world.restored():
            fresh.sync()
        fresh.sync()
        if self.forgotten:
            fresh.forget(ids=sorted(self.forgotten))
        check_equal(self.home, place, self.world)


def check_equal(home: Path, fresh: Path, world: World) -> None:
    """Check that two memories have the same content and answers; with a new index, even the same scores."""
    check_whole(home)
    check_same("the same sessions, messages and entries", state_of(home), state_of(fresh))
    check_same(
        "the same answers", answers(home, world.queries, scores=False), answers(fresh, world.queries, scores=False)
    )
    without_versions(home)
    for place in (home, fresh):
        shutil.rmtree(place / "memory" / "index")
        Memory(home=place, sources=[world.folder], discover=False).sync()
    check_same("the same index, made anew", state_of(home), state_of(fresh))
    check_same("the same scores", answers(home, world.queries, scores=True), answers(fresh, world.queries, scores=True))


def kills(place: Path, world: World, asked: argparse.Namespace) -> Counter[str]:
    counts: Counter[str] = Counter()
    expected = {"sync": 1.0, "build": 3.0, "forget": 3.0}
    for first in range(0, asked.kills, LIFE):
        life = Life(place / f"home{first}", world, expected)
        for number in range(first, min(first + LIFE, asked.kills)):
            life.kill()
            if number % 10 == 9:
                print(f"{number + 1:>9,}  of {asked.kills:,} kills, {len(life.forgotten)} forgotten", flush=True)
        life.end(place / f"fresh{first}")
        counts += life.counts + Counter({"forgotten": len(life.forgotten), "equal to a fresh build": 1})
    return counts


# --- no room -----------------------------------------------------------------------------------------------------


def disk(place: Path, world: World, _asked: argparse.Namespace) -> Counter[str]:
    counts: Counter[str] = Counter()
    fresh = place / "fresh"
    Memory(home=fresh, sources=[world.folder], discover=False).sync()
    for limit in (1_000, 20_000, 200_000, 700_000, 1_500_000, 3_000_000):
        home = place / f"limit{limit}"
        counts[without_room(home, world, limit)] += 1
        check_kept(home, world)
        synced(home, world)
        check_equal(home, fresh, world)
    with mounted(place / "small") as resize:
        if resize is None:
            print("           no right to mount: small file systems are skipped")
            return counts
        for megabytes in (1, 2, 4, 6, 8):
            resize(megabytes)
            home = place / "small" / "home"
            counts[without_room(home, world)] += 1
            resize(100)
            check_kept(home, world)
            synced(home, world)
            counts[_filled(home, world)] += 1
            fresh = place / f"fresh{megabytes}"
            Memory(home=fresh, sources=[world.folder], discover=False).sync()
            check_equal(home, fresh, world)
            shutil.rmtree(home)
    return counts


def check_kept(home: Path, world: World) -> None:
    """Check that everything that fit is intact."""
    check_whole(home)
    every = world.every()
    hold("what is kept is whole", all(every[name] == its for name, its in remembered(home).items()))


def without_room(home: Path, world: World, limit: int = 0) -> str:
    code, _, err = ended(started(home, *sync_arguments(world), limit=limit))
    if code == 0:
        return "there was room"
    hold("a clear sentence", code == 1 and err.startswith("thresher: ") and " free " in err, (code, err))
    hold("it says where", str(home) in err, err)
    try:
        Memory(home=home, discover=False).search("commit fix", sync=False)
    except StoreError as error:  # SQLite cannot read without a few free kilobytes
        hold("a search says so, too", " free " in str(error), error)
        return "no room for a search either, and said so"
    return "no room, and said so"


def _filled(home: Path, world: World) -> str:
    """Fill the disk under an intact memory."""
    world.rest()
    before = remembered(home)
    filler = home.parent / "filler"
    fill(filler)
    for _ in range(12):
        world.change()
    told = without_room(home, world)
    filler.unlink()
    check_whole(home)
    kept = remembered(home)
    is_kept = all(kept.get(name) in {its, *world.versions.get(name, ())} for name, its in before.items())
    hold("all that was kept is kept, or newer", is_kept)
    synced(home, world)
    return f"filled by others: {told}"


def fill(path: Path) -> None:
    """Use all remaining space."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536):
                pass
        except OSError as error:
            hold("the disk is full", error.errno == errno.ENOSPC, error)


@contextmanager
def mounted(place: Path) -> Iterator[Callable[[int], None] | None]:
    """Create a small file system; also return the command that enlarges it."""
    place.mkdir()

    def mount(*options: str) -> bool:
        return subprocess.run(["mount", *options, str(place)], capture_output=True, check=False).returncode == 0

    if shutil.which("mount") is None or not mount("-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        yield None
        return
    try:
        yield lambda megabytes: hold("the disk has another size", mount("-o", f"remount,size={megabytes}m"))
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


# --- together ----------------------------------------------------------------------------------------------------


def together(place: Path, world: World, _asked: argparse.Namespace) -> Counter[str]:
    home, stop = place / "home", place / "stop"
    counts: Counter[str] = Counter()
    searching = [sys.executable, "-c", SEARCHING, str(home), str(world.folder), str(stop), *world.queries[:8]]
    searchers = [
        subprocess.Popen(searching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for wave in range(6):
        syncs = [started(home, *sync_arguments(world), pace="calm" if wave % 3 == 2 else "hurried") for _ in range(3)]
        while any(process.poll() is None for process in syncs):
            if wave < 5:
                counts[f"file, meanwhile: {world.change()}"] += 1
            sleep(0.05)
        for process in syncs:
            code, _, err = ended(process)
            told = err.replace("another sync is at work; waiting for it\n", "")
            hold("a sync beside others", code == 0 and not told, (code, told))
            counts["syncs"] += 1
            counts["waited"] += told != err
    stop.touch()
    for process in searchers:
        code, out, err = ended(process)
        hold("a search beside syncs", code == 0 and not err, (code, err))
        counts["searches"] += int(out)
    synced(home, world)
    fresh = place / "fresh"
    Memory(home=fresh, sources=[world.folder], discover=False).sync()
    check_equal(home, fresh, world)
    return counts


# --- hostile queries ---------------------------------------------------------------------------------------------

SPOKEN = """
"|" "|" " "|"the|the"|"the test|' OR 1=1 --|'; DROP TABLE sessions; --|" OR ""="|Robert'); DELETE FROM blocks;--|%|?1|_
AND|OR|NOT|the AND|AND the|the NOT test|NEAR(the test)|NEAR/3|the ^test|said:the|file:*|session:[1 TO 9]|+the -test|a~2
the^1000000|"the test"~3|*|**|the*|*the|t*e|* * *|(|)|(((the)))|()|[the TO test]|{a TO z}|/the.*/|\\|\\"|\\x00|!!|&&|<>
#$%|...|-|--|---|-the|:|::|a|1|0x00|../../etc/passwd|$(ls)|`ls`|${HOME}|%s%n|{0}|{{}}|<script>|🦀|🦀\u200d🦀|the\ttest
שלום עולם|\u202ethe|the\u200btest|naïve|NAÏVE|日本語|日|b日b|\ufb01le|İstanbul|ß|\u0301\u0301
"""
LONG_QUERIES = (
    "the" * 33_000,
    "the " * 25_000,
    " ".join(f"word{number}" for number in range(12_000)),
    '"' + "the " * 25_000 + '"',
    '"' * 100_000,
    "*" * 100_000,
    "(" * 50_000 + "the" + ")" * 50_000,
    " ".join(f'"w{number}"' for number in range(10_000)),
    " ".join(f"w{number}*" for number in range(10_000)),
    "日本" * 16_000,
    "e" + "\u0301" * 40_000,
)
UNSPEAKABLE = ("\0", "the\0test", "\ud800", "the \udcff test", "\x1b[31m the", "\x07\x08", "\n\n", " ", "", "\ufffe")
PATTERNS = (
    "(a+)+$", "(a|aa)+$", "(.*)*x$", "(.*a){20}", r"(\w+\s?)*$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?:a?){50}a{50}",
    "(", "[", "*", "a{1000000000}", "(" * 5_000 + ")" * 5_000, "(?P<x>a)(?P<x>b)", r"\p{Nope}", "", ".*", "\0", r"\1",
    "(?<=a+)b", "a" * 100_000, "(?i)THE", "(?R)", "(a(?R)?b)", "[\\", "x*" * 2_000, "(x+x+)+y", "\ud800",
)  # fmt: skip


def spoken() -> list[str]:
    return SPOKEN.strip().replace("\n", "|").split("|")


def queries(place: Path, world: World, _asked: argparse.Namespace) -> Counter[str]:
    home = place / "home"
    (world.folder / "hostile.jsonl").write_bytes(
        line(str(uuid.UUID(int=7)), 0, "user", "a" * 5_000 + "!")
        + line(str(uuid.UUID(int=7)), 1, "assistant", "x" * 3_000 + " " + "word " * 2_000)
    )
    synced(home, world)
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for ask in _questions(home):
        try:
            counts[ask()] += 1
        except FaultError as error:  # each is reported, not only the first
            faults.append(str(error))
            print(f"           {error}", flush=True)
    hold("every query is answered or refused", not faults, f"{len(faults)} are not")
    return counts


def _questions(home: Path) -> Iterator[Callable[[], str]]:
    every = [*spoken(), *LONG_QUERIES, *UNSPEAKABLE]
    options = ("require", "exclude", "file", "project", "current", "agent", "branch")
    for query, option in zip(every, cycle(options), strict=False):
        yield partial(_asked_within, home, ["words", query])
        yield partial(_asked_within, home, [option, query])
        if _is_argument(query) and query.strip():
            yield partial(_commanded, home, "--", query)
    for pattern in PATTERNS:
        yield partial(_asked_within, home, ["regex", pattern])
        if _is_argument(pattern):
            yield partial(_commanded, home, f"--regex={pattern}")


def _asked_within(home: Path, asked: list[str]) -> str:
    """Run queries in a separate process, which can be stopped at any time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        os.write(write, ask(home, *asked).encode("utf-8", "replace")[:4000])
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as told:
        text = told.read().decode()
    hold("an answer in time", status == 0, (asked[0], asked[1][:80], status))
    hold("an answer or a refusal", not text.startswith("Traceback"), (asked[0], asked[1][:80], text))
    return f"asked: {text}"


def ask(home: Path, name: str, value: str) -> str:
    try:
        memory = Memory(home=home, discover=False)
        options: dict[str, Any] = {} if name == "words" else {name: value}
        found = memory.search(value if name == "words" else "the test", sync=False, **options)
    except OptionError:
        return "refused"
    except BaseException:  # noqa: BLE001 - each is a finding
        return traceback.format_exc(limit=-5)
    return "found" if found.sessions else "nothing"


def _is_argument(text: str) -> bool:
    """Return whether the system can pass the text to a process."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _commanded(home: Path, *arguments: str) -> str:
    code, _, err = ended(started(home, "search", "--no-sync", *arguments), PATIENCE)
    hold("an exit code", code in (0, 1, 2), (code, arguments[-1][:80], err[-500:]))
    return f"command: exit {code}"


# --- hostile sources ---------------------------------------------------------------------------------------------


def torn(path: Path) -> None:
    path.write_bytes(talk(path.stem, 4) + '{"type":"user","message":{"content":"é'.encode()[:-1])


def huge_line(path: Path) -> None:
    path.write_bytes(b"x" * 100_000_000)


def huge_record(path: Path) -> None:
    path.write_bytes(talk(path.stem, 2) + line(path.stem, 2, "user", "x" * 100_000_000) + talk(path.stem, 2, 3))


def huge_tail(path: Path) -> None:
    path.write_bytes(talk(path.stem, 2) + line(path.stem, 2, "user", "x" * 100_000_000)[:-3])


def loop(path: Path) -> None:
    path.symlink_to(path)
    (path.parent / "around").symlink_to(path.parent)
    (path.parent / "broken.jsonl").symlink_to(path.parent / "nowhere")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def locked(path: Path) -> None:
    path.write_bytes(talk(path.stem, 2))
    path.chmod(0)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "within.jsonl").write_bytes(talk(str(uuid.UUID(int=8)), 3))


def future(path: Path) -> None:
    path.write_bytes(talk(path.stem, 2))
    os.utime(path, (4_000_000_000, 4_000_000_000))


def twins(path: Path) -> None:
    path.write_bytes(talk(path.stem, 3))
    (path.parent / "twin.jsonl").write_bytes(talk(path.stem, 5))


def nothing(path: Path) -> None:
    path.touch()
    (path.parent / "zeros.jsonl").write_bytes(b"\0" * 1_000_000)
    (path.parent / "noise.jsonl").write_bytes(Random(1).randbytes(1_000_000))
    (path.parent / "deep.jsonl").write_bytes(b'{"a":' * 100_000)


HOSTILE: tuple[Callable[[Path], None], ...] = (
    torn, huge_line, huge_record, huge_tail, loop, pipe, device, locked, folder, future, twins, nothing,
)  # fmt: skip


def sources(place: Path, _world: World, _asked: argparse.Namespace) -> Counter[str]:
    counts: Counter[str] = Counter()
    for make in HOSTILE:
        began = monotonic()
        codes = check_source(place, make)
        print(f"           {make.__name__:12} exits {codes} in {monotonic() - began:.1f} s")
        counts.update(f"exit {code}" for code in codes)
    _growing(place, counts)
    return counts


def check_source(place: Path, make: Callable[[Path], None]) -> list[int]:
    """Sync a hostile file next to a valid one, by folder and by name.

    The valid one must be archived exactly once.
    """
    where = place / make.__name__
    where.mkdir()
    hostile = where / f"{uuid.UUID(int=1)}.jsonl"
    make(hostile)
    (where / "good.jsonl").write_bytes(talk(str(uuid.UUID(int=2)), 6))
    codes = []
    for named in ([where], [where, hostile]):
        home = place / f"home-{make.__name__}{len(named)}"
        there = [path for path in named if path.exists()]
        code, _, err = ended(started(home, "sync", "--no-discover", *(f"--source={path}" for path in there)), 60)
        hold("done, or a sentence", code == 0 or (code == 1 and err.startswith("thresher: ")), (code, err))
        hold("the good one is found", Memory(home=home).search("topic5", sync=False).sessions, make.__name__)
        again = Memory(home=home, sources=there, discover=False).sync()
        hold("nothing is read twice", again.new + again.grown + again.rewritten == 0, (make.__name__, again))
        codes.append(code)
    return codes


def _growing(place: Path, counts: Counter[str]) -> None:
    """Sync a file that grows constantly; the last sync has all of it, once."""
    where, home = place / "growing", place / "home-growing"
    where.mkdir()
    session = str(uuid.UUID(int=3))
    path = where / f"{session}.jsonl"
    written = 0
    with path.open("ab", buffering=0) as file:
        for _ in range(4):
            process = started(home, "sync", "--no-discover", f"--source={where}")
            while process.poll() is None:
                data = talk(session, 20, written)
                file.write(data[: len(data) // 2])
                sleep(0.001)
                file.write(data[len(data) // 2 :])
                written += 20
            ended(process)
            counts["while it grew"] += 1
    Memory(home=home, sources=[where], discover=False).sync()
    check_same("all of a file that grew", remembered(home), in_file(path))


# --- all of them -------------------------------------------------------------------------------------------------

TRIALS: dict[str, Callable[[Path, World, argparse.Namespace], Counter[str]]] = {
    "sources": sources, "queries": queries, "together": together, "disk": disk, "kills": kills,
}  # fmt: skip


def main() -> int:
    """Run the trials and report the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--messages", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[*TRIALS], default=[*TRIALS])
    parser.add_argument("--keep", action="store_true", help="leave the files of a trial that failed")
    asked = parser.parse_args()
    faults = 0
    write = partial(corpus, messages=asked.messages, seed=asked.seed)
    for name in asked.only:
        began = monotonic()
        print(name, flush=True)
        place = Path(tempfile.mkdtemp(prefix=f"thresher-soak-{name}-"))
        try:
            counts = TRIALS[name](place, World(place / "world", asked.seed, write), asked)
        except Exception:  # noqa: BLE001 - each is a finding
            faults += 1
            traceback.print_exc()
            print(f"           left in {place}" if asked.keep else "", file=sys.stderr)
            if asked.keep:
                continue
        else:
            for what, count in sorted(counts.items()):
                print(f"{count:>9,}  {what}")
        print(f"{monotonic() - began:>9,.0f}  seconds", flush=True)
        shutil.rmtree(place)
    print(f"{faults:>9,}  faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
