"""Mutation fuzzing of every reader: `python benchmarks/fuzz.py --minutes 3 [--seed 1] [--keep FOLDER]`.

The fuzzer damages excerpts of the samples, the fixtures, and real files if there is data beside the repository, in the
ways that disks, editors, crashes, new releases and attackers do. It reads each file, inspects the whole result, and
encodes it in all four dialects. A `ThresherError` is a valid result. Any other exception, or ten seconds without a
result, is a finding. The exit code is 1 if there is one.

Each case has a number; the same seed and number reproduce it (`--first N` starts there).
"""

import argparse
import faulthandler
import gzip
import json
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple

import thresher
from thresher.model import part_text
from thresher.samples import write_samples
from thresher.transcripts import ReadLimits, format_names
from thresher.transcripts.source import import_zstd

Lines = list[bytes]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures"
KINDS = [
    "claude_code",
    "codex",
    "mini_swe",
    "pi",
    "opencode",
    "cline_roo",
    "openai_tools",
    "gemini_contents",
    "gemini_cli",
    "copilot_cli",
    "goose",
    "aider",
    "swe_agent",
    "openhands",
    "adk",
    "atif",
    "trail_otel",
    "multi_agent",
    "smolagents",
    "bfcl",
    "memory",
    "compression_evals",
]
WIRE = ("openai-chat", "openai-responses", "gemini", "anthropic")
DEPTHS = ((5, 400), (400, 1000), (900, 1000), (5000, 5000))
"""Near Python's recursion limit, a value that can be decoded may be too deep to encode."""
EXCERPT = 40_000
SECONDS = 10
BURST = 40
"""Mutants of one excerpt."""
_DEEP = "@deep@"


class Slow(Exception):
    """A case timed out."""


class Finding(NamedTuple):
    """A finding: the exception, and the innermost line of the package."""

    error: str
    place: str


# Inspection of the result


def exercise(path: Path, limits: ReadLimits | None = None, format: str | None = None) -> None:
    """Read a file and inspect the whole result; a rejected file is fine, any other exception is a finding."""
    try:
        sessions = thresher.read_all(path, limits=limits, format=format)
    except thresher.ThresherError as error:
        _raise_unforeseen(error)
        return
    for session in sessions:
        _touch_session(session)


FORESEEN = (thresher.ThresherError, OSError, sqlite3.Error, RecursionError, UnicodeDecodeError)


def _raise_unforeseen(error: thresher.ThresherError) -> None:
    """Raise the failure of a reader that `read_all` converted into a `ReadError`: it is a finding."""
    cause = error.__cause__
    if cause is not None and not isinstance(cause, FORESEEN):
        raise cause


def _touch_session(session: thresher.Session) -> None:
    _ = [str(problem) for problem in session.problems]
    _ = [message.text for message in session.messages(branches=True)]
    for history in (session.history, *session.segments, *(branch.history for branch in session.branches)):
        _touch_history(history)
    for child in session.children:
        _touch_session(child)


def _touch_history(history: thresher.History) -> None:
    _ = (history.shape, history.occurrences, history.current)
    _ = [part_text(part) for message in history for part in message.parts]
    thresher.count(history)
    for name in WIRE:
        try:
            value = thresher.emit(history, name)
            thresher.parse(value, name)
        except thresher.ThresherError:
            continue


# Mutations of the file


