"""Count the modules and functions that four journeys visit: `python tools/trace_journeys.py [--json]`.

Each journey runs once on the samples, in a new process with an empty home, so nothing is imported or cached before it.
Only functions of the package that are called count, not the code that an import executes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

MODULE_BODIES = ("<module>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
BUDGET = 2_000


def longest_sample(home: Path) -> Path:
    """Write the samples and return the file of the longest session."""
    from thresher.samples import write_samples  # noqa: PLC0415

    return max(write_samples(home), key=lambda path: path.stat().st_size)


def prepare_fit(home: Path) -> Callable[[], Any]:
    """Read a session, fit it into a budget, and emit it for an API."""
    import thresher  # noqa: PLC0415

    file = longest_sample(home)

    def run() -> None:
        session: Any = thresher.read(file)
        thresher.emit(thresher.fit(session.history, budget=BUDGET), "anthropic")

    return run


def prepare_window(home: Path) -> Callable[[], Any]:
    """Fit a session's messages with a window, once."""
    import thresher  # noqa: PLC0415

    session: Any = thresher.read(longest_sample(home))
    messages = thresher.emit(session.history, "anthropic", body=False)
    window = thresher.Window(budget=BUDGET)
    return lambda: window.fit(messages)


def prepare_search(home: Path) -> Callable[[], Any]:
    """Search a synced memory."""
    from thresher.memory import Memory  # noqa: PLC0415

    longest_sample(home)
    memory = Memory(home=home / "memory", sources=[home], discover=False)
    memory.sync()
    return lambda: memory.search("half pennies", sync=False)


def prepare_replay(home: Path) -> Callable[[], Any]:
    """Replay one session with one policy, in this process."""
    from click.testing import CliRunner  # noqa: PLC0415

    from thresher.cli import cli  # noqa: PLC0415

    command = [
        "replay",
        str(longest_sample(home)),
        "--no-discover",
        "--policy",
        "auto",
        "--budget",
        "2k",
        "--jobs",
        "1",
    ]
    return lambda: CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False)


JOURNEYS = {
    "read-fit-emit": prepare_fit,
    "window-fit": prepare_window,
    "search": prepare_search,
    "replay": prepare_replay,
}


def trace(run: Callable[[], Any]) -> set[tuple[str, str]]:
    """Return each function of the package that a run calls, with its module."""
    visited: set[tuple[str, str]] = set()

    def visit(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.partition(".")[0] == "thresher" and frame.f_code.co_name not in MODULE_BODIES:
            visited.add((module, frame.f_code.co_qualname))

    sys.setprofile(visit)
    try:
        run()
    finally:
        sys.setprofile(None)
    return visited


def run_journey(name: str) -> None:
    """Trace one journey in this process and print its figures."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"THRESHER_HOME": f"{folder}/home", "HOME": folder}
        visited = trace(JOURNEYS[name](Path(folder)))
    print(json.dumps({"modules": len({module for module, _ in visited}), "functions": len(visited)}))


def main() -> None:
    """Trace every journey in a separate process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print data, not a table")
    parser.add_argument("--journey", choices=JOURNEYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.journey:
        run_journey(options.journey)
        return
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    figures = {}
    for name in JOURNEYS:
        command = [sys.executable, __file__, "--journey", name]
        output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        figures[name] = json.loads(output.splitlines()[-1])
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{'journey':<14} {'modules':>8} {'functions':>10}")
    for name, row in figures.items():
        print(f"{name:<14} {row['modules']:>8} {row['functions']:>10}")


if __name__ == "__main__":
    main()
