"""`thresher install`: connect an agent with Thresher's MCP server, its proxy, or its plug-in.

`thresher.serve.mcp_clients` computes the change for the MCP server, and `thresher.serve.config_writing` writes it. This
module shows it; `install_other` does the same for the proxy and the plug-in.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import click

from thresher.cli.common import print_output, print_text, program_name, warn
from thresher.cli.install_other import InstallRequest, install_part
from thresher.cli.options import NameChoice, json_option, option
from thresher.serve.config_edits import SERVER_NAME
from thresher.serve.config_writing import write_config_change
from thresher.serve.mcp_clients import (
    MCP_CLIENTS,
    ConfigChange,
    ManualEditError,
    McpClient,
    build_server_entry,
    find_client_config,
    format_server_entry,
    plan_config_change,
)
from thresher.serve.plugins.plugin_files import PLUGINS
from thresher.serve.server_check import check_server_starts


@click.command("install")
@click.argument("client", type=NameChoice(list(dict.fromkeys([*MCP_CLIENTS, *PLUGINS]))), metavar="AGENT")
@option(
    "--with PART",
    "Part to set up: mcp, the MCP server (default); proxy, the base URL of `thresher proxy`; plugin, a plug-in that "
    "fits requests without a proxy.",
    name="part",
    type=NameChoice(["mcp", "proxy", "plugin"]),
    default="mcp",
    show_default=False,
)
@option("--write", "Write the change, and keep a copy of the old file next to the new one.")
@option("--remove", "Remove the entry, and keep a copy of the old file next to the new one.")
@option(
    "--project [DIR]",
    "Change the configuration of the project in DIR (default: the current folder), not the user's.",
    is_flag=False,
    flag_value=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@json_option
def install_command(client: str, part: str, write: bool, remove: bool, project: Path | None, as_json: bool) -> None:
    """Add Thresher's MCP server to an agent.

    Or, with --with, the proxy's base URL or a plug-in. AGENT is claude-code, codex, gemini-cli, opencode, cursor,
    vscode or pi; not every agent has every part. Without --write or --remove, the command shows the change and writes
    nothing. --write first starts the server once, and writes nothing if that fails. The rest of the file stays as it
    is. If a JSON file has comments, or if a file cannot be changed safely, the command prints the entry to paste.

    Exits 1 if the server does not start, or if you have to change the file by hand.

    \b
    Examples:
      thresher install claude-code
      thresher install codex --write
      thresher install vscode --project --write
      thresher install cursor --remove --json
      thresher install pi --with plugin --write
      thresher install claude-code --with proxy
    """
    if write and remove:
        raise click.UsageError("--write adds the entry and --remove removes it. Use one of them.")
    if part != "mcp":
        request = InstallRequest(client, write, remove, project, as_json)
        sys.exit(install_part(part, request, find_program_command(), _server_environment()))
    if client not in MCP_CLIENTS:
        raise click.UsageError(f"{client} has no MCP client. Agents with one: {', '.join(MCP_CLIENTS)}.")
    row = MCP_CLIENTS[client]
    file = find_client_config(row, project=project, platform=sys.platform, environment=os.environ)
    command, variables = find_mcp_server_command(), _server_environment()
    entry = build_server_entry(row, command, variables)
    value: dict[str, Any] = {"client": client, "file": str(file), "key": row.servers_key, "entry": entry}
    value |= {"check": row.check_command, "current_entry": None, "change_needed": True, "changed": False}
    value |= {"backup": None, "problem": None}
    try:
        change = plan_config_change(row, file, None if remove else entry)
        changed = change.new_content is not None and (write or remove)
        if changed and write:
            check_server_starts(command, variables)
        backup = write_config_change(change) if changed else None
    except ManualEditError as error:
        _print_manual_steps(row, error, value, remove=remove, as_json=as_json)
        sys.exit(1)
    if as_json:
        outcome = {
            "entry": change.new_entry,
            "current_entry": change.current_entry,
            "change_needed": change.new_content is not None,
            "changed": changed,
            "backup": str(backup) if backup else None,
        }
        print_output(value | outcome)
        return
    again = f"{program_name()} install {client}" + (f" --project {quote(str(project))}" if project else "")
    if change.new_content is not None and not changed:
        lines = _format_preview(row, change, again)
    else:
        lines = _format_outcome(row, change, backup, again, project=project is not None)
    for line in lines:
        print_text(line)


def find_mcp_server_command() -> tuple[str, ...]:
    """Return the command that starts the server."""
    return (*find_program_command(), "mcp")


def find_program_command() -> tuple[str, ...]:
    """Return the command that starts Thresher: the path of `thresher` if found, otherwise Python with the module."""
    program = shutil.which(program_name())
    if program and Path(program).stem == "thresher":
        return (str(Path(program).absolute()),)
    return (sys.executable, "-m", "thresher.cli")


def _server_environment() -> dict[str, str]:
    """Return THRESHER_HOME if it is set: some agents do not pass it on, and the server needs it to find the archive."""
    folder = os.environ.get("THRESHER_HOME")
    return {"THRESHER_HOME": str(Path(folder).expanduser().absolute())} if folder else {}


def _print_manual_steps(
    row: McpClient, error: ManualEditError, value: dict[str, Any], *, remove: bool, as_json: bool
) -> None:
    """Print why the file was not changed, and how to change it by hand."""
    warn(f"thresher: {error}")
    if as_json:
        print_output(value | {"problem": str(error)})
    elif remove:
        print_text(f"Remove `{SERVER_NAME}` from `{row.servers_key}` in that file by hand.")
    else:
        entry = format_server_entry(row, Path(value["file"]), value["entry"])
        print_text(f"Add `{SERVER_NAME}` to `{row.servers_key}` in that file by hand:\n\n{entry}")
        print_text(f"To check that it works: {row.check_command}")


def _format_outcome(
    row: McpClient, change: ConfigChange, backup: Path | None, again: str, *, project: bool
) -> Iterator[str]:
    is_present = change.new_entry is not None
    if change.new_content is None:
        state = "is already in" if is_present else "is not in"
        yield f"The entry `{SERVER_NAME}` {state} {change.file}; nothing to do."
    else:
        yield f"{'Added to' if is_present else 'Removed from'} {change.file}" + (
            f"; backup: {backup}" if backup else ""
        )
    if not is_present:
        return
    if change.new_content is not None:
        yield f"Next: {row.project_next_step if project else row.next_step}."
    if project:
        yield "The entry contains a path on this machine; change it if you share the file."
    yield f"To check that it works: {row.check_command}"
    yield f"To remove it: {again} --remove"


def _format_preview(row: McpClient, change: ConfigChange, again: str) -> Iterator[str]:
    missing = "" if change.old_content is not None else " (does not exist yet)"
    yield f"{row.title} reads its MCP servers from {change.file}{missing}."
    if change.current_entry is not None:
        current = format_server_entry(row, change.file, change.current_entry)
        yield f"The file has an entry `{SERVER_NAME}` with other values:\n\n{current}"
    yield f"--write adds this entry:\n\n{format_server_entry(row, change.file, change.new_entry or {})}"
    yield f"Nothing is written yet. To write it: {again} --write"