def _lines_of(data: bytes) -> Lines:
    """Return the rows of a JSONL file; a document is one row."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data.split(b"\n")
    return [data]


def _drop(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return lines[:at] + lines[at + random.choice((1, 1, 1, 5)) :]


def _duplicate(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[: at + 1], lines[at], *lines[at + 1 :]]


def _swap(lines: Lines, random: Random) -> Lines:
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    swapped = list(lines)
    swapped[a], swapped[b] = lines[b], lines[a]
    return swapped


def _join(lines: Lines, random: Random) -> Lines:
    """Put two records on one line, as two writers without a lock do."""
    at = random.randrange(len(lines))
    return [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]]


def _truncate_line(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[:at], lines[at][: random.randint(0, len(lines[at]))], *lines[at + 1 :]]


def _truncate_file(lines: Lines, random: Random) -> Lines:
    data = b"\n".join(lines)
    return data[: random.randint(0, len(data))].split(b"\n")


def _splice(lines: Lines, random: Random, new: bytes, over: int = 0) -> Lines:
    data = b"\n".join(lines)
    at = random.randint(0, len(data))
    return (data[:at] + new + data[at + over :]).split(b"\n")


def _flip(lines: Lines, random: Random) -> Lines:
    for _ in range(random.choice((1, 1, 3, 20))):
        lines = _splice(lines, random, bytes([random.randrange(256)]), over=1)
    return lines


def _cut_character(lines: Lines, random: Random) -> Lines:
    """Truncate a multi-byte character."""
    encoded = random.choice("é€漢🌾").encode()
    return _splice(lines, random, encoded[: random.randint(1, len(encoded) - 1)])


def _nuls(lines: Lines, random: Random) -> Lines:
    return _splice(lines, random, b"\0" * random.choice((1, 8, 4096)), over=random.choice((0, 0, 8)))


def _surrogate(lines: Lines, random: Random) -> Lines:
    """Insert a lone surrogate, inside a string if there is one."""
    at = random.randrange(len(lines))
    half = random.choice((rb"\ud83d", rb"\udc00", rb"\ud83dx\ude00"))
    places = [n for n in range(1, len(lines[at])) if lines[at][n - 1 : n] == b'"']
    place = random.choice(places) if places else 0
    return [*lines[:at], lines[at][:place] + half + lines[at][place:], *lines[at + 1 :]]


def _byte_order_mark(lines: Lines, random: Random) -> Lines:
    if random.random() < 0.2:
        return b"\n".join(lines).decode("utf-8", "replace").encode("utf-16").split(b"\n")
    return [b"\xef\xbb\xbf" + lines[0], *lines[1:]]


def _carriage_returns(lines: Lines, random: Random) -> Lines:
    return [line + random.choice((b"\r", b"\r", b"\r\r", b" \r")) for line in lines]


def _blank(lines: Lines, random: Random) -> Lines:
    at = random.randrange(len(lines))
    return [*lines[:at], random.choice((b"", b"   ", b"null", b"[]", b"{}", b"3", b'"x"', b"{")), *lines[at:]]


def _empty(_lines: Lines, random: Random) -> Lines:
    return random.choice(([b""], [b"", b""], [b" "], [b"\0"], [b"\xff\xfe"]))


# Mutations of a row


def _row(change: Callable[[Any, Random, list[Any]], None]) -> Callable[[Lines, Random], Lines]:
    """Turn a change of one decoded row, which may use the others, into a change of the file."""

    def changed(lines: Lines, random: Random) -> Lines:
        at = random.randrange(len(lines))
        box, others = [_decoded(lines[at])], [_decoded(random.choice(lines))]
        try:
            change(box, random, others)
            return [*lines[:at], _encoded(box[0], random), *lines[at + 1 :]]
        except RecursionError:  # an earlier change made the row too deep for Python
            return lines

    return changed


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode("utf-8", "replace")[:200]


def _encoded(value: Any, random: Random) -> bytes:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    while f'"{_DEEP}"' in text:
        depth = random.randint(*random.choice(DEPTHS))
        left, right = random.choice((("[", "]"), ('{"a":', "}"), ('[{"type":"text","content":', "}]")))
        text = text.replace(f'"{_DEEP}"', left * depth + "null" + right * depth, 1)
    return text.encode()


def _walk(value: Any, random: Random) -> tuple[Any, Any]:
    """Return a random location: the container and the key or index in it."""
    found = (value, 0)
    while isinstance(value, dict | list) and value:
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        found = (value, key)
        value = value[key]
        if random.random() < 0.25:
            break
    return found


def _inner(box: Any, random: Random, kind: type) -> Any:
    """Return a random non-empty container of a type, or None."""
    for _ in range(8):
        holder, key = _walk(box, random)
        if isinstance(holder[key], kind) and holder[key]:
            return holder[key]
    return None


NUMBERS = (0, -1, 1.5, 10**30, 2**63, -(2**70), 1e12, -1e18, 1e308, float("nan"), float("inf"), True)
WORDS = ("", "x", "\ud800", "a\0b", "[]", '{"a":', "null", "../../x", "9999-12-31T23:59:59-23:59", "0001-01-01")
SHAPES: tuple[Any, ...] = (None, [], {}, [None], [[]], [{}], {"type": None}, {"type": "text"}, {"": ""})


def _values(random: Random) -> Any:
    return random.choice(random.choice((NUMBERS, WORDS, SHAPES)))


def _replace_value(box: Any, random: Random, _others: list[Any]) -> None:
    holder, key = _walk(box, random)
    holder[key] = _values(random)


def _nest(box: Any, random: Random, _others: list[Any]) -> None:
    holder, key = _walk(box, random)
    holder[key] = _DEEP


def _wrap(box: Any, random: Random, _others: list[Any]) -> None:
    """Wrap a value in a list or an object, or replace it by its JSON text."""
    holder, key = _walk(box, random)
    value = holder[key]
    holder[key] = random.choice(([value], {"value": value}, json.dumps(value), [value, value]))


def _unwrap(box: Any, random: Random, _others: list[Any]) -> None:
    holder, key = _walk(box, random)
    value = holder[key]
    if isinstance(value, dict | list) and value:
        holder[key] = random.choice(list(value.values()) if isinstance(value, dict) else value)


def _rename_key(box: Any, random: Random, _others: list[Any]) -> None:
    found = _inner(box, random, dict)
    if found:
        old, new = random.choice(list(found)), random.choice([*found, "type", "role", "content", "id", "x"])
        found[new] = found.pop(old)


def _delete_key(box: Any, random: Random, _others: list[Any]) -> None:
    found = _inner(box, random, dict)
    if found:
        del found[random.choice(list(found))]


def _shuffle(box: Any, random: Random, _others: list[Any]) -> None:
    """Drop, repeat and shuffle the items of a list."""
    found = _inner(box, random, list)
    if found:
        found[:] = random.choices(found, k=random.randint(0, len(found) + 1))


def _graft(box: Any, random: Random, others: list[Any]) -> None:
    """Replace a value by one from another row."""
    holder, key = _walk(box, random)
    source, there = _walk(others, random)
    holder[key] = source[there]


def _same_field(box: Any, random: Random, others: list[Any]) -> None:
    """Replace a field by that of another row: equal ids, another type or role, a later parent."""
    ours, theirs = box[0], others[0]
    while isinstance(ours, dict) and isinstance(theirs, dict) and (both := sorted({*ours} & {*theirs})):
        key = random.choice(both)
        if not isinstance(ours[key], dict) or random.random() < 0.3:
            ours[key] = theirs[key]
            return
        ours, theirs = ours[key], theirs[key]


def _ids(box: Any, random: Random, others: list[Any]) -> None:
    """Create cycles and duplicates in the tree of records."""
    ours, theirs = box[0], others[0]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        own, parent = ("id", "parentId") if "parentId" in ours else ("uuid", "parentUuid")
        field = random.choice((own, parent, parent))
        ours[field] = random.choice((theirs.get(own), theirs.get(own), ours.get(own), [ours.get(own)]))


FILE = (
    *(_drop, _duplicate, _swap, _join, _blank, _empty, _truncate_line, _truncate_file),
    *(_flip, _cut_character, _nuls, _surrogate, _byte_order_mark, _carriage_returns),
)
ROW = (
    *(_replace_value, _nest, _wrap, _unwrap, _rename_key, _delete_key),
    *(_shuffle, _graft, _same_field, _ids),
)
_CHANGES: list[tuple[str, Callable[[Lines, Random], Lines]]] = [
    *((change.__name__, change) for change in FILE),
    *((change.__name__, _row(change)) for change in ROW * 3),
]


# Compressed files


def _packed(data: bytes, random: Random) -> tuple[str, bytes]:
    """Usually return the file as it is; sometimes compress it and damage the result."""
    choice = random.random()
    if choice > 0.1:
        return "", data
    packed: bytes = gzip.compress(data, 1, mtime=0) if choice > 0.05 else import_zstd().compress(data)
    name = "gzip" if choice > 0.05 else "zstd"
    match random.randrange(4):
        case 0:
            return name, packed
        case 1:
            return f"{name} cut", packed[: random.randint(0, len(packed))]
        case 2:
            return f"{name} flipped", b"".join(_flip([packed], random))
        case _:
            return f"{name} and more", packed + random.choice((b"\0" * 9, b"{}\n", packed[: len(packed) // 2]))


def mutants(data: bytes, random: Random) -> Iterator[tuple[str, bytes]]:
    """Yield damaged copies of a file without end, with the names of the mutations."""
    original = _lines_of(data)
    while True:
        lines, names = original, []
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            name, change = random.choice(_CHANGES)
            lines = change(lines or [b""], random)
            names.append(name.strip("_").replace("_", " "))
        packing, damaged = _packed(b"\n".join(lines), random)
        yield " + ".join([*names, packing] if packing else names), damaged


# The source files


def excerpt(data: bytes, random: Random) -> bytes:
    """Return a small file of the same kind: its start and a random section."""
    lines = _lines_of(data)
    if len(lines) > 1:
        at = random.randrange(len(lines))
        lines = [*lines[:3], *lines[at : at + random.randint(3, 40)]]
    small: Lines = []
    for line in lines:
        small.append(line if len(line) < EXCERPT // 4 else _shorter(line, random))
        if sum(map(len, small)) > EXCERPT:
            break
    return b"\n".join(small)


def _shorter(line: bytes, random: Random) -> bytes:
    try:
        return json.dumps(_cut(json.loads(line), random)).encode()
    except ValueError:
        return line[:EXCERPT]


def _cut(value: Any, random: Random) -> Any:
    if isinstance(value, str):
        return value if len(value) < 1000 else value[:900]
    if isinstance(value, dict):
        return {key: _cut(item, random) for key, item in value.items()}
    if isinstance(value, list):
        at = random.randrange(len(value) + 1)
        selected = value if len(value) < 12 else [*value[:2], *value[at : at + 10]]
        return [_cut(item, random) for item in selected]
    return value


def sources(folder: Path, scratch: Path) -> dict[str, list[Path]]:
    """Return files by kind: real ones if there are any, samples and fixtures, which cover more versions."""
    real = {kind: sorted(path for path in folder.glob(f"{kind}/*") if path.is_file()) for kind in KINDS}
    found = {kind: paths for kind, paths in real.items() if paths}
    for path in write_samples(scratch / "samples"):
        agent = path.relative_to(scratch / "samples").parts[0].strip(".")
        found.setdefault(f"sample of {agent}", []).append(path)
    for path in sorted(FIXTURES.iterdir()):
        if path.is_file() and ".golden." not in path.name:
            found.setdefault(f"fixture of {path.name.partition('.')[0]}", []).append(path)
    return found


def database(script: bytes, path: Path) -> None:
    """Return the database that SQL statements create; damaged statements create none."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        for statement in script.decode("utf-8", "replace").replace("\0", "").split(";\n"):
            with suppress(sqlite3.Error):
                connection.execute(statement)
        connection.commit()


