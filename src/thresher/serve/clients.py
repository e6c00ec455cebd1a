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

NAME = "thresher"
"""What the server is called in every client."""

_PROGRAM, _ARGUMENTS, _WORDS = "{program}", "{arguments}", "{words}"
_STDIO = {"type": "stdio", "command": _PROGRAM, "args": _ARGUMENTS}


class ClientError(ThresherError):
    """A client's file cannot be read or written."""


class ByHandError(ClientError):
    """A client's file is not one that can be changed without harm."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers. Files are tried in their order; where none is there, the first is made."""

    title: str
    folders: Mapping[str, tuple[str, str]]
    """By platform ("" is any other): the variable that names the folder of the user's file, and where it is without."""
    user: tuple[str, ...]
    project: tuple[str, ...]
    key: str
    """The table of servers in the file."""
    shape: Mapping[str, Any]
    variables: str = "env"
    """What the entry calls its environment."""
    check: str
    """How to see that the client starts the server."""
    after: str
    after_project: str
    """What the user does next; a project's file may have come from anybody, so most clients ask."""


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        title="Claude Code",
        folders={"": ("CLAUDE_CONFIG_DIR", "~")},
        user=(".claude.json",),
        project=(".mcp.json",),
        key="mcpServers",
        shape=_STDIO,
        check="claude mcp list",
        after="start a new session",
        after_project="start a new session there and approve the server when asked",
    ),
    "codex": Client(
        title="Codex",
        folders={"": ("CODEX_HOME", "~/.codex")},
        user=("config.toml",),
        project=(".codex/config.toml",),
        key="mcp_servers",
        shape={"command": _PROGRAM, "args": _ARGUMENTS},
        check="codex mcp list",
        after="start a new session",
        after_project="start a new session there; Codex reads the file only if the project is trusted",
    ),
    "gemini-cli": Client(
        title="Gemini CLI",
        folders={"": ("GEMINI_CLI_HOME", "~")},
        user=(".gemini/settings.json",),
        project=(".gemini/settings.json",),
        key="mcpServers",
        shape={"command": _PROGRAM, "args": _ARGUMENTS},
        check="gemini mcp list",
        after="start a new session, in a folder that Gemini CLI trusts",
        after_project="start a new session there and trust the folder if asked",
    ),
    "opencode": Client(
        title="opencode",
        folders={"": ("XDG_CONFIG_HOME", "~/.config")},
        user=("opencode/opencode.json", "opencode/opencode.jsonc"),
        project=("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        key="mcp",
        shape={"type": "local", "command": _WORDS, "enabled": True},
        variables="environment",
        check="opencode mcp list",
        after="start opencode again",
        after_project="start opencode there again and approve the server if asked",
    ),
    "cursor": Client(
        title="Cursor",
        folders={"": ("", "~")},
        user=(".cursor/mcp.json",),
        project=(".cursor/mcp.json",),
        key="mcpServers",
        shape=_STDIO,
        check="agent mcp list (Cursor's CLI), or the list of MCP servers in Cursor's settings",
        after="start Cursor again and see that the server is switched on",
        after_project="open the project again and see that the server is switched on",
    ),
    "vscode": Client(
        title="VS Code",
        folders={
            "": ("XDG_CONFIG_HOME", "~/.config"),
            "darwin": ("", "~/Library/Application Support"),
            "win32": ("APPDATA", "~/AppData/Roaming"),
        },
        user=("Code/User/mcp.json",),
        project=(".vscode/mcp.json",),
        key="servers",
        shape=_STDIO,
        check="MCP: List Servers in the Command Palette",
        after="open the chat in agent mode and trust the server when asked",
        after_project="open the chat in agent mode there and trust the server when asked",
    ),
}


def config_file(client: Client, *, project: Path | None, platform: str, environment: Mapping[str, str]) -> Path:
    """The file to change: the user's, or that of a project."""
    if project is not None:
        folder, names = project, client.project
    else:
        variable, usual = client.folders.get(platform) or client.folders[""]
        home = environment.get("USERPROFILE" if platform == "win32" else "HOME") or str(Path.home())
        folder, names = Path(environment.get(variable) or usual.replace("~", home, 1)), client.user
    files = [folder.absolute() / name for name in names]
    return next((file for file in files if os.access(file, os.F_OK)), files[0])


def entry_for(client: Client, command: tuple[str, ...], variables: Mapping[str, str]) -> dict[str, Any]:
    """What makes the client start the command, with these variables."""
    filled = {_PROGRAM: command[0], _ARGUMENTS: list(command[1:]), _WORDS: list(command)}
    entry = {name: filled.get(value, value) for name, value in client.shape.items()}
    return entry | ({client.variables: dict(variables)} if variables else {})


