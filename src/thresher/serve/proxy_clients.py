"""Clients of the proxy: the setting of each one that holds its base URL, and how to set or remove it.

A base URL that the user has set is never replaced: it names a gateway that the proxy would have to forward to.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from thresher.serve.config_edits import remove_json_value, remove_toml_value, set_json_value, set_toml_value
from thresher.serve.mcp_clients import ConfigChange, ManualEditError, parse_config, read_config_file

PROXY_URL = "http://127.0.0.1:8788"


class ProxyClient(NamedTuple):
    """An agent, and where it reads its base URLs."""

    title: str
    advice: str
    """Setting to make by hand."""
    folder_variable: str = ""
    default_folder: str = ""
    user_files: tuple[str, ...] = ()
    """Possible files in the agent's folder; the first existing one is used. Empty if there is no such file."""
    project_files: tuple[str, ...] = ()
    settings: Mapping[tuple[str, ...], str] = {}
    """Paths of keys, with their values."""
    is_per_provider: bool = False
    """True if the second key is a provider. Then only those in the file are set, or the first if the file has none."""


PROXY_CLIENTS: Mapping[str, ProxyClient] = {
    "claude-code": ProxyClient(
        "Claude Code",
        f"set ANTHROPIC_BASE_URL={PROXY_URL}",
        "CLAUDE_CONFIG_DIR",
        "~/.claude",
        ("settings.json",),
        (".claude/settings.local.json",),
        {("env", "ANTHROPIC_BASE_URL"): PROXY_URL},
    ),
    "codex": ProxyClient(
        "Codex",
        f'set openai_base_url = "{PROXY_URL}/v1" in the user\'s config.toml',
        "CODEX_HOME",
        "~/.codex",
        ("config.toml",),
        (),
        {("openai_base_url",): f"{PROXY_URL}/v1"},
    ),
    "opencode": ProxyClient(
        "opencode",
        f"set provider.ID.options.baseURL to {PROXY_URL}/v1 for each provider",
        "XDG_CONFIG_HOME",
        "~/.config",
        ("opencode/opencode.json", "opencode/opencode.jsonc"),
        ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        {("provider", name, "options", "baseURL"): f"{PROXY_URL}/v1" for name in ("anthropic", "openai")},
        is_per_provider=True,
    ),
    "pi": ProxyClient(
        "pi",
        f"set providers.anthropic.baseUrl to {PROXY_URL} in models.json",
        "PI_CODING_AGENT_DIR",
        "~/.pi/agent",
        ("models.json",),
        (),
        {("providers", "anthropic", "baseUrl"): PROXY_URL, ("providers", "openai", "baseUrl"): f"{PROXY_URL}/v1"},
        is_per_provider=True,
    ),
    "gemini-cli": ProxyClient("Gemini CLI", f"set GOOGLE_GEMINI_BASE_URL={PROXY_URL} and GEMINI_API_KEY"),
}


def find_proxy_config(client: ProxyClient, project: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file with the base URL, in the project or for the user; None if the agent has none."""
    if project is not None:
        folder, names = project, client.project_files
    else:
        home = environment.get("HOME") or str(Path.home())
        found = environment.get(client.folder_variable) or client.default_folder
        folder, names = Path(found.replace("~", home, 1) if found.startswith("~") else found), client.user_files
    files = [folder.absolute() / name for name in names]
    return next((file for file in files if file.exists()), files[0] if files else None)


def plan_proxy_change(client: ProxyClient, file: Path, *, remove: bool) -> ConfigChange:
    """Return the change that sets the base URLs, or that removes those that point to the proxy."""
    before = read_config_file(file)
    text, is_plain, values = parse_config(file, before or b"")
    edited, expected = text, json.loads(json.dumps(values))
    settings = _choose_settings(client, values, remove=remove)
    for path, url in settings.items():
        current = _find_value(values, path)
        if current == (None if remove else url):
            continue
        if remove and current != url:
            continue
        if current is not None and not remove:
            raise ManualEditError(
                f"`{file}` already sets `{'.'.join(path)}` to {current}, so nothing was changed. Start "
                f"`thresher proxy --upstream {current}`, and set it to {url} by hand"
            )
        edited = _edit(file, edited, path, None if remove else url)
        _change_values(expected, path, None if remove else url)
    if edited == text:
        return ConfigChange(file, before, None, None, None)
    if not is_plain:
        raise ManualEditError(f"`{file}` has comments or trailing commas, so nothing was changed")
    with suppress(ValueError):
        if (tomllib.loads if file.suffix == ".toml" else json.loads)(edited) == expected:
            shown = {".".join(path): url for path, url in settings.items()}
            return ConfigChange(file, before, edited.encode(), None, None if remove else shown)
    raise ManualEditError(f"`{file}` cannot be changed safely, so nothing was changed")


def _choose_settings(client: ProxyClient, values: Mapping[str, Any], *, remove: bool) -> Mapping[tuple[str, ...], str]:
    if remove or not client.is_per_provider:
        return client.settings
    present = {path: url for path, url in client.settings.items() if _find_value(values, path[:2]) is not None}
    first = next(iter(client.settings.items()))
    return present or dict([first])


def _edit(file: Path, text: str, path: Sequence[str], value: str | None) -> str:
    is_toml = file.suffix == ".toml"
    try:
        if value is None:
            return remove_toml_value(text, path) if is_toml else remove_json_value(text, path)
        return set_toml_value(text, path, value) if is_toml else set_json_value(text, path, value)
    except ValueError:  # a file with comments, which the caller reports
        return f"{text}\n"


def _find_value(values: Any, path: Sequence[str]) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _change_values(values: dict[str, Any], path: Sequence[str], value: str | None) -> None:
    """Set or remove a value as the edit of the text must do it."""
    if len(path) > 1:
        inner = values.setdefault(path[0], {})
        _change_values(inner, path[1:], value)
        if value is None and not inner:
            del values[path[0]]
    elif value is None:
        values.pop(path[0], None)
    else:
        values[path[0]] = value