def _load(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


class Case(NamedTuple):
    """A damaged file and its kind."""

    number: int
    kind: str
    mutation: str
    data: bytes
    limits: ReadLimits | None
    format: str | None
    nested: bool
    """True if the file is also read as a sub-agent file of Claude Code."""


def cases(found: dict[str, list[Path]], seed: int, first: int) -> Iterator[Case]:
    """Yield damaged files without end, alternating between the kinds."""
    burst = first // BURST
    while True:
        random = Random(f"{seed}-{burst}")
        kind = list(found)[burst % len(found)]
        data = excerpt(_load(random.choice(found[kind])), random)
        stream = mutants(data, random)
        for number in range(burst * BURST, (burst + 1) * BURST):
            mutation, damaged = next(stream)
            limits = ReadLimits(line=random.choice((10, 500, 5000)), unpacked=random.choice((100, 9000)))
            one = random.random()
            selected = random.choice(format_names()) if one > 0.85 else None
            nested = "claude" in kind and one < 0.15
            case = Case(number, kind, mutation, damaged, limits if 0.2 < one < 0.3 else None, selected, nested)
            if number >= first:
                yield case
        burst += 1


# The run


def _write(case: Case, folder: Path) -> Path:
    path = folder / "3f0c1f6e-0000-4000-8000-000000000001.jsonl"
    if case.data.startswith(b"-- "):
        database(case.data, path)
    else:
        path.write_bytes(case.data)
    inner = path.with_suffix("") / "subagents"
    inner.mkdir(parents=True, exist_ok=True)
    for name in ("agent-a1.jsonl", "agent-a1.meta.json"):
        (inner / name).unlink(missing_ok=True)
        if case.nested:
            (inner / name).write_bytes(case.data[: 200 if "meta" in name else None])
    return path


def _alarm(_number: int, _frame: FrameType | None) -> None:
    raise Slow(f"no answer in {SECONDS} seconds")


def attempt(case: Case, path: Path) -> tuple[Finding, str] | None:
    """Run one case and return the finding with the end of its traceback."""
    timed = hasattr(signal, "setitimer")
    try:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
        exercise(path, case.limits, case.format)
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return _finding(error)
    if timed:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _finding(error: Exception) -> tuple[Finding, str]:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "thresher" in Path(frame.filename).parts[:-1]]
    last = own[-1] if own else frames[-1]
    place = "/".join(Path(last.filename).parts[-2:]) + f":{last.lineno}"
    shown = "".join(traceback.format_list(frames[-4:])) + f"{type(error).__name__}: {str(error)[:200]}"
    return Finding(type(error).__name__, place), shown


