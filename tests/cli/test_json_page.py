"""docs/reference/json.md lists the keys that the commands print with `--json`, no fewer and no others."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from thresher.cli import COMMANDS as ALL_COMMANDS
from thresher.samples import write_samples

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
SAMPLES = ("--no-discover", "--source", "samples")
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "": [()],
    "sessions": [SAMPLES],
    "show": [
        ("e923391d", *SAMPLES),
        ("e923391d", *SAMPLES, "--policy", "smart"),
        ("e923391d", *SAMPLES, "--around", "12"),
    ],
    "fit": [("e923391d", *SAMPLES)],
    "search": [(*SAMPLES, "half", "pennies"), (*SAMPLES, "--left-out")],
    "recall": [("e923391d", *SAMPLES, "why were half pennies lost")],
    "files": [
        ("e923391d", *SAMPLES),
        ("e923391d", *SAMPLES, "shop/prices.py"),
        ("e923391d", *SAMPLES, "shop/prices.py", "--at", "20"),
        ("e923391d", *SAMPLES, "shop/prices.py", "--diff"),
    ],
    "changelog": [("e923391d", *SAMPLES)],
    "check": [("samples/runs/shop-issue-12.traj.json",)],
    "convert": [("e923391d", *SAMPLES, "--to", "openai-chat")],
    "replay": [("samples", "--no-discover", "--budget", "2k", "--policy", "auto", "--jobs", "1")],
    "sync": [SAMPLES],
    "forget": [("e923391d", "--dry-run")],
    "install": [("codex",), ("codex", "--with", "proxy"), ("pi", "--with", "plugin")],
    "demo": [()],
}
OPAQUE = {"value", "hit_share_by_kind", "records", "entry", "excluded", "by_reason", "search"}
"""Keys whose content depends on the data or is documented elsewhere."""


def documented_sections() -> dict[str, set[str]]:
    """Return the keys in the code blocks of each section, by command."""
    sections = re.split(r"^## thresher ?", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    blocks = {one.partition("\n")[0]: "".join(re.findall(r"```\n(.*?)```", one, re.DOTALL)) for one in sections}
    return {command: set(re.findall(r"\w+", block)) for command, block in blocks.items()}


def collect_keys(value: Any) -> set[str]:
    """Return all keys of a JSON value, those inside opaque ones aside."""
    if isinstance(value, list):
        return set().union(*map(collect_keys, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(collect_keys(inner) for key, inner in value.items() if key not in OPAQUE))


def run_json(arguments: list[str], folder: Path) -> Any:
    """Return what a command prints with `--json`."""
    command = [sys.executable, "-m", "thresher.cli", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def test_every_command_has_a_section() -> None:
    assert set(documented_sections()) == {"", *ALL_COMMANDS} - {"mcp"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_lists_the_keys_that_a_command_prints(command: str, tmp_path: Path) -> None:
    write_samples(tmp_path / "samples")
    if command == "forget":
        run_json(["sync", *SAMPLES], tmp_path)
    printed: set[str] = set()
    for arguments in COMMANDS[command]:
        value = run_json([*([command] if command else []), *arguments], tmp_path)
        assert value["schema"] == 1
        printed |= collect_keys(value)
    documented = documented_sections()[command]
    if command == "":
        printed |= {"agent", "sessions", "bytes", "newest", "folder"}  # there are no agents on a machine for tests
    if command == "demo":
        documented |= documented_sections()["sessions"]
    if command == "show":
        documented |= documented_sections()["fit"]
        printed |= {"file", "dialect", "value"}  # what a plan has only in `fit`
    if command == "replay":
        printed |= {"file", "strategy", "error", "kind", "session"}  # of a failure
    if command == "sync":  # of a model's vectors, which tests do not build
        printed |= {"model", "covered_share", "size_bytes", "dollars_spent", "stopped", "rebuilt"}
    if command == "check":
        printed |= {"rule", "dialect", "message_index", "part_index", "detail", "documented"}
    assert printed <= documented
    assert documented - printed <= {"plan", *OPAQUE}
