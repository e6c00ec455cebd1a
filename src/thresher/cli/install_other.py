"""`thresher install --with plugin`: show, write and remove an agent's plug-in."""

from collections.abc import Iterator, Mapping
from os import environ
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import click

from thresher.cli.common import print_output, print_text, program_name
from thresher.serve.plugins.plugin_files import (
    PLUGINS,
    Plugin,
    PluginChange,
    find_plugin_folder,
    plan_plugin,
    write_plugin,
)


class InstallRequest(NamedTuple):
    """The arguments of the command."""

    client: str
    write: bool
    remove: bool
    project: Path | None
    as_json: bool

    @property
    def words(self) -> str:
        """The command, without --write and --remove."""
        project = f" --project {quote(str(self.project))}" if self.project else ""
        return f"{program_name()} install {self.client}{project}"


def install_part(part: str, request: InstallRequest, command: tuple[str, ...], variables: Mapping[str, str]) -> int:
    """Install a part other than the MCP server, and return the exit code."""
    return _install_plugin(request, (*command, "fit", "--hook"), variables)


def _install_plugin(request: InstallRequest, command: tuple[str, ...], variables: Mapping[str, str]) -> int:
    plugin = PLUGINS.get(request.client)
    if plugin is None:
        raise click.UsageError(
            f"there is no plug-in for {request.client}. Agents with one: {', '.join(PLUGINS)}. "
            f"For the others: {program_name()} run AGENT, or {program_name()} proxy."
        )
    folder = find_plugin_folder(plugin, request.project, environ)
    changes = plan_plugin(plugin, folder, command, variables, remove=request.remove)
    is_changed = bool(changes) and (request.write or request.remove)
    backups = write_plugin(changes, folder) if is_changed else []
    if request.as_json:
        value: dict[str, Any] = {"client": request.client, "part": "plugin", "folder": str(folder)}
        value |= {"files": [str(folder / name) for name in plugin.files], "command": command}
        value |= {"change_needed": bool(changes), "changed": is_changed, "backups": [str(file) for file in backups]}
        print_output(value)
        return 0
    for line in _format_plugin(plugin, folder, changes, backups, request):
        print_text(line)
    return 0


def _format_plugin(
    plugin: Plugin, folder: Path, changes: list[PluginChange], backups: list[Path], request: InstallRequest
) -> Iterator[str]:
    again = f"{request.words} --with plugin"
    if not changes:
        yield f"The plug-in {'is not' if request.remove else 'is already'} in {folder}; nothing to do."
        return
    if not request.write and not request.remove:
        yield f"{plugin.title} reads its plug-ins from {folder}. --write adds these files:"
    else:
        yield f"{'Removed from' if request.remove else 'Added to'} {folder}:"
    yield from (f"  {change.file.relative_to(folder)}" for change, _ in changes)
    yield from (f"backup: {file}" for file in backups)
    if request.write:
        yield f"Next: {plugin.next_step}."
        yield f"To remove it: {again} --remove"
    elif not request.remove:
        yield f"Nothing is written yet. To write it: {again} --write"
