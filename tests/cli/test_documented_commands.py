"""Every command line in the documentation and in `--help` names a command and options that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from thresher.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_LINE = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*thresher (?P<arguments>[^\n]*)$", re.MULTILINE)


def find_command(name: str) -> click.Command:
    """Return a command by its name."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    return command


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each command line in code blocks; two or more spaces begin a comment, a pipe ends it."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for found in COMMAND_LINE.finditer(block):
            line = re.split(r"\s{2,}|\s[|>#]\s|;", found["arguments"])[0]
            arguments = shlex.split(line)
            if arguments and re.fullmatch(r"[a-z]+", arguments[0]):
                yield arguments


def parse_arguments(arguments: list[str]) -> None:
    """Parse a command line as click does, without running it."""
    command = find_command(arguments[0])
    command.make_parser(click.Context(command)).parse_args(arguments[1:])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_commands_in_the_documentation_exist(document: Path) -> None:
    for arguments in command_lines(document.read_text(encoding="utf-8")):
        parse_arguments(arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_in_the_help_of_a_command_exist(name: str) -> None:
    for line in re.findall(r"^\s+thresher ([a-z]+ [^\n]*)$", find_command(name).help or "", re.MULTILINE):
        parse_arguments(shlex.split(re.split(r"\s{2,}|\s[|>#]\s", line)[0]))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_describes_every_option(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    section = page.split(f"\n## thresher {name}\n")[1].split("\n## ")[0]
    described_once = {"--json", "--source", "--no-discover", "--help"}
    options = [one.opts[-1] for one in find_command(name).params if isinstance(one, click.Option)]
    assert [option for option in options if option not in described_once and option not in section] == []