class Change(NamedTuple):
    """What a file says now, and what it is to say; nothing has been written."""

    file: Path
    before: bytes | None
    after: bytes | None
    """None where nothing is to change."""
    found: Mapping[str, Any] | None
    """The entry that is there."""
    entry: Mapping[str, Any] | None
    """The entry that is to be there: with what the user added to it."""


def planned(client: Client, file: Path, entry: Mapping[str, Any] | None) -> Change:
    """The change that puts an entry in; without one, the change that takes it out."""
    before = _read(file)
    text, plain, values = _parsed(file, (before or b"").removeprefix(BOM_UTF8))
    servers = _table(file, values, client.key)
    found = _table(file, servers, NAME) if NAME in servers else None
    wanted = None if entry is None else _merged(found or {}, entry)
    if wanted == found:
        return Change(file, before, None, found, wanted)
    if not plain:
        raise ByHandError(f"`{file}` has comments or trailing commas, so it is left as it is")
    if found and wanted and "command" not in found:
        raise ByHandError(f"`{file}` has an entry `{NAME}` that starts no program, so it is left as it is")
    mark = BOM_UTF8 if (before or b"").startswith(BOM_UTF8) else b""
    return Change(file, before, mark + _edited(file, text, client.key, values, wanted), found, wanted)


def entry_text(client: Client, file: Path, entry: Mapping[str, Any]) -> str:
    """The entry as a file with nothing else would hold it."""
    _, put, _ = _language(file)
    return put("", client.key, entry)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a folder" if file.is_dir() else error.strerror or error
        raise ClientError(f"`{file}` cannot be read: {reason}; see what is there") from error


def _parsed(file: Path, content: bytes) -> tuple[str, bool, dict[str, Any]]:
    """The text; whether it is plain, without what only some readers of JSON allow; and what it says."""
    read, _, _ = _language(file)
    try:
        text = content.decode()
        if not text.strip():
            return text, True, {}
        try:
            return text, True, _table(file, {"": read(text)}, "")
        except ValueError:
            return text, False, _table(file, {"": read(_uncommented(text))}, "")
    except (ValueError, RecursionError) as error:
        raise ByHandError(f"`{file}` cannot be read, so it is left as it is ({error}); mend it first") from error


def _uncommented(text: str) -> str:
    """JSON without its comments, then without trailing commas; all else stays, and stays in its place."""
    for noise in (r"//[^\n]*|/\*.*?\*/", r",(?=\s*[}\]])"):
        found = re.compile(rf'("(?:\\.|[^"\\])*")|{noise}', re.DOTALL)
        text = found.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    return text


def _table(file: Path, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key, {})
    if not isinstance(found, dict):
        what = f"`{key}` in `{file}`" if key else f"`{file}`"
        raise ByHandError(f"{what} does not hold names with values, so it is left as it is; mend it first")
    return found


