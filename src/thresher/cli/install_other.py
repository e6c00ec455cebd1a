"""`thresher install --with plugin` and `--with proxy`: show, write and remove a plug-in or a base URL."""

from collections.abc import Iterator, Mapping
from os import environ
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import click

from thresher.cli.common import print_output, print_text, program_name, warn
from thresher.serve.config_writing import write_config_change
from thresher.serve.mcp_clients import ConfigChange, ManualEditError
from thresher.serve.plugins.plugin_files import (
    PLUGINS,
    Plugin,
    PluginChange,
    find_plugin_folder,
    plan_plugin,
    write_plugin,
)
from thresher.serve.proxy_clients import (
    PROXY_CLIENTS,
    PROXY_URL,
    ProxyClient,
    find_proxy_config,
    plan_proxy_change,
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
    if part == "proxy":
        return _install_proxy(request)
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


def _install_proxy(request: InstallRequest) -> int:
    client = PROXY_CLIENTS.get(request.client)
    if client is None:
        raise click.UsageError(
            f"{request.client} has no base URL to set. Agents with one: {', '.join(PROXY_CLIENTS)}. "
            f"For others: {program_name()} run AGENT."
        )
    file = find_proxy_config(client, request.project, environ)
    value: dict[str, Any] = {"client": request.client, "part": "proxy", "file": str(file) if file else None}
    value |= {"url": PROXY_URL, "change_needed": True, "changed": False, "backup": None, "problem": None}
    try:
        if file is None:
            where = "the project's files" if request.project else "a file"
            raise ManualEditError(f"{client.title} does not read its base URL from {where}")
        change = plan_proxy_change(client, file, remove=request.remove)
        is_changed = change.new_content is not None and (request.write or request.remove)
        backup = write_config_change(change) if is_changed else None
    except ManualEditError as error:
        warn(f"thresher: {error}")
        if request.as_json:
            print_output(value | {"problem": str(error)})
        else:
            print_text("Remove the base URL by hand." if request.remove else f"By hand: {client.advice}.")
        return 1
    if request.as_json:
        value |= {"change_needed": change.new_content is not None, "changed": is_changed}
        print_output(value | {"backup": str(backup) if backup else None})
        return 0
    for line in _format_proxy(client, change, backup, request):
        print_text(line)
    return 0


def _format_proxy(
    client: ProxyClient, change: ConfigChange, backup: Path | None, request: InstallRequest
) -> Iterator[str]:
    again = f"{request.words} --with proxy"
    if change.new_content is None:
        yield f"{change.file} {'does not point' if request.remove else 'already points'} to {PROXY_URL}; nothing to do."
        return
    if request.remove:
        yield f"Removed from {change.file}" + (f"; backup: {backup}" if backup else "")
        return
    written = "Written to" if request.write else f"{client.title} reads its base URL from"
    yield f"{written} {change.file}" + (f"; backup: {backup}" if backup else "") + ":"
    yield from (f"  {name} = {url}" for name, url in (change.new_entry or {}).items())
    if not request.write:
        yield f"Nothing is written yet. To write it: {again} --write"
        return
    yield f"Next: start `{program_name()} proxy`, which must run whenever {client.title} does, and a new session."
    yield f"To remove it: {again} --remove"
