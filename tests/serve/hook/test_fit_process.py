"""The JavaScript that plug-ins share: one process answers, and its failure never breaks a session."""

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
SCRIPT = """
import { FitProcess } from "./fit_process.mjs";
const reports = [];
const thresher = new FitProcess((text) => reports.push(text));
const answers = [];
for (const text of TEXTS) answers.push(await thresher.ask({ text }));
console.log(JSON.stringify({ answers, reports, failed: thresher.failed }));
"""
READ = "import json, sys\nfor line in sys.stdin:\n    request = json.loads(line)\n    "
ANSWER = READ + 'print(json.dumps({"id": request["id"], "echo": request["text"]}), flush=True)'


def ask(folder: Path, program: str | None, timeout: int = 20_000, texts: tuple[str, ...] = ("one", "two")) -> Any:
    """Return what requests get from a program, or from a command that does not exist."""
    command = ["/missing/thresher"] if program is None else [sys.executable, "-c", program]
    source = files("thresher.serve.plugins").joinpath("fit_process.js").read_text("utf-8")
    lines = [
        f"const COMMAND = {json.dumps(command)};" if "const COMMAND" in line else line for line in source.split("\n")
    ]
    (folder / "fit_process.mjs").write_text("\n".join(lines), "utf-8")
    (folder / "main.mjs").write_text(SCRIPT.replace("TEXTS", json.dumps(texts)), "utf-8")
    environment = {**os.environ, "THRESHER_HOOK_TIMEOUT_MS": str(timeout)}
    done = subprocess.run(
        [str(NODE), "main.mjs"], cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_one_process_answers_all_requests(tmp_path: Path) -> None:
    found = ask(tmp_path, ANSWER)
    assert found == {"answers": [{"id": 1, "echo": "one"}, {"id": 2, "echo": "two"}], "reports": [], "failed": False}


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "ENOENT"),
        ("raise SystemExit(3)", "ended"),
        (READ + "print('no json', flush=True)", "JSON"),
    ],
)
def test_a_broken_process_is_reported_once(tmp_path: Path, program: str | None, reason: str) -> None:
    found = ask(tmp_path, program)
    assert found["answers"] == [None, None]
    (report,) = found["reports"]
    assert report.startswith("Thresher: ")
    assert reason in report


def test_a_slow_process_is_not_waited_for(tmp_path: Path) -> None:
    found = ask(tmp_path, READ + "pass", timeout=50)
    assert found["answers"] == [None, None]
    assert found["reports"] == [
        "Thresher: no answer in 50 ms. Requests that it does not answer are sent unchanged. Shown once."
    ]


def test_a_problem_of_one_answer_is_reported(tmp_path: Path) -> None:
    program = READ + 'print(json.dumps({"id": request["id"], "problem": "no plan"}), flush=True)'
    found = ask(tmp_path, program)
    assert [answer["problem"] for answer in found["answers"]] == ["no plan", "no plan"]
    assert len(found["reports"]) == 1


def test_a_process_that_stays_slow_is_ended(tmp_path: Path) -> None:
    found = ask(tmp_path, READ + "pass", timeout=50, texts=("one", "two", "three", "four"))
    assert (found["answers"], found["failed"]) == ([None] * 4, True)
    assert len(found["reports"]) == 1