def run(found: dict[str, list[Path]], options: argparse.Namespace, folder: Path) -> Counter[Finding]:
    """Run until the time is over, and print each finding once."""
    findings: Counter[Finding] = Counter()
    tried: Counter[str] = Counter()
    end = monotonic() + options.minutes * 60
    for case in cases(found, options.seed, options.first):
        path = _write(case, folder)
        tried[case.kind] += 1
        met = attempt(case, path)
        if met:
            findings[met[0]] += 1
            if findings[met[0]] == 1:
                _report(case, met[0], met[1], options)
        if monotonic() > end or sum(tried.values()) >= options.cases:
            break
    print(f"{sum(tried.values()):,} cases:", ", ".join(f"{kind} {n:,}" for kind, n in tried.items()))
    return findings


def _report(case: Case, finding: Finding, shown: str, options: argparse.Namespace) -> None:
    how = f", read as {case.format}" if case.format else ""
    print(f"\n{finding.error} at {finding.place}")
    print(f"  --seed {options.seed} --first {case.number}, {case.kind}{how}: {case.mutation}")
    print("  " + shown.replace("\n", "\n  "), flush=True)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{options.seed}-{case.number}").write_bytes(case.data)


def main() -> int:
    """Parse the arguments, run and print a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=float, default=float("inf"), help="stop after this many cases")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--keep", type=Path, help="folder for the files that cause findings")
    options = parser.parse_args()
    faulthandler.enable()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _alarm)
    with tempfile.TemporaryDirectory() as scratch:
        found = sources(options.data, Path(scratch))
        findings = run(found, options, Path(scratch))
    for finding, times in findings.most_common():
        print(f"{times:6,} × {finding.error} at {finding.place}")
    print("no findings" if not findings else f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
