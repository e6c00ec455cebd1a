"""Speed of reading sessions, compared with other tools: `python benchmarks/read.py [--data FOLDER] [--json]`.

All readers get the same uncompressed files in the same run, on one core, in turns. The best round counts, in CPU time.
Every reader returns everything at once:
- json.loads: every line decoded into dicts and lists, without further processing
- Thresher: `read_all`: messages, tree, branches, sub-agents, problems
- claude-code-log (extra `bench`): `load_transcript` returns a flat list of entries without a tree or paired calls; with
  its session tree and its messages, results paired with calls, it does about the same work as Thresher

Memory is the peak that `read` adds to a new process while the session is in use.
"""

import argparse
import contextlib
import gzip
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import NamedTuple

import thresher
from thresher.samples import write_samples

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "claude_code"
OTHERS = (
    "codex",
    "pi",
    "mini_swe",
    "opencode",
    "gemini_cli",
    "cline_roo",
    "copilot_cli",
    "swe_agent",
    "openhands",
    "atif",
    "trail_otel",
    "multi_agent",
    "smolagents",
)
PEER_ENTRIES = "claude-code-log, entries"
PEER_MESSAGES = "claude-code-log, messages"
MEGABYTE = 1_000_000
LARGEST = 5
JOINED = 40 * MEGABYTE
MADE = 20 * MEGABYTE
Reader = Callable[[Path], object]


class Speed(NamedTuple):
    """Best round of a reader over some files."""

    files: str
    reader: str
    megabytes: float
    seconds: float

    @property
    def rate(self) -> float:
        """Megabytes per second."""
        return self.megabytes / self.seconds


class Memory(NamedTuple):
    """Memory for one file, during and after reading."""

    file: str
    megabytes: float
    peak: float
    """Megabytes in addition to the process before."""

    @property
    def multiple(self) -> float:
        """Peak as a multiple of the file size."""
        return self.peak / self.megabytes


# The readers


def plain_rows(path: Path) -> object:
    """Decode a file of JSON rows without incomplete ones, or a JSON document."""
    with path.open("rb") as file:
        if path.suffix != ".jsonl":
            return json.loads(file.read())
        rows: list[object] = []
        for line in file:
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows


def peers() -> dict[str, Reader]:
    """Return the other reader of Claude Code's files if it is installed: its entries, and its messages."""
    try:
        converter, renderer = import_module("claude_code_log.converter"), import_module("claude_code_log.renderer")
    except ImportError:
        return {}

    def entries(path: Path) -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return converter.load_transcript(path, silent=True)

    def messages(path: Path) -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            found = converter.deduplicate_messages(converter.load_transcript(path, silent=True))
            return renderer.generate_template_messages(found, converter.build_dag_from_entries(found))

    return {PEER_ENTRIES: entries, PEER_MESSAGES: messages}


def race(what: str, files: Sequence[Path], readers: dict[str, Reader], rounds: int) -> list[Speed]:
    """Run every reader over all files, in turns and in several rounds."""
    best = dict.fromkeys(readers, float("inf"))
    for _ in range(rounds):
        for name, read in readers.items():
            start = process_time()
            for path in files:
                read(path)
            best[name] = min(best[name], process_time() - start)
    return [Speed(what, name, megabytes(files), seconds) for name, seconds in best.items()]


def megabytes(files: Sequence[Path]) -> float:
    """Total size of the files."""
    return sum(path.stat().st_size for path in files) / MEGABYTE


# The files


