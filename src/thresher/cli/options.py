"""The declaration of options, and the options that several commands share."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from thresher.cli.sources import SessionSources
from thresher.errors import suggest_name

DATE_EXAMPLES = "2026-03-01, today, or an age: 7d, 2w, 1y"
OUTPUT_FILE = click.Path(path_type=Path, dir_okay=False)
EXISTING_PATH = click.Path(exists=True, path_type=Path)
Command = Callable[..., None]


class NameChoice(click.Choice[str]):
    """A choice of names that suggests the most similar name for a misspelled one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the names."""
        if value not in self.choices:
            names = ", ".join(self.choices)
            self.fail(f"unknown value `{value}`.{suggest_name(str(value), self.choices)} Valid: {names}.", param, ctx)
        return str(value)


def option(declaration: str, text: str, *, name: str = "", **settings: Any) -> Callable[[Command], Command]:
    """Declare an option in the form that help prints: `--budget -b TOKENS`, or `--full` for a flag."""
    words = declaration.split()
    flags = [word for word in words if word.startswith("-")]
    kind = {"is_flag": True} if words == flags else {"metavar": words[-1]}
    defaults = {"show_default": bool(settings.get("default"))}
    return click.option(*flags, *filter(None, [name]), help=text, **kind | defaults | settings)


class WholeNumber(click.IntRange):
    """A whole number in a range, which help and errors describe in words: "1 or more", "0 to 65535"."""

    name = "whole number"

    def _describe_range(self) -> str:
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"


json_option = option("--json", "Print JSON, and nothing else, on standard output.", name="as_json")
reveal_option = option("--reveal", "Print keys, tokens and passwords unredacted.")
no_sync_option = option("--no-sync", "Skip the sync: use the archive as it is.")
project_option = option("--project TEXT", "Only sessions whose folder path contains this text.", default="")
output_option = option(
    "--output -o FILE", "Write the result to this file instead of standard output.", type=OUTPUT_FILE
)
request_budget_option = option(
    "--budget -b TOKENS",
    "Maximum size of a request: 60000, 60k. Default: 70 % of the model's context window. Below it, content is removed "
    "as soon as sending it again has cost as much as its removal.",
)
request_policy_option = option("--policy -p NAME", "Policy or preset that chooses what to remove.", default="auto")
observe_option = option("--observe", "Change no request, and report what Thresher would have done and saved.")
diagnose_option = option(
    "--diagnose-cache",
    "Ask the API with each request why its cache did not serve it, and report which misses are Thresher's.",
)
whole_option = option("--whole", "Include the whole session. Default: only the messages since the last compaction.")


def source_options(command: Command) -> Command:
    """Add `--source` and `--no-discover`, and pass both to the command as one `SessionSources`."""

    @option("--source PATH", "Also read this file or folder. Repeatable.", multiple=True, type=EXISTING_PATH)
    @option("--no-discover", "Skip the folders where agents on this machine keep sessions.")
    @wraps(command)
    def command_with_sources(*, source: tuple[Path, ...], no_discover: bool, **options: Any) -> None:
        command(sources=SessionSources(source, discover=not no_discover), **options)

    return command_with_sources
