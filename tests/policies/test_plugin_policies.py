"""Third-party policies: they work like built-in ones, and an invalid one does no harm.

The package is a folder in the layout of an installer, added to the Python path.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULE = """
from dataclasses import dataclass

from thresher.edits import Drop
from thresher.model import Place


@dataclass(frozen=True, kw_only=True)
class ErrorsFirst:
    keep: int = 0

    def __call__(self, history):
        failed = [one.chain for one in history.links if one.result is not None and one.result.is_error]
        for chain in failed[: len(failed) - self.keep]:
            yield Drop(history.occurrence(chain.call), "errors_first", "failed")


def nothing(history):
    return []


BROKEN = 5
"""
ROWS: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
for number in range(4):
    ROWS.append({"role": "assistant", "content": [
        {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"command": f"step {number}"}}
    ]})  # fmt: skip
    ROWS.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": f"c{number}", "content": "no such file " * 30, "is_error": True}
    ]})  # fmt: skip
ROWS += [{"role": "assistant", "content": "All failed."}, {"role": "user", "content": "Again?"}]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    place = tmp_path / "site"
    facts = place / "toy_policies-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-policies\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[thresher.policies]\nerrors_first = toy_policies:ErrorsFirst\nno-op = toy_policies:nothing\n"
    )
    (place / "toy_policies.py").write_text(MODULE)
    (tmp_path / "messages.json").write_text(json.dumps(ROWS))
    return place


def run(packages: Path, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path]), **environment},
        cwd=packages.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def dropped(packages: Path, *options: str, **environment: Any) -> int:
    """Return the number of dropped calls; each is dropped with its result."""
    done = run(packages, "-m", "thresher.cli", "fit", "messages.json", "--json", *options, **environment)
    edits: list[dict[str, str]] = json.loads(done.stdout)["edits"]
    return sum(edit["policy"] == "errors_first" for edit in edits) // 2


def test_a_plugin_policy_works_in_python_and_on_the_command_line(packages: Path) -> None:
    code = "import json, thresher as th; rows = json.load(open('messages.json')); "
    code += "print(len(th.fit(rows, policy='errors_first')), len(th.fit(rows, policy=['no-op'])))"
    assert run(packages, "-c", code).stdout.split() == [str(len(ROWS) - 8), str(len(ROWS))]
    assert dropped(packages, "--policy", "errors_first") == 4


def test_environment_and_file_set_its_options(packages: Path) -> None:
    assert dropped(packages, "-p", "errors_first", THRESHER_ERRORS_FIRST_KEEP="3") == 1
    toml = packages.parent / "thresher.toml"
    toml.write_text('[policies.errors_first]\nkeep = 2\n[presets]\nmine = ["thinking", "errors_first", "no-op"]\n')
    assert dropped(packages, "-p", "mine") == 2
    toml.write_text('[presets]\nmine = [{policy = "errors_first", keep = 1}]\n')
    assert dropped(packages, "-p", "mine") == 3
    toml.write_text("[policies.errors_first]\nhold = 2\n")
    done = run(packages, "-m", "thresher.cli", "fit", "messages.json", code=2)
    assert "`errors_first` has no option `hold`" in done.stderr


def test_it_is_listed_and_replayed(packages: Path) -> None:
    done = run(packages, "-m", "thresher.cli", "fit", "messages.json", "-p", "nonsense", code=2)
    assert "errors_first, no-op" in done.stderr
    listed = run(packages, "-c", "from thresher.policies import policy_names; print(*policy_names())").stdout.split()
    assert listed[-2:] == ["errors_first", "no-op"]
    code = (
        "from thresher.replay.strategies.registry import select_strategies as chosen; print(*chosen(['errors_first']))"
    )
    assert "errors_first" in run(packages, "-c", code).stdout


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("broken = no_such_module:Policy", "cannot be loaded"),
        ("broken = toy_policies:BROKEN", "is not callable"),
        ("mask = toy_policies:ErrorsFirst", "has the name of a built-in policy"),
        ("newest = toy_policies:ErrorsFirst", "has the name of a built-in policy"),
    ],
)
def test_an_invalid_plugin_is_reported_and_the_others_work(packages: Path, entry: str, why: str) -> None:
    entries = packages / "toy_policies-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"[thresher.policies]\n{entry}\nerrors_first = toy_policies:ErrorsFirst\n")
    done = run(packages, "-m", "thresher.cli", "fit", "messages.json", "-p", "errors_first", "--json")
    assert why in done.stderr
    assert len(json.loads(done.stdout)["edits"]) == 8
