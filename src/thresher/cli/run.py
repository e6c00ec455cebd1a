"""`thresher run`: start an agent with its requests going through a proxy of its own."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from thresher.cli.common import JSON_SCHEMA, print_text, program_name, warn
from thresher.cli.options import (
    OUTPUT_FILE,
    diagnose_option,
    observe_option,
    option,
    request_budget_option,
    request_policy_option,
)
from thresher.render.proxy import format_run_report

if TYPE_CHECKING:
    from thresher.serve.launch.agent import Agent, Launch
    from thresher.serve.proxy.options import ProxyOptions

SEPARATOR = "--"


class _AgentCommandLine(click.Command):
    """A command line that ends with another one, which may start with `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # click drops the first `--`. Doubled, one stays if nothing but options stands before it.
        at = args.index(SEPARATOR) if SEPARATOR in args else len(args)
        rest = super().parse_args(ctx, [*args[:at], SEPARATOR, *args[at:]] if at < len(args) else args)
        words = list(ctx.params["command"])
        ctx.params["is_any"] = words[:1] == [SEPARATOR]
        if at < len(args):
            words.remove(SEPARATOR)
        ctx.params["command"] = tuple(words)
        return rest


@click.command("run", cls=_AgentCommandLine, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="AGENT [ARGS…]")
@request_budget_option
@request_policy_option
@observe_option
@diagnose_option
@option("--dry-run", "Print what would be started, and start nothing.")
@option("--report FILE", "Also write the figures of the run to this file, as JSON.", type=OUTPUT_FILE)
def run_command(
    command: tuple[str, ...],
    is_any: bool,
    budget: str | None,
    policy: str,
    observe: bool,
    diagnose_cache: bool,
    dry_run: bool,
    report: Path | None,
) -> None:
    """Run an agent behind a proxy of its own.

    The proxy fits the agent's requests into a token budget and keeps the prompt cache warm. AGENT is claude, codex,
    gemini, opencode, pi, cline, aider or goose, with its own arguments. It keeps this terminal,
    and its exit code is the exit code of this command. Its base URL changes for this run only: none of its files is
    written. When it ends, a report says what the run has cost and what it would have cost without Thresher. Any other
    command follows `--`, and gets the base URLs in the variables of the vendors' SDKs. It needs `pip install
    'thresher[serve]'`.

    \b
    Examples:
      thresher run claude
      thresher run --observe claude             change nothing, report everything
      thresher run --budget 80k codex exec "fix the test"
      thresher run --dry-run gemini             show the settings, start nothing
      thresher run -- python my_agent.py
    """
    from thresher.serve.launch.agent import LaunchContext
    from thresher.serve.launch.launcher import find_program

    program, *arguments = command
    agent = _find_agent(program, is_any=is_any)
    path = find_program(program, os.environ)
    launch = agent.plan(LaunchContext(tuple(arguments), os.environ, Path.home(), Path.cwd()))
    if dry_run:
        _print_plan(path, launch)
        return
    _print_notes(agent, launch)
    from thresher.serve.proxy.options import ProxyOptions

    options = ProxyOptions(budget=budget, policy=policy, observe=observe, diagnose_cache=diagnose_cache)
    sys.exit(_run(path, launch, options, report))


def _find_agent(program: str, *, is_any: bool) -> "Agent":
    from thresher.errors import suggest_name
    from thresher.serve.launch.table import AGENTS, describe_command

    name = Path(program).stem
    if is_any:
        return describe_command(program)
    if name not in AGENTS:
        raise click.UsageError(
            f"unknown agent `{program}`; known: {', '.join(AGENTS)}.{suggest_name(name, AGENTS)} To run any other "
            f"command: {program_name()} run -- {program}"
        )
    return AGENTS[name]


def _print_plan(path: str, launch: "Launch") -> None:
    """Print the command and the variables of a run, with a placeholder for the port."""
    from tempfile import TemporaryDirectory

    from thresher.serve.launch.launcher import build_command, find_routes

    routes = find_routes(launch)
    with TemporaryDirectory() as folder:
        command = build_command(launch, "http://127.0.0.1:PORT", Path(folder))
    print_text("Variables:" if command.variables else "Variables: none")
    for name, value in command.variables.items():
        print_text(f"  {name}={value}")
    print_text(f"Command:\n  {join((path, *command.arguments))}")
    print_text("Requests go to:")
    for name, url in routes.items():
        print_text(f"  {name}: {url}")
    for note in launch.notes:
        print_text(f"Note: {note}.")


def _print_notes(agent: "Agent", launch: "Launch") -> None:
    """Print what differs in this run, and once for each agent what it does not offer behind a proxy."""
    from thresher.store.home import create_private_folder, get_data_folder

    for note in launch.notes:
        warn(f"thresher: {note}")
    told = get_data_folder() / "run-notes" / agent.program
    if agent.costs and not told.exists():
        warn(f"thresher: {agent.costs} (said once)")
        with suppress(OSError):
            create_private_folder(told.parent)
            told.touch(mode=0o600)


def _run(path: str, launch: "Launch", options: "ProxyOptions", report: Path | None) -> int:
    from thresher.serve.launch.launcher import run_agent

    finished = run_agent(path, launch, options, os.environ)
    status = finished.status["proxy"]
    print_text("\nThresher", to_stderr=True)
    for line in format_run_report(status, finished.problems, program_name()):
        print_text(f"  {line}", to_stderr=True)
    if report is not None:
        value = {"schema": JSON_SCHEMA, "exit_code": finished.exit_code, "problems": finished.problems, **status}
        report.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
    return finished.exit_code
