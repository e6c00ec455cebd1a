"""A format of another package works everywhere, and a broken one does not affect the rest.

The package is in a folder as an installer would create it, which is on the import path.
"""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

MODULE = """
from pathlib import Path

from thresher.transcripts import SessionFolder, TranscriptFormat
from thresher.model import History, Message, Session, SourceLocation, Text, ToolCall, ToolResult


def read(source):
    messages = []
    for number, line in source.lines():
        who, _, said = line.decode().partition(": ")
        here = {"source": SourceLocation(str(source.path), number), "id": str(number)}
        if who == "me":
            messages.append(Message("user", (Text(said),), author="human", **here))
        elif who == "write":
            said, _, gave = said.partition(" -> ")
            call = ToolCall(f"c{number}", "write", '{"path": "%s", "content": "warm"}' % said)
            messages.append(Message("assistant", (call,), author="model", **here))
            done = ToolResult(call.id, (Text(gave or "written"),))
            messages.append(Message("tool", (done,), author="tool", **here))
        elif who == "it":
            messages.append(Message("assistant", (Text(said),), author="model", **here))
        else:
            source.report("nobody is called " + who, "skipped", number)
    history = History(tuple(messages))
    facts = {"project": "/home/sam/kiln", "title": "The kiln", "problems": tuple(source.problems)}
    return [Session("toy", source.path.stem, str(source.path), (history,), **facts)]


def sniff(source):
    first = next(source.lines(), (0, b""))[1]
    return 3 if first.startswith(b"me: ") else 0


def homes(environment, home):
    return [SessionFolder(Path(environment.get("TOY_HOME") or home / ".toy"), "*.toy")]


FORMAT = TranscriptFormat(
    "toy", "Toy", sniff, read, homes, resume="toy --again {id}", wire="gemini", layouts="lines", seen="1"
)
"""
SAID = """me: Is the kiln cracking the glaze again?
it: The damper was shut too early.
write: damper.txt
who: ?
it: It is written down.
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Create the package and a session in the home folder of its format; return the package's folder."""
    place = tmp_path / "site"
    facts = place / "toy_format-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-format\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[thresher.transcripts]\ntoy = toy_format:FORMAT\n")
    (place / "toy_format.py").write_text(MODULE)
    folder = tmp_path / "user-home" / ".toy"
    folder.mkdir(parents=True)
    (folder / "kiln-1.toy").write_text(SAID)
    return place


def run(packages: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(packages), *filter(None, sys.path)]),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "thresher.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done


def run_json(packages: Path, *words: str) -> Any:
    return json.loads(run(packages, *words, "--json").stdout)


def test_its_sessions_are_discovered_listed_and_shown(packages: Path) -> None:
    (row,) = run_json(packages, "sessions")["sessions"]
    assert (row["agent"], row["id"], row["messages"], row["calls"], len(row["problems"])) == ("toy", "kiln-1", 5, 1, 1)
    assert "The damper was shut too early." in run(packages, "show", "kiln-1").stdout
    assert run_json(packages, "show", "kiln-1")["agent"] == "toy"


def test_it_is_fitted_and_written_for_its_default_dialect(packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run_json(packages, "fit", "kiln-1", "--budget", "60k", "-o", str(out))["dialect"] == "gemini"
    assert json.loads(out.read_text())[0]["role"] == "user"
    assert run(packages, "check", str(out)).returncode == 0


def test_it_is_ingested_and_found(packages: Path) -> None:
    (found,) = run_json(packages, "search", "what cracked the glaze?")["sessions"]
    assert (found["agent"], found["id"], found["hits"][0]["line"]) == ("toy", "kiln-1", 1)
    assert "toy --again kiln-1" in run(packages, "search", "glaze").stdout
    grown = packages.parent / "user-home" / ".toy" / "kiln-1.toy"
    grown.write_text(SAID + "it: Next time the flue stays open.\n")
    assert run_json(packages, "search", "flue")["sessions"][0]["hits"][0]["line"] == 6


def test_it_is_replayed_and_its_file_changes_are_listed(packages: Path) -> None:
    path = packages.parent / "user-home" / ".toy" / "kiln-1.toy"
    recipes = [f"shelf/glaze_{n}_recipe.txt" for n in range(20)]
    path.write_text(SAID + "".join(f"write: {one} -> next comes {two}\n" for one, two in pairwise(recipes)))
    replayed = run_json(packages, "replay", str(path), "--policy", "smart")
    assert {policy["name"] for policy in replayed["strategies"]} >= {"full", "smart"}
    assert "damper.txt" in run(packages, "files", "kiln-1").stdout


def test_a_sub_agent_receives_its_context(packages: Path) -> None:
    code = (
        "from thresher.serve.mcp_tools import McpTools; print(McpTools(environment={}).get_context(session='kiln-1'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "The damper was shut too early." in done.stdout


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("toy = no_such_module:FORMAT", "cannot be loaded"),
        ("toy = toy_format:read", "expected a TranscriptFormat"),
        ("codex = toy_format:FORMAT", "has the name of a built-in format"),
    ],
)
def test_an_invalid_format_is_reported_and_the_rest_works(packages: Path, entry: str, why: str) -> None:
    (packages / "toy_format-1.0.dist-info" / "entry_points.txt").write_text(f"[thresher.formats]\n{entry}\n")
    done = run(packages, "sessions", "--json", code=1)
    assert json.loads(done.stdout)["sessions"] == []
    assert why in done.stderr
