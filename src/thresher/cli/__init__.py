"""The command line: one module per command, imported when that command runs.

Exit codes: 0 for success, 1 for a problem or no result, 2 for invalid usage.
"""

import sys
from importlib import import_module
from io import StringIO

import click

from thresher.errors import OptionError, ThresherError, suggest_name

COMMAND_GROUPS = {
    "Get started": {"demo": "Try Thresher on sample sessions."},
    "Find past sessions": {
        "sessions": "List the sessions on this machine.",
        "search": "Search the text of past sessions.",
        "recall": "Ask one past session a question.",
    },
    "Read a session": {
        "show": "Print one session as a readable transcript.",
        "files": "Show what a session did to each file.",
        "changelog": "List file changes and the reasons for them.",
    },
    "Fit sessions to a budget or an API": {
        "fit": "Trim a session to a token budget.",
        "check": "Check a conversation against an API's rules.",
        "restore": "Print the text behind a placeholder.",
        "convert": "Convert a session to messages for an API.",
    },
    "Measure policies on recorded sessions": {
        "replay": "Compare policies by replaying recorded sessions.",
        "tune": "Find the best settings of `auto` for your sessions.",
    },
    "Connect agents": {
        "run": "Run an agent behind a proxy of its own.",
        "install": "Add Thresher's MCP server to an agent.",
        "mcp": "Run the MCP server.",
        "proxy": "Run a proxy between an agent and a model's API.",
    },
    "Maintain the archive": {
        "sync": "Update the archive and the search index.",
        "annotate": "Let a model describe past sessions for the search.",
        "forget": "Delete sessions from the archive for good.",
    },
}
"""Commands under the headings of `thresher --help`, each with a copy of the first line of its docstring.

Thanks to the copies, `--help` imports no command. Command `x` is the function `x_command` in `thresher.cli.x`.
"""
COMMANDS = {name: summary for commands in COMMAND_GROUPS.values() for name, summary in commands.items()}


class CommandGroup(click.Group):
    """A group that imports a command's module on first use, so that help and short commands start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{cmd_name}"), f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands of each group under its heading, with all summaries in one column."""
        width = max(map(len, COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Split the arguments into a command and the arguments for it; suggest a name for an unknown command."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = suggest_name(args[0], COMMANDS) or f" Valid commands: {', '.join(COMMANDS)}."
            raise click.UsageError(f"Unknown command `{args[0]}`.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thresher", message="thresher %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Print the overview as JSON.")
@click.pass_context
def cli(context: click.Context, as_json: bool) -> None:
    """Search, read, trim and replay AI agents' conversations.

    Thresher reads the sessions that agents keep on this machine. Without a
    command, it prints an overview of them. Where a command takes SESSION, pass a
    file or the first characters of a session id. `thresher COMMAND --help`
    explains a command.

    Exit codes: 0 success, 1 problem or nothing found, 2 invalid usage.

    \b
    Examples:
      thresher                          which agents have sessions here
      thresher search jwt refresh       find sessions about this topic
      thresher show 0f3c9a1e            read a session
      thresher fit 0f3c9a1e -b 60k      preview trimming it to 60,000 tokens
      thresher run claude               run an agent with a smaller bill
      thresher install claude-code      give an agent access to past sessions
    """
    if context.invoked_subcommand is None:
        from thresher.cli.overview import show_overview

        show_overview(as_json=as_json)


def _print_error(error: click.ClickException | ThresherError) -> None:
    from thresher.cli.common import warn

    if isinstance(error, ThresherError):
        warn(f"thresher: {error}")
    else:
        shown = StringIO()
        error.show(shown)
        warn(shown.getvalue().rstrip("\n"))


def main() -> None:
    """Run the command line. Print an error as one message, without a traceback, and exit with a code."""
    try:
        code = cli(standalone_mode=False)
    except click.ClickException as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(1)
    except ThresherError as error:
        _print_error(error)
        sys.exit(2 if isinstance(error, OptionError) else 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)
