"""Clients of the MCP server: the configuration file of each one, and how to add or remove the server entry.

Each client is a row of the table `MCP_CLIENTS`. A configuration file belongs to the user, who may have formatted and
commented it. So the file is never decoded and encoded again. The entry is inserted into the text or removed from it,
and the result must parse to the same values except for the entry. If it does not, nothing is written, and the user gets
the entry to add by hand. A JSON file with comments is not changed either, because only its author knows the right
position for the entry.

Fields that the user added to the entry stay, such as variables and timeouts. Removing the last entry also removes the
table of servers.
"""

import json
import os
import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from thresher.errors import ThresherError
from thresher.serve.config_edits import (
    SERVER_NAME,
    remove_json_entry,
    remove_toml_entry,
    set_json_entry,
    set_toml_entry,
)

_PROGRAM, _ARGUMENTS, _COMMAND_LINE = "{program}", "{arguments}", "{words}"
_STDIO = {"type": "stdio", "command": _PROGRAM, "args": _ARGUMENTS}


class McpClientError(ThresherError):
    """A client's configuration file could not be read or written."""


class ManualEditError(McpClientError):
    """A client's configuration file needs a manual edit."""


class McpClient(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers, with its possible configuration files: the first existing one is used."""

    title: str
    folders: Mapping[str, tuple[str, str]]
    """For each platform ("" for any other): the variable with the folder of `user_files`, and the default folder."""
    user_files: tuple[str, ...]
    project_files: tuple[str, ...]
    servers_key: str = "mcpServers"
    """Key of the server table in the file."""
    entry_template: Mapping[str, Any]
    env_key: str = "env"
    """Key of the environment variables in the entry."""
    check_command: str
    """Command that lists the servers of the client."""
    next_step: str = "start a new session"
    project_next_step: str
    """Next step after a change of a project file. Most clients ask for approval of such a file."""


MCP_CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        title="Claude Code",
        folders={"": ("CLAUDE_CONFIG_DIR", "~")},
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        entry_template=_STDIO,
        check_command="claude mcp list",
        project_next_step="start a new session there and approve the server when asked",
    ),
    "codex": McpClient(
        title="Codex",
        folders={"": ("CODEX_HOME", "~/.codex")},
        user_files=("config.toml",),
        project_files=(".codex/config.toml",),
        servers_key="mcp_servers",
        entry_template={"command": _PROGRAM, "args": _ARGUMENTS},
        check_command="codex mcp list",
        project_next_step="start a new session there; Codex reads the file only if the project is trusted",
    ),
    "gemini-cli": McpClient(
        title="Gemini CLI",
        folders={"": ("GEMINI_CLI_HOME", "~")},
        user_files=(".gemini/settings.json",),
        project_files=(".gemini/settings.json",),
        entry_template={"command": _PROGRAM, "args": _ARGUMENTS},
        check_command="gemini mcp list",
        next_step="start a new session, in a folder that Gemini CLI trusts",
        project_next_step="start a new session there and trust the folder if asked",
    ),
    "opencode": McpClient(
        title="opencode",
        folders={"": ("XDG_CONFIG_HOME", "~/.config")},
        user_files=("opencode/opencode.json", "opencode/opencode.jsonc"),
        project_files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        servers_key="mcp",
        entry_template={"type": "local", "command": _COMMAND_LINE, "enabled": True},
        env_key="environment",
        check_command="opencode mcp list",
        next_step="start opencode again",
        project_next_step="start opencode there again and approve the server if asked",
    ),
    "cursor": McpClient(
        title="Cursor",
        folders={"": ("", "~")},
        user_files=(".cursor/mcp.json",),
        project_files=(".cursor/mcp.json",),
        entry_template=_STDIO,
        check_command="agent mcp list (Cursor's CLI), or the list of MCP servers in Cursor's settings",
        next_step="start Cursor again and see that the server is switched on",
        project_next_step="open the project again and see that the server is switched on",
    ),
    "vscode": McpClient(
        title="VS Code",
        folders={
            "": ("XDG_CONFIG_HOME", "~/.config"),
            "darwin": ("", "~/Library/Application Support"),
            "win32": ("APPDATA", "~/AppData/Roaming"),
        },
        user_files=("Code/User/mcp.json",),
        project_files=(".vscode/mcp.json",),
        servers_key="servers",
        entry_template=_STDIO,
        check_command="MCP: List Servers in the Command Palette",
        next_step="open the chat in agent mode and trust the server when asked",
        project_next_step="open the chat in agent mode there and trust the server when asked",
    ),
}


def find_client_config(
    client: McpClient, *, project: Path | None, platform: str, environment: Mapping[str, str]
) -> Path:
    """Return the client's configuration file in the project folder, or the user's if `project` is None."""
    if project is not None:
        folder, names = project, client.project_files
    else:
        variable, usual = client.folders.get(platform) or client.folders[""]
        home = environment.get("USERPROFILE" if platform == "win32" else "HOME") or str(Path.home())
        folder, names = Path(environment.get(variable) or usual.replace("~", home, 1)), client.user_files
    files = [folder.absolute() / name for name in names]
    return next((file for file in files if os.access(file, os.F_OK)), files[0])


def build_server_entry(client: McpClient, command: tuple[str, ...], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry that makes the client start a command with these variables."""
    filled = {_PROGRAM: command[0], _ARGUMENTS: list(command[1:]), _COMMAND_LINE: list(command)}
    entry = {name: filled.get(value, value) for name, value in client.entry_template.items()}
    return entry | ({client.env_key: dict(variables)} if variables else {})


class ConfigChange(NamedTuple):
    """A planned change of a configuration file: its current and its new content."""

    file: Path
    old_content: bytes | None
    new_content: bytes | None
    """New content of the file; None if nothing changes."""
    current_entry: Mapping[str, Any] | None
    """The entry in the current content; None if there is none."""
    new_entry: Mapping[str, Any] | None
    """The new entry, with the fields that the user added; None if the entry is removed."""


def plan_config_change(client: McpClient, file: Path, entry: Mapping[str, Any] | None) -> ConfigChange:
    """Return the change that sets an entry, or that removes it if `entry` is None."""
    before = read_config_file(file)
    text, plain, values = parse_config(file, (before or b"").removeprefix(BOM_UTF8))
    servers = _get_table(file, values, client.servers_key)
    current = _get_table(file, servers, SERVER_NAME) if SERVER_NAME in servers else None
    wanted = None if entry is None else _merge_entry(current or {}, entry)
    if wanted == current:
        return ConfigChange(file, before, None, current, wanted)
    if not plain:
        raise ManualEditError(f"`{file}` has comments or trailing commas, so nothing was changed")
    if current and wanted and "command" not in current:
        raise ManualEditError(f"`{file}` has an entry `{SERVER_NAME}` without a command, so nothing was changed")
    mark = BOM_UTF8 if (before or b"").startswith(BOM_UTF8) else b""
    after = mark + _edit_config(file, text, client.servers_key, values, wanted)
    return ConfigChange(file, before, after, current, wanted)


def format_server_entry(client: McpClient, file: Path, entry: Mapping[str, Any]) -> str:
    """Format the entry as a complete configuration file."""
    _, set_entry, _ = _config_language(file)
    return set_entry("", client.servers_key, entry)


def read_config_file(file: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a folder" if file.is_dir() else error.strerror or error
        raise McpClientError(f"cannot read `{file}`: {reason}; check the path") from error


def parse_config(file: Path, content: bytes) -> tuple[str, bool, dict[str, Any]]:
    """Return the text, True if it is standard JSON or TOML (without comments in JSON), and the parsed values."""
    parse, _, _ = _config_language(file)
    try:
        text = content.decode()
        if not text.strip():
            return text, True, {}
        try:
            return text, True, _get_table(file, {"": parse(text)}, "")
        except ValueError:
            return text, False, _get_table(file, {"": parse(_strip_comments(text))}, "")
    except (ValueError, RecursionError) as error:
        raise ManualEditError(f"cannot parse `{file}`, so nothing was changed ({error}); repair it first") from error


def _strip_comments(text: str) -> str:
    """Replace comments and trailing commas in JSON by spaces, so that all offsets stay the same."""
    for noise in (r"//[^\n]*|/\*.*?\*/", r",(?=\s*[}\]])"):
        pattern = re.compile(rf'("(?:\\.|[^"\\])*")|{noise}', re.DOTALL)
        text = pattern.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    return text


def _get_table(file: Path, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        name = f"`{key}` in `{file}`" if key else f"`{file}`"
        raise ManualEditError(f"{name} is not a table of keys and values, so nothing was changed; repair it first")
    return table


def _merge_entry(current: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the entry into the current one; fields and variables that the user added stay."""
    both = {name for name, value in entry.items() if isinstance(value, dict) and isinstance(current.get(name), dict)}
    return {**current, **entry, **{name: {**current[name], **entry[name]} for name in both}}


def _edit_config(file: Path, text: str, key: str, values: dict[str, Any], wanted: Mapping[str, Any] | None) -> bytes:
    """Return the new content of a file with or without the entry; raise an error if it does not parse as expected."""
    parse, set_entry, remove_entry = _config_language(file)
    servers = {name: value for name, value in values.get(key, {}).items() if name != SERVER_NAME}
    servers |= {} if wanted is None else {SERVER_NAME: wanted}
    expected = {name: value for name, value in values.items() if name != key} | ({key: servers} if servers else {})
    with suppress(ValueError):
        edited = remove_entry(text, key) if wanted is None else set_entry(text, key, wanted)
        if {name: value for name, value in parse(edited).items() if name != key or value} == expected:
            return edited.encode()
    raise ManualEditError(f"`{file}` cannot be changed safely, so nothing was changed")


_ConfigLanguage = tuple[Callable[[str], Any], Callable[[str, str, Mapping[str, Any]], str], Callable[[str, str], str]]


def _config_language(file: Path) -> _ConfigLanguage:
    """Return the functions that parse a file, set the entry in its text, and remove the entry."""
    if file.suffix == ".toml":
        return tomllib.loads, set_toml_entry, remove_toml_entry
    return json.loads, set_json_entry, remove_json_entry
