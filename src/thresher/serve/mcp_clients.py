"""Clients of the MCP server: where each keeps its list of servers, and how our entry gets in and out again.

A client is a row of a table. Its file belongs to its user, who may have arranged and commented it, so the file is never
read and written anew: the entry is put into the text as it stands, or cut out of it, and the result has to say the same
as before but for the entry. Where that cannot be shown, nothing is written and the user is told what to do by hand. So
it is with comments in JSON: they could be kept, but who writes a file by hand knows best where something belongs.

What the user added to the entry stays: variables, time limits. The table of servers goes with its last entry.
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
    """A client's file cannot be read or written."""


class ManualEditError(McpClientError):
    """A client's file is not one that can be changed without harm."""


class McpClient(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers. Files are tried in their order; where none is there, the first is made."""

    title: str
    folders: Mapping[str, tuple[str, str]]
    """By platform ("" is any other): the variable that names the folder of the user's file, and where it is without."""
    user_files: tuple[str, ...]
    project_files: tuple[str, ...]
    servers_key: str
    """The table of servers in the file."""
    entry_template: Mapping[str, Any]
    env_key: str = "env"
    """What the entry calls its environment."""
    check_command: str
    """How to see that the client starts the server."""
    next_step: str
    project_next_step: str
    """What the user does next; a project's file may have come from anybody, so most clients ask."""


MCP_CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient(
        title="Claude Code",
        folders={"": ("CLAUDE_CONFIG_DIR", "~")},
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        servers_key="mcpServers",
        entry_template=_STDIO,
        check_command="claude mcp list",
        next_step="start a new session",
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
        next_step="start a new session",
        project_next_step="start a new session there; Codex reads the file only if the project is trusted",
    ),
    "gemini-cli": McpClient(
        title="Gemini CLI",
        folders={"": ("GEMINI_CLI_HOME", "~")},
        user_files=(".gemini/settings.json",),
        project_files=(".gemini/settings.json",),
        servers_key="mcpServers",
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
        servers_key="mcpServers",
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
    """The file to change: the user's, or that of a project."""
    if project is not None:
        folder, names = project, client.project_files
    else:
        variable, usual = client.folders.get(platform) or client.folders[""]
        home = environment.get("USERPROFILE" if platform == "win32" else "HOME") or str(Path.home())
        folder, names = Path(environment.get(variable) or usual.replace("~", home, 1)), client.user_files
    files = [folder.absolute() / name for name in names]
    return next((file for file in files if os.access(file, os.F_OK)), files[0])


def build_server_entry(client: McpClient, command: tuple[str, ...], variables: Mapping[str, str]) -> dict[str, Any]:
    """What makes the client start the command, with these variables."""
    filled = {_PROGRAM: command[0], _ARGUMENTS: list(command[1:]), _COMMAND_LINE: list(command)}
    entry = {name: filled.get(value, value) for name, value in client.entry_template.items()}
    return entry | ({client.env_key: dict(variables)} if variables else {})


class ConfigChange(NamedTuple):
    """What a file says now, and what it is to say; nothing has been written."""

    file: Path
    old_content: bytes | None
    new_content: bytes | None
    """None where nothing is to change."""
    current_entry: Mapping[str, Any] | None
    """The entry that is there."""
    new_entry: Mapping[str, Any] | None
    """The entry that is to be there: with what the user added to it."""


def plan_config_change(client: McpClient, file: Path, entry: Mapping[str, Any] | None) -> ConfigChange:
    """The change that puts an entry in; without one, the change that takes it out."""
    before = _read_file(file)
    text, plain, values = _parse_config(file, (before or b"").removeprefix(BOM_UTF8))
    servers = _get_table(file, values, client.servers_key)
    found = _get_table(file, servers, SERVER_NAME) if SERVER_NAME in servers else None
    wanted = None if entry is None else _merge_entry(found or {}, entry)
    if wanted == found:
        return ConfigChange(file, before, None, found, wanted)
    if not plain:
        raise ManualEditError(f"`{file}` has comments or trailing commas, so it is left as it is")
    if found and wanted and "command" not in found:
        raise ManualEditError(f"`{file}` has an entry `{SERVER_NAME}` that starts no program, so it is left as it is")
    mark = BOM_UTF8 if (before or b"").startswith(BOM_UTF8) else b""
    return ConfigChange(
        file, before, mark + _edit_config(file, text, client.servers_key, values, wanted), found, wanted
    )


def format_server_entry(client: McpClient, file: Path, entry: Mapping[str, Any]) -> str:
    """The entry as a file with nothing else would hold it."""
    _, put, _ = _config_language(file)
    return put("", client.servers_key, entry)


def _read_file(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a folder" if file.is_dir() else error.strerror or error
        raise McpClientError(f"`{file}` cannot be read: {reason}; see what is there") from error


def _parse_config(file: Path, content: bytes) -> tuple[str, bool, dict[str, Any]]:
    """The text; whether it is plain, without what only some readers of JSON allow; and what it says."""
    read, _, _ = _config_language(file)
    try:
        text = content.decode()
        if not text.strip():
            return text, True, {}
        try:
            return text, True, _get_table(file, {"": read(text)}, "")
        except ValueError:
            return text, False, _get_table(file, {"": read(_strip_comments(text))}, "")
    except (ValueError, RecursionError) as error:
        raise ManualEditError(f"`{file}` cannot be read, so it is left as it is ({error}); mend it first") from error


def _strip_comments(text: str) -> str:
    """JSON without its comments, then without trailing commas; all else stays, and stays in its place."""
    for noise in (r"//[^\n]*|/\*.*?\*/", r",(?=\s*[}\]])"):
        found = re.compile(rf'("(?:\\.|[^"\\])*")|{noise}', re.DOTALL)
        text = found.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    return text


def _get_table(file: Path, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key, {})
    if not isinstance(found, dict):
        what = f"`{key}` in `{file}`" if key else f"`{file}`"
        raise ManualEditError(f"{what} does not hold names with values, so it is left as it is; mend it first")
    return found


def _merge_entry(found: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry over what is there: what the user added stays, also among the variables."""
    both = {name for name, value in entry.items() if isinstance(value, dict) and isinstance(found.get(name), dict)}
    return {**found, **entry, **{name: {**found[name], **entry[name]} for name in both}}


def _edit_config(file: Path, text: str, key: str, values: dict[str, Any], wanted: Mapping[str, Any] | None) -> bytes:
    """The file with the entry, or without; proved by reading it."""
    read, put, cut = _config_language(file)
    servers = {name: value for name, value in values.get(key, {}).items() if name != SERVER_NAME}
    servers |= {} if wanted is None else {SERVER_NAME: wanted}
    expected = {name: value for name, value in values.items() if name != key} | ({key: servers} if servers else {})
    with suppress(ValueError):
        edited = cut(text, key) if wanted is None else put(text, key, wanted)
        if {name: value for name, value in read(edited).items() if name != key or value} == expected:
            return edited.encode()
    raise ManualEditError(f"`{file}` cannot be changed safely, so it is left as it is")


_ConfigLanguage = tuple[Callable[[str], Any], Callable[[str, str, Mapping[str, Any]], str], Callable[[str, str], str]]


def _config_language(file: Path) -> _ConfigLanguage:
    """How a file is read, how an entry is put into its text, and how it is cut out."""
    toml = file.suffix == ".toml"
    return (
        (tomllib.loads, set_toml_entry, remove_toml_entry) if toml else (json.loads, set_json_entry, remove_json_entry)
    )
