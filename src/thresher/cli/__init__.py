"""The command line: one file a verb, imported when that verb is used.

In: arguments. Out: text for a person, or JSON with `--json`. Exits 0 done, 1 found something wrong, 2 wrong use.
"""

import sys
from importlib import import_module

import click

from thresher.errors import OptionError, ThresherError

COMMAND_MODULES = {
    "sessions": "thresher.cli.sessions",
    "show": "thresher.cli.show",
    "search": "thresher.cli.search",
    "recall": "thresher.cli.recall",
    "files": "thresher.cli.files",
    "changelog": "thresher.cli.changelog",
    "fit": "thresher.cli.fit",
    "replay": "thresher.cli.replay",
    "tune": "thresher.cli.tune",
    "check": "thresher.cli.check",
    "restore": "thresher.cli.restore",
    "convert": "thresher.cli.convert",
    "sync": "thresher.cli.sync",
    "forget": "thresher.cli.forget",
    "install": "thresher.cli.install",
    "mcp": "thresher.cli.mcp",
    "demo": "thresher.cli.demo",
}


class CommandGroup(click.Group):
    """Finds a verb's command when it is asked for, so that help and short commands start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs in the order of a first visit."""
        return list(COMMAND_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's own module."""
        if cmd_name not in COMMAND_MODULES:
            return None
        function = "recall_session_command" if cmd_name == "recall" else f"{cmd_name}_command"
        command: click.Command = getattr(import_module(COMMAND_MODULES[cmd_name]), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb and what is said to it; one that is typed wrong is told which was meant."""
        if args[0] not in COMMAND_MODULES and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMAND_MODULES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(COMMAND_MODULES)}"
            raise click.UsageError(f"there is no verb `{args[0]}`; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thresher", message="thresher %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Print data, nothing else, on standard output.")
@click.pass_context
def cli(context: click.Context, as_json: bool) -> None:
    """Read any AI agent's conversations through one small model.

    Without a verb: what is on this machine.

    \b
    Examples:
      thresher                          which agents' sessions are here
      thresher sessions                 list them
      thresher show 0f3c9a1e            read one
      thresher search jwt refresh       find where it was done
      thresher fit 0f3c9a1e -b 60k      make it fit
      thresher convert s.jsonl --to openai-chat
      thresher demo                     try it on sample sessions
    """
    if context.invoked_subcommand is None:
        from thresher.cli.overview import show_overview

        show_overview(as_json=as_json)


def main() -> None:
    """Run the command line; a refusal is a sentence and an exit code, not a traceback."""
    try:
        cli()
    except ThresherError as error:
        click.echo(f"thresher: {error}", err=True)
        sys.exit(2 if isinstance(error, OptionError) else 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
