"""Console blocks of the documentation show what their commands print. THRESHER_UPDATE_GOLDEN=1 rewrites them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [path for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))]


def run_command(command: str, folder: Path) -> str:
    """Return what a command line prints in a home of its own, 80 columns wide."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(folder),
        "THRESHER_HOME": str(folder / ".local" / "share" / "thresher"),
        "COLUMNS": "80",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    printed = (done.stdout + done.stderr).replace(str(folder), "~")
    return "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())


def rerun_block(block: str, folder: Path) -> Iterator[str]:
    """Yield each command of a block (`$ …`) with its output of today, and a blank line between commands."""
    for number, command in enumerate(re.findall(r"^\$ (.*)$", block, re.MULTILINE)):
        yield ("\n" if number else "") + f"$ {command}\n{run_command(command, folder)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_on_the_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    shown = page.read_text(encoding="utf-8")
    printed = BLOCK.sub(lambda block: f"```console\n{''.join(rerun_block(block[1], tmp_path))}```", shown)
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        page.write_text(printed, encoding="utf-8")
    assert printed == shown
