"""`thresher install`: the entry in a client's configuration that starts Thresher's MCP server.

What is to change is worked out in `thresher.serve.mcp_clients`; here it is shown, and written if asked. A client may
read or write its file at any moment, so the file is replaced in one step, and only if it still says what was read.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import click

from thresher.cli.common import json_option, print_output, program_name, warn
from thresher.serve.config_edits import SERVER_NAME
from thresher.serve.mcp_clients import (
    MCP_CLIENTS,
    ConfigChange,
    ManualEditError,
    McpClient,
    McpClientError,
    build_server_entry,
    find_client_config,
    format_server_entry,
    plan_config_change,
)

BACKUP_SUFFIX = ".before-thresher"


@click.command("install")
@click.argument("client", type=click.Choice(list(MCP_CLIENTS)), metavar="CLIENT")
@click.option("--write", is_flag=True, help="Write it; a copy of the file as it was stays beside it.")
@click.option("--remove", is_flag=True, help="Take the entry out again, with a copy as well.")
@click.option(
    "--project",
    is_flag=False,
    flag_value=".",
    metavar="[DIR]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The file of the project in this folder (default: here), not the user's.",
)
@json_option
def install_command(client: str, write: bool, remove: bool, project: Path | None, as_json: bool) -> None:
    """Show what makes CLIENT start Thresher's MCP server, and write it if asked.

    CLIENT is one of claude-code, codex, gemini-cli, opencode, cursor, vscode. Without --write and --remove nothing
    is changed. All else in the file stays as it is; a file with comments, or one that cannot be changed safely, is
    left alone, and you are told what to put where.

    Exits 0 where all is done, 1 where it is left to you, 2 on wrong use.

    \b
    Examples:
      thresher install claude-code
      thresher install codex --write
      thresher install vscode --project --write
      thresher install cursor --remove --json
    """
    if write and remove:
        raise click.UsageError("--write puts the entry in, --remove takes it out; not both")
    row = MCP_CLIENTS[client]
    file = find_client_config(row, project=project, platform=sys.platform, environment=os.environ)
    entry = build_server_entry(row, find_mcp_server_command(), _variables())
    value = {"client": client, "file": str(file), "key": row.servers_key, "entry": entry, "check": row.check_command}
    again = f"{program_name()} install {client}" + (f" --project {quote(str(project))}" if project else "")
    try:
        change = plan_config_change(row, file, None if remove else entry)
        wanted = change.new_content is not None and (write or remove)
        backup = write_config_change(change) if wanted else None
    except ManualEditError as error:
        _print_manual_steps(row, error, value, remove=remove, as_json=as_json)
        sys.exit(1)
    if as_json:
        print_output(value | _change_value(change, backup, changed=wanted))
        return
    for line in _format_result(row, change, backup, again, asked=write or remove, project=project is not None):
        click.echo(line.encode("utf-8", "replace"))


def find_mcp_server_command() -> tuple[str, ...]:
    """What starts the server: this program by its full path, or, where it was not called by its name, its module."""
    found = shutil.which(program_name())
    if found and Path(found).stem == "thresher":
        return (str(Path(found).absolute()), "mcp")
    return (sys.executable, "-m", "thresher.cli", "mcp")


def _variables() -> dict[str, str]:
    """Some clients hand on few variables, and a server with its data elsewhere would know nothing."""
    folder = os.environ.get("THRESHER_HOME")
    return {"THRESHER_HOME": str(Path(folder).expanduser().absolute())} if folder else {}


def write_config_change(change: ConfigChange) -> Path | None:
    """Write what was planned; gives back where the file is as it was, if there was one."""
    try:
        real = change.file.resolve()  # a link stays a link
        real.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)  # for the user alone
        fresh = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(change.new_content or b"")
            return _swap_file(real, fresh, change)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise McpClientError(f"`{change.file}` cannot be written: {reason}; see who may write there") from error


def _swap_file(real: Path, fresh: Path, change: ConfigChange) -> Path | None:
    if (real.read_bytes() if real.exists() else None) != change.old_content:
        raise McpClientError(f"`{change.file}` was changed by another program just now; try again")
    backup = None
    if change.old_content is not None:
        fresh.chmod(real.stat().st_mode & 0o7777)
        backup = _write_backup(real, change.old_content)
    fresh.replace(real)
    return backup


def _write_backup(real: Path, content: bytes) -> Path:
    """A copy beside the file, under a name that no older copy has."""
    number = 1
    while True:
        backup = real.with_name(f"{real.name}{BACKUP_SUFFIX}{f'-{number}' if number > 1 else ''}")
        try:
            handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        backup.chmod(real.stat().st_mode & 0o7777)
        return backup


def _change_value(change: ConfigChange, backup: Path | None, *, changed: bool) -> dict[str, Any]:
    return {
        "entry": change.new_entry,
        "current_entry": change.current_entry,
        "change_needed": change.new_content is not None,
        "changed": changed,
        "backup": str(backup) if backup else None,
        "problem": None,
    }


def _print_manual_steps(
    row: McpClient, error: ManualEditError, value: dict[str, Any], *, remove: bool, as_json: bool
) -> None:
    """What could not be done, and how to do it by hand."""
    if as_json:
        print_output(
            value
            | {"current_entry": None, "change_needed": True, "changed": False, "backup": None, "problem": str(error)}
        )
        warn(f"thresher: {error}")
        return
    warn(f"thresher: {error}.")
    if remove:
        click.echo(f"Take `{SERVER_NAME}` out of `{row.servers_key}` there by hand.")
    else:
        text = format_server_entry(row, Path(value["file"]), value["entry"])
        click.echo(f"Put `{SERVER_NAME}` into `{row.servers_key}` there by hand, so that it says:\n\n{text}")
        click.echo(f"To see that it works: {row.check_command}")


def _format_result(
    row: McpClient, change: ConfigChange, backup: Path | None, again: str, *, asked: bool, project: bool
) -> Iterator[str]:
    """The same for a person."""
    if change.new_content is None:
        there = "is there already" if change.new_entry else "is not there"
        yield f"The entry `{SERVER_NAME}` {there}, in {change.file}; nothing to do."
    elif not asked:
        yield from _format_preview(row, change, again)
        return
    else:
        done = "Written to" if change.new_entry else "Taken out of"
        yield f"{done} {change.file}" + (f"; as it was before: {backup}" if backup else "")
    if change.new_entry is None:
        return
    if change.new_content is not None:
        yield f"Next: {row.project_next_step if project else row.next_step}."
    if project:
        yield "The path in it is this machine's; mind that if others get the file."
    yield f"To see that it works: {row.check_command}"
    yield f"To take it out again: {again} --remove"


def _format_preview(row: McpClient, change: ConfigChange, again: str) -> Iterator[str]:
    missing = "" if change.old_content is not None else " (not there yet)"
    yield f"{row.title} reads its MCP servers from {change.file}{missing}."
    if change.current_entry is not None:
        yield (
            f"There is an entry `{SERVER_NAME}` with other values "
            f"now:\n\n{format_server_entry(row, change.file, change.current_entry)}"
        )
    yield f"With --write this would be in it:\n\n{format_server_entry(row, change.file, change.new_entry or {})}"
    yield f"Nothing is written yet. To write it: {again} --write"
