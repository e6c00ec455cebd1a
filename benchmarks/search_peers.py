"""Other tools that search past sessions, with one interface: build an index of a home, then query it.

Each has a separate environment with the measured version, and runs as its command line: the time of a call includes
process start and change detection. Its home contains only `.claude/projects`, a proxy that does not answer blocks
network access, and nothing of the current user is read.

Treatment of query words:

- fast-resume ranks sessions by any of the words, but parses `fix(docs): …` as its own syntax and then returns
  nothing;
- ccrecall ranks sessions by any of the words; here it runs without the model that it would download;
- agentsview (`--fts`) and cc-conversation-search require all words in one message. They return messages, so a
  session ranks at its first one. agentsview excludes sessions with one prompt by default; here it includes them.

So each also runs as `name+stop` with the plain words only, without punctuation and stop words, as users learn to
type after an empty result.
"""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ENVIRONMENTS = Path(tempfile.gettempdir()) / "thresher-search-peers"
LIMIT = 20
"""Maximum number of sessions per query for every peer."""
MESSAGES = 500
"""Number of results to request from a peer that returns messages, to get enough sessions."""
BUILD_SECONDS = 15 * 60
SHUT = "http://127.0.0.1:9"
COMMON = (
    "a about after all also an and any are as at be because been before but by can could did do does for from had has "
    "have he her his how i if in into is it its just me more most my no not now of on only or other our out over she "
    "should so some such than that the their them then there these they this those to too under up was we were what "
    "when where which while who why will with would you your"
)
STOP_WORDS = frozenset(COMMON.split())

Row = dict[str, Any]


class Built(NamedTuple):
    """Cost of a build: time, CPU time, and peak memory of its largest process in bytes."""

    seconds: float
    cpu: float
    peak: int
    finished: bool
    said: str
    """End of its output."""


# Environments and processes


def environment(name: str, folder: Path = ENVIRONMENTS) -> Path:
    """Return the folder of a peer's commands; install it with pip if necessary."""
    version = PEERS[name].version
    place = folder / f"{name}-{version}"
    commands = place / ("Scripts" if os.name == "nt" else "bin")
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(commands / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, f"{name}=={version}"], check=True)
        (place / "ready").touch()
    return commands


def variables(home: Path) -> dict[str, str]:
    """Return the complete environment of a peer."""
    folders = {"CACHE": ".cache", "CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        **{f"XDG_{key}_HOME": str(home / place) for key, place in folders.items()},
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), SHUT),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "AGENTSVIEW_TELEMETRY_ENABLED": "false",
        "AGENTSVIEW_NO_BROWSER": "1",
    }


def measured(command: Sequence[str], home: Path, *, seconds: float, extra: dict[str, str]) -> Built:
    """Run a command until it ends; after the timeout, kill it with all its children."""
    late = threading.Event()
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=variables(home) | extra, cwd=home, stdout=said, stderr=said, start_new_session=True
        )

        def end() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        taken = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        done = not late.is_set() and process.returncode == 0
        return Built(taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, done, said.read()[-300:])


# The peers


