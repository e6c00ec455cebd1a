"""Reading a file imports the formats up to its own, and no later ones."""

import subprocess
import sys

import pytest

from fixture_files import own_fixture
from thresher.transcripts.table import TRANSCRIPT_FORMATS

READ = """
import sys
from thresher.transcripts import read_all
assert read_all(sys.argv[1], format=sys.argv[2] or None)
print(*(name for name in sys.argv[3:] if name in sys.modules))
"""


def imported(name: str, *, explicit: bool) -> list[str]:
    """Return the format modules that reading a format's fixture imports."""
    arguments = (str(own_fixture(name)), name if explicit else "", *TRANSCRIPT_FORMATS.values())
    run = subprocess.run([sys.executable, "-c", READ, *arguments], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_reading_a_claude_code_file_imports_no_other_format() -> None:
    assert imported("claude-code", explicit=False) == [TRANSCRIPT_FORMATS["claude-code"]]


@pytest.mark.parametrize("name", ["codex", "pi", "atif", "aider"])
def test_an_explicit_format_is_the_only_one_imported(name: str) -> None:
    assert imported(name, explicit=True) == [TRANSCRIPT_FORMATS[name]]
