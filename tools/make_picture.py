"""Draw what a command prints in a terminal as an SVG: `python tools/make_picture.py FILE.svg [COMMAND…]`.

Without a command it draws `thresher fit` on a sample session, as in the README. It embeds no fonts and no links.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from thresher.samples import write_samples

WIDTH = 80
SESSION = "e923391d"
COMMAND = ["thresher", "fit", SESSION, "--policy", "smart", "--budget", "1500", "--explain"]
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<rect fill="{{background}}" width="100%" height="100%" rx="8"/>
<g transform="translate({terminal_x}, 24)"><g class="{unique_id}-matrix">
{backgrounds}
{matrix}
</g></g>
</svg>
""".replace("{{background}}", "#1c1c1c")


def run_command(command: list[str], folder: Path) -> str:
    """Return what a command prints to a terminal, with its colors."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "THRESHER_HOME": str(folder / "home")}
    program = [sys.executable, "-m", "thresher.cli", *command[1:], "--no-discover", "--source", str(folder)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def draw(printed: str, command: list[str]) -> str:
    """Return the SVG of a terminal with a command and what it printed."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(printed.rstrip()))
    svg = console.export_svg(theme=MONOKAI, code_format=FORMAT, unique_id="terminal")
    return re.sub(r' clip-path="[^"]*"', "", svg)  # the format above defines no clip paths


def main() -> None:
    """Run the command on the samples and write the picture."""
    target, command = Path(sys.argv[1]), sys.argv[2:] or COMMAND
    with tempfile.TemporaryDirectory() as folder:
        write_samples(Path(folder))
        target.write_text(draw(run_command(command, Path(folder)), command), encoding="utf-8")


if __name__ == "__main__":
    main()
