"""Startup time: `python benchmarks/start.py [--runs 15] [--json]`.

Each command runs in a new process with the same interpreter, in turns. The figures are wall-clock times, compared with
an interpreter that does nothing.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

NOTHING = "python -c pass"


class Start(NamedTuple):
    """Times of one command, in milliseconds."""

    name: str
    best: float
    median: float


def commands() -> dict[str, list[str]]:
    """Return the commands by their displayed names."""
    script = Path(sys.executable).with_name("thresher.exe" if sys.platform == "win32" else "thresher")
    found = {
        NOTHING: [sys.executable, "-c", "pass"],
        "import thresher": [sys.executable, "-c", "import thresher"],
        "python -m thresher.cli sessions --help": [sys.executable, "-m", "thresher.cli", "sessions", "--help"],
    }
    if script.is_file():
        found["thresher sessions --help"] = [str(script), "sessions", "--help"]
    return found


def once(command: list[str]) -> float:
    """Return the time of one run in milliseconds, or infinity if the command fails."""
    start = perf_counter()
    done = subprocess.run(command, check=False, capture_output=True)
    return (perf_counter() - start) * 1000 if done.returncode == 0 else float("inf")


def measure(runs: int) -> list[Start]:
    """Run all commands in turns, in several rounds; the first round only warms the disk cache."""
    found = commands()
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(runs + 1):
        for name, command in found.items():
            taken = once(command)
            if number:
                times[name].append(taken)
    return [Start(name, min(taken), median(taken)) for name, taken in times.items()]


def show(starts: list[Start]) -> None:
    """Format the times as a table."""
    base = starts[0]
    print(f"{'command':<42}{'best ms':>9}{'median':>9}{'best over':>11}{'median over':>13}{'× best':>8}")
    for one in starts:
        if one.best == float("inf"):
            print(f"{one.name:<42}{'fails':>9}")
            continue
        over, usual = one.best - base.best, one.median - base.median
        print(f"{one.name:<42}{one.best:9.1f}{one.median:9.1f}{over:11.1f}{usual:13.1f}{one.best / base.best:8.2f}")


def as_json(starts: list[Start]) -> str:
    """Return the times as JSON; a command that fails has no figures."""
    base = starts[0]
    rows = [
        {"command": one.name, "failed": True}
        if one.best == float("inf")
        else {
            "command": one.name,
            "best_ms": one.best,
            "median_ms": one.median,
            "best_over_ms": one.best - base.best,
            "median_over_ms": one.median - base.median,
            "ratio": one.best / base.best,
        }
        for one in starts
    ]
    return json.dumps({"python": sys.version.split()[0], "starts": rows}, indent=2)


def main() -> None:
    """Parse the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    starts = measure(options.runs)
    if options.json:
        print(as_json(starts))
    else:
        show(starts)


if __name__ == "__main__":
    main()