def unpacked(folder: Path, target: Path) -> list[Path]:
    """Return every session of a folder as an uncompressed file."""
    target.mkdir(parents=True)
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        packed = path.suffix == ".gz"
        plain = target / (path.stem if packed else path.name)
        plain.write_bytes(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
        files.append(plain)
    return files


def made(target: Path) -> list[Path]:
    """Write copies of the sample sessions, if there are no others."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        samples = [path for path in write_samples(Path(home)) if path.parent.parent.name == "projects"]
        contents = [path.read_bytes() for path in samples]
    files: list[Path] = []
    while sum(map(len, contents)) * len(files) < MADE * len(contents):
        content = contents[len(files) % len(contents)]
        files.append(target / f"sample-{len(files):04}.jsonl")
        files[-1].write_bytes(content)
    return files


def joined(files: Sequence[Path], target: Path) -> Path:
    """Write one large file with the rows of several sessions."""
    with target.open("wb") as file:
        for path in files:
            file.write(path.read_bytes().rstrip(b"\n") + b"\n")
            if file.tell() > JOINED:
                break
    return target


# Memory

_CHILD = """
import resource, sys
from pathlib import Path
import thresher

def kilobytes(field):
    status = Path("/proc/self/status")
    if status.is_file():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak

thresher.discover(environment={}, home=Path("nowhere"))
before = kilobytes("VmRSS:")
session = thresher.read(sys.argv[1])
print(kilobytes("VmHWM:") - before)
"""
"""On Linux a child inherits the parent's `ru_maxrss`, so the peak comes from the kernel where possible."""


def memory(path: Path) -> Memory:
    """Read one file in a new process."""
    child = subprocess.run([sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True)
    return Memory(path.name, megabytes([path]), int(child.stdout) * 1024 / MEGABYTE)


# The report


class Report(NamedTuple):
    """All measurements."""

    speeds: list[Speed]
    memories: list[Memory]
    peer: str

    def rate(self, files: str, reader: str) -> float | None:
        """Megabytes per second, if measured."""
        return next((s.rate for s in self.speeds if (s.files, s.reader) == (files, reader)), None)

    def musts(self) -> Iterator[tuple[str, float | None, bool]]:
        """Yield each requirement with its figure and the result."""
        own, plain = self.rate("claude_code", "thresher") or 0, self.rate("claude_code", "json.loads") or 1
        yield "at least 1.0 × json.loads", own / plain, own >= plain
        for name in (PEER_MESSAGES, PEER_ENTRIES):
            other = self.rate("claude_code", name)
            yield f"at least 5 × {name}", own / other if other else None, bool(other and own >= 5 * other)
        worst = max(one.multiple for one in self.memories)
        yield "memory under 3 × the file, at the worst", worst, worst < 3


def show(report: Report) -> None:
    """Format the report as tables."""
    print(f"{'files':<14}{'reader':<28}{'MB':>8}{'MB/s':>9}{'× json.loads':>14}")
    for speed in report.speeds:
        ratio = speed.rate / (report.rate(speed.files, "json.loads") or 1)
        print(f"{speed.files:<14}{speed.reader:<28}{speed.megabytes:8.1f}{speed.rate:9.1f}{ratio:14.2f}")
    print(f"claude-code-log: {report.peer}\n")
    print(f"{'memory of':<40}{'MB':>8}{'peak MB':>9}{'× size':>9}")
    sizes = sum(one.megabytes for one in report.memories)
    peaks = sum(one.peak for one in report.memories)
    for one in (*report.memories, Memory("together", sizes, peaks)):
        print(f"{one.file[:38]:<40}{one.megabytes:8.1f}{one.peak:9.1f}{one.multiple:9.2f}")
    print()
    for must, figure, holds in report.musts():
        answer = "not measured" if figure is None else f"{'yes' if holds else 'no'} ({figure:.2f})"
        print(f"{must}: {answer}")


def as_json(report: Report) -> str:
    """Return the report as JSON."""
    speeds = [{**one._asdict(), "rate": one.rate} for one in report.speeds]
    memories = [{**one._asdict(), "multiple": one.multiple} for one in report.memories]
    musts = [{"must": must, "figure": figure, "held": holds} for must, figure, holds in report.musts()]
    return json.dumps({"speeds": speeds, "memory": memories, "peer": report.peer, "musts": musts}, indent=2)


def measure(data: Path, rounds: int, scratch: Path) -> Report:
    """Measure memory first, while this process is small."""
    files = unpacked(data, scratch / "claude_code") if data.is_dir() else made(scratch / "claude_code")
    files.sort(key=lambda path: -path.stat().st_size)
    large = joined(files, scratch / "joined.jsonl")
    memories = [memory(path) for path in (*files[:LARGEST], large)]
    readers: dict[str, Reader] = {"json.loads": plain_rows, "thresher": thresher.read_all}
    others = peers()
    speeds = race("claude_code", files, readers | others, rounds) + race("one large", [large], readers, rounds)
    for kind in OTHERS:
        if (data.parent / kind).is_dir():
            speeds += race(kind, unpacked(data.parent / kind, scratch / kind), readers, rounds)
    peer_version = f"version {version('claude-code-log')}, same files" if others else "not installed"
    return Report(speeds, memories, peer_version)


def main() -> None:
    """Parse the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Claude Code's files, compressed or not")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(options.data, options.rounds, Path(scratch))
    if options.json:
        print(as_json(report))
    else:
        show(report)


if __name__ == "__main__":
    main()