@dataclass(frozen=True)
class Peer:
    """A tool that searches sessions: its commands, and the location of sessions in its JSON."""

    name: str
    version: str
    command: str
    kept: str
    """Path of its index below the home."""
    building: tuple[str, ...]
    asking: Callable[[str, int], list[str]]
    found: Callable[[Any], Iterable[str]]
    build_variables: tuple[tuple[str, str], ...] = ()
    daemon: bool = False

    def line(self, arguments: Sequence[str]) -> list[str]:
        return [str(environment(self.name.removesuffix("+stop")) / self.command), *arguments]

    def run(self, home: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command, seen = self.line(arguments), variables(home)
        return subprocess.run(command, env=seen, cwd=home, capture_output=True, text=True, check=False, timeout=120)

    def build(self, home: Path, *, seconds: float = BUILD_SECONDS) -> Built:
        """Build the index of a home without a timeout."""
        self.stop(home)
        shutil.rmtree(home / self.kept, ignore_errors=True)
        return measured(self.line(self.building), home, seconds=seconds, extra=dict(self.build_variables))

    def search(self, home: Path, query: str, limit: int = LIMIT) -> list[str]:
        """Return the session ids, best first; none if the tool fails."""
        if self.daemon and home not in RUNNING:
            self.run(home, ["daemon", "start"])
            RUNNING.add(home)
        answer = self.run(home, self.asking(query, limit))
        if answer.returncode != 0:
            return []
        try:
            found = self.found(json.loads(answer.stdout))
        except ValueError:
            return []
        return list(dict.fromkeys(found))[:limit]

    def disk(self, home: Path) -> int:
        """Return the size of its data for a home in bytes."""
        return sum(file.stat().st_size for file in (home / self.kept).rglob("*") if file.is_file())

    def stop(self, home: Path) -> None:
        """Stop the server if there is one."""
        if self.daemon and home in RUNNING:
            self.run(home, ["daemon", "stop"])
            RUNNING.discard(home)


RUNNING: set[Path] = set()  # homes with a server


def bare(query: str) -> str:
    """Return the words of a query without stop words."""
    words = re.findall(r"\w+", query)
    return " ".join(word for word in words if word.lower() not in STOP_WORDS) or query


def without_stop_words(peer: Peer) -> Peer:
    return replace(peer, name=f"{peer.name}+stop", asking=lambda query, limit: peer.asking(bare(query), limit))


def ask_agentsview(query: str, _limit: int) -> list[str]:
    wide = ["--include-one-shot", "--include-automated", "--limit", str(MESSAGES)]
    return ["session", "search", "--fts", "--json", *wide, "--", query]


PLAIN = {
    peer.name: peer
    for peer in (
        Peer(
            "fast-resume",
            "2.14.0",
            "fr",
            ".cache/fast-resume",
            ("--rebuild", "--json", "--limit", "1"),
            lambda query, limit: ["--json", "--limit", str(limit), "--", query],
            lambda answer: [row["id"] for row in answer["sessions"]],
        ),
        Peer(
            "ccrecall",
            "0.26.0",
            "ccrecall",
            ".ccrecall",
            ("import",),
            lambda query, limit: ["--json", "search", "--keyword-only", "-n", str(min(limit, 20)), f"--query={query}"],
            lambda answer: [row["session_uuid"] for row in answer["results"]],
        ),
        Peer(
            "agentsview",
            "0.46.1",
            "agentsview",
            ".agentsview",
            ("sync",),
            ask_agentsview,
            lambda answer: [row["session_id"] for row in answer["matches"] or ()],
            build_variables=(("AGENTSVIEW_NO_DAEMON", "1"),),
            daemon=True,
        ),
        Peer(
            "cc-conversation-search",
            "0.5.3",
            "cc-conversation-search",
            ".conversation-search",
            ("init", "--days", "3650", "--force", "--quiet"),
            lambda query, _limit: ["search", "--json", "--limit", str(MESSAGES), "--", query],
            lambda answer: [row["session_id"] for row in answer],
        ),
    )
}
PEERS = PLAIN | {f"{name}+stop": without_stop_words(peer) for name, peer in PLAIN.items()}


# Homes


def lodge(home: Path, projects: Path) -> None:
    """Add the sessions of a corpus to a home, as hard links if possible."""
    for file in projects.rglob("*.jsonl"):
        target = home / ".claude" / "projects" / file.relative_to(projects)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            continue
        try:
            target.hardlink_to(file)
        except OSError:
            shutil.copy2(file, target)


def unpack(home: Path, data: Path = DATA) -> dict[str, str]:
    """Write the recorded sessions to a home as their agent does; return the source file of each session id."""
    rows = map(json.loads, (data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    named: dict[str, str] = {}
    for row in rows:
        if row["file"].startswith("claude_code/"):
            raw = (data / row["file"]).read_bytes()
            content = gzip.decompress(raw) if row["file"].endswith(".gz") else raw
            identity, ended = head(content)
            if not identity or identity in named:
                identity = str(uuid.uuid5(uuid.NAMESPACE_URL, row["file"]))
            slug = "-" + "".join(letter if letter.isalnum() else "-" for letter in row["repo"])
            target = home / ".claude" / "projects" / slug / f"{identity}.jsonl"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            os.utime(target, (ended, ended))
            named[identity] = row["file"]
    return named


def head(content: bytes) -> tuple[str, float]:
    """Return the session id and the time of the last line."""
    identity, ended = "", 0.0
    for line in content.splitlines():
        try:
            row: Row = json.loads(line)
        except ValueError:
            continue
        identity = identity or str(row.get("sessionId") or "")
        if stamp := row.get("timestamp"):
            ended = max(ended, datetime.fromisoformat(str(stamp)).timestamp())
    return identity, ended


# Quality


class Score(NamedTuple):
    """Quality over all queries."""

    queries: int
    hit1: float
    hit5: float
    mrr: float
    empty: int


class Answered(NamedTuple):
    """Record a result: rank of the first right session (0: none), whether there was any result, and the time."""

    hard: bool
    rank: int
    empty: bool
    seconds: float


def score(answers: Sequence[Answered]) -> Score:
    ranks = [answer.rank for answer in answers]
    share = [sum(0 < rank <= most for rank in ranks) / len(ranks) for most in (1, 5)]
    mean = sum(1 / rank for rank in ranks if rank) / len(ranks)
    return Score(len(ranks), share[0], share[1], mean, sum(answer.empty for answer in answers))


def ask_all(peer: Peer, home: Path, files: dict[str, str], queries: Iterable[Row]) -> list[Answered]:
    """Yield each commit with its exact subject as the query."""
    answers = []
    for query in queries:
        start = time.perf_counter()
        found = peer.search(home, query["subject"], LIMIT)
        taken = time.perf_counter() - start
        right = [rank for rank, one in enumerate(found, 1) if files.get(one) in query["relevant"]]
        answers.append(Answered(not query["verbatim"], right[0] if right else 0, not found, taken))
    return answers