def _merged(found: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry over what is there: what the user added stays, also among the variables."""
    both = {name for name, value in entry.items() if isinstance(value, dict) and isinstance(found.get(name), dict)}
    return {**found, **entry, **{name: {**found[name], **entry[name]} for name in both}}


def _edited(file: Path, text: str, key: str, values: dict[str, Any], wanted: Mapping[str, Any] | None) -> bytes:
    """The file with the entry, or without; proved by reading it."""
    read, put, cut = _language(file)
    servers = {name: value for name, value in values.get(key, {}).items() if name != NAME}
    servers |= {} if wanted is None else {NAME: wanted}
    expected = {name: value for name, value in values.items() if name != key} | ({key: servers} if servers else {})
    with suppress(ValueError):
        edited = cut(text, key) if wanted is None else put(text, key, wanted)
        if {name: value for name, value in read(edited).items() if name != key or value} == expected:
            return edited.encode()
    raise ByHandError(f"`{file}` cannot be changed safely, so it is left as it is")


_JSON = json.JSONDecoder()


class _Member(NamedTuple):
    """A name with its value in the text of an object: where the name, the value and the end are."""

    key: str
    start: int
    value: int
    end: int


def _past_blank(text: str, at: int) -> int:
    while text[at].isspace():
        at += 1
    return at


def _members(text: str, brace: int) -> tuple[list[_Member], int]:
    """The members of the object that opens at `brace`, and where it closes; the text is known to be JSON."""
    found: list[_Member] = []
    at = _past_blank(text, brace + 1)
    while text[at] != "}":
        key, colon = _JSON.raw_decode(text, at)
        value = _past_blank(text, _past_blank(text, colon) + 1)
        _, end = _JSON.raw_decode(text, value)
        found.append(_Member(key, at, value, end))
        at = _past_blank(text, end)
        at = _past_blank(text, at + 1) if text[at] == "," else at
    return found, at


def _member(text: str, brace: int, key: str) -> _Member | None:
    """The last of that name, which is the one that counts."""
    return next((one for one in reversed(_members(text, brace)[0]) if one.key == key), None)


def _json_put(text: str, key: str, entry: Mapping[str, Any]) -> str:
    if not text.strip():
        return json.dumps({key: {NAME: entry}}, indent=2, ensure_ascii=False) + "\n"
    brace = text.index("{")
    servers = _member(text, brace, key)
    if servers is None:
        return _json_added(text, brace, key, {NAME: entry})
    own = _member(text, servers.value, NAME)
    if own is None:
        return _json_added(text, servers.value, NAME, entry)
    return text[: own.value] + _json_value(text, _indent(text, own.start), entry) + text[own.end :]


def _json_added(text: str, brace: int, name: str, value: Mapping[str, Any]) -> str:
    """A member after the last one, indented like it."""
    members, close = _members(text, brace)
    last = members[-1] if members else None
    lines = last is not None and "\n" in text[brace : last.start]
    lead = _indent(text, last.start) if last and lines else _indent(text, brace) + _unit(text)
    piece = f"{_newline(text)}{lead}{json.dumps(name)}: {_json_value(text, lead, value)}"
    if last:
        return f"{text[: last.end]},{piece}{text[last.end :]}"
    return text[: brace + 1] + piece + _newline(text) + _indent(text, brace) + text[close:]


def _json_value(text: str, lead: str, value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", _newline(text) + lead)


def _indent(text: str, at: int) -> str:
    """The blank at the start of the line."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """What the text is indented with."""
    indented = re.search(r"\n([ \t]+)\S", text)
    return indented[1] if indented else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _json_cut(text: str, key: str) -> str:
    brace = text.index("{")
    servers = _member(text, brace, key)
    if servers is None:
        return text
    text = _json_dropped(text, servers.value, NAME)
    return text if _members(text, servers.value)[0] else _json_dropped(text, brace, key)


def _json_dropped(text: str, brace: int, key: str) -> str:
    members, close = _members(text, brace)
    at = max(number for number, one in enumerate(members) if one.key == key)
    if len(members) == 1:
        return text[: brace + 1] + text[close:]
    if at:
        return text[: members[at - 1].end] + text[members[at].end :]
    return text[: members[0].start] + text[members[1].start :]


def _toml_put(text: str, key: str, entry: Mapping[str, Any]) -> str:
    found = tomllib.loads(text).get(key, {}).get(NAME)
    rows = [f"{name} = {_toml_value(value)}" for name, value in entry.items() if (found or {}).get(name) != value]
    lines, newline = text.split("\n"), _newline(text)
    block = None if found is None else _toml_block(lines, key)
    if block is None:
        gap = (newline if text.strip() else "") + ("" if text.endswith("\n") or not text else newline)
        return text + gap + newline.join([f"[{key}.{NAME}]", *rows, ""])
    start, end = block
    changed = re.compile(rf"\s*({'|'.join(row.partition(' ')[0] for row in rows)})\s*=")
    kept = [line for line in lines[start + 1 : end] if not changed.match(line)]
    return "\n".join([*lines[: start + 1], *(row + newline[:-1] for row in rows), *kept, *lines[end:]])


def _toml_value(value: Any) -> str:
    """Strings, lists and truths are written as in JSON."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {_toml_value(one)}' for name, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _toml_block(lines: list[str], key: str) -> tuple[int, int] | None:
    """The lines of our table and of those in it; comments behind it belong to what follows."""
    name = rf"\s*\[\s*{key}\s*\.\s*(?:{NAME}|\"{NAME}\"|'{NAME}')\s*"
    start = next((at for at, line in enumerate(lines) if re.match(rf"{name}\]", line)), None)
    if start is None:
        return None
    others = (at for at in range(start + 1, len(lines)) if re.match(rf"(?!{name}\.)\s*\[", lines[at]))
    end = next(others, len(lines))
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    return start, end


def _toml_cut(text: str, key: str) -> str:
    lines = text.split("\n")
    block = _toml_block(lines, key)
    start, end = block or (0, 0)
    start -= bool(start and not lines[start - 1].strip())  # the empty line that parted it from what stood before
    return "\n".join(lines[:start] + lines[end:])


_Language = tuple[Callable[[str], Any], Callable[[str, str, Mapping[str, Any]], str], Callable[[str, str], str]]


def _language(file: Path) -> _Language:
    """How a file is read, how an entry is put into its text, and how it is cut out."""
    toml = file.suffix == ".toml"
    return (tomllib.loads, _toml_put, _toml_cut) if toml else (json.loads, _json_put, _json_cut)
