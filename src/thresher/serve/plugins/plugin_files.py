"""The folders in which agents look for plug-ins, and functions to write Thresher's plug-in there or remove it."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from thresher.serve.config_writing import BACKUP_SUFFIX, write_config_change
from thresher.serve.mcp_clients import ConfigChange, McpClientError

COMMAND = re.compile(r"^const COMMAND = .*$", re.MULTILINE)
VARIABLES = re.compile(r"^const VARIABLES = .*$", re.MULTILINE)
HELPER = "fit_process.js"


class Plugin(NamedTuple):
    """An agent with a plug-in."""

    title: str
    folder_variable: str
    """Variable with the agent's folder."""
    default_folder: str
    place: str
    """Folder for plug-ins, below the agent's folder."""
    project_place: str
    files: Mapping[str, str]
    """Files of the package, by their paths in the folder for plug-ins."""
    next_step: str


PLUGINS: Mapping[str, Plugin] = {
    "claude-code": Plugin(
        "Claude Code",
        "CLAUDE_CONFIG_DIR",
        "~/.claude",
        "skills",
        ".claude/skills",
        {
            "thresher/.claude-plugin/plugin.json": "claude_code/.claude-plugin/plugin.json",
            "thresher/hooks/hooks.json": "claude_code/hooks/hooks.json",
            "thresher/hooks/register.js": "claude_code/hooks/register.js",
        },
        "start a new session; a compaction then keeps a smaller history instead of a summary",
    ),
    "opencode": Plugin(
        "opencode",
        "XDG_CONFIG_HOME",
        "~/.config",
        "opencode/plugin",
        ".opencode/plugin",
        {"thresher.js": "opencode/thresher.js", f"thresher/{HELPER}": HELPER},
        "start opencode again",
    ),
    "pi": Plugin(
        "pi",
        "PI_CODING_AGENT_DIR",
        "~/.pi/agent",
        "extensions",
        ".pi/extensions",
        {"thresher/index.js": "pi/index.js", f"thresher/{HELPER}": HELPER},
        "start a new session, or use /reload",
    ),
}


class PluginChange(NamedTuple):
    """A planned change of one file."""

    change: ConfigChange
    is_removed: bool = False


def find_plugin_folder(plugin: Plugin, project: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the folder where the agent looks for plug-ins: that of a project, or the user's."""
    if project is not None:
        return project.absolute() / plugin.project_place
    home = environment.get("HOME") or str(Path.home())
    folder = environment.get(plugin.folder_variable) or plugin.default_folder
    return Path(folder.replace("~", home, 1) if folder.startswith("~") else folder).absolute() / plugin.place


def plan_plugin(
    plugin: Plugin, folder: Path, command: tuple[str, ...], variables: Mapping[str, str], *, remove: bool = False
) -> list[PluginChange]:
    """Return the changes that write the plug-in, or that remove it; none if nothing changes."""
    changes = []
    for name, source in plugin.files.items():
        content = _fill(files("thresher.serve.plugins").joinpath(source).read_text("utf-8"), command, variables)
        file = folder / name
        try:
            before = file.read_bytes() if file.exists() else None
        except OSError as error:
            raise McpClientError(f"cannot read `{file}`: {error.strerror or error}; check the path") from error
        if before == (None if remove else content):
            continue
        changes.append(PluginChange(ConfigChange(file, before, content, None, None), remove))
    return changes


def write_plugin(changes: list[PluginChange], folder: Path) -> list[Path]:
    """Apply the changes, and return the backups of files that the user has changed."""
    backups = []
    for change, is_removed in changes:
        if not is_removed:
            backup = write_config_change(change)
        else:
            backup = _remove_file(change)
            for parent in change.file.parents:
                if parent == folder or any(parent.iterdir()):
                    break
                parent.rmdir()
        backups += [backup] if backup is not None else []
    return backups


def _remove_file(change: ConfigChange) -> Path | None:
    """Delete a file; one that differs from the plug-in becomes its own backup."""
    try:
        if _normalize(change.old_content) == _normalize(change.new_content):
            change.file.unlink()
            return None
        return change.file.rename(_unused_name(change.file))
    except OSError as error:
        raise McpClientError(f"cannot remove `{change.file}`: {error.strerror or error}") from error


def _normalize(content: bytes | None) -> bytes:
    """Return a file without its command, which depends on where Thresher was installed."""
    return _fill((content or b"").decode("utf-8", "replace"), (), {})


def _unused_name(file: Path) -> Path:
    names: Iterator[str] = (f"{file.name}{BACKUP_SUFFIX}{f'-{n}' if n > 1 else ''}" for n in range(1, 1000))
    return next(file.with_name(name) for name in names if not file.with_name(name).exists())


def _fill(text: str, command: tuple[str, ...], variables: Mapping[str, str]) -> bytes:
    """Write the command and its variables into a file."""
    text = COMMAND.sub(lambda _: f"const COMMAND = {json.dumps(command)};", text)
    return VARIABLES.sub(lambda _: f"const VARIABLES = {json.dumps(dict(variables))};", text).encode()
