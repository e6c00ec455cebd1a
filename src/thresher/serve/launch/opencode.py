"""opencode behind the proxy: base URLs of its providers, in a variable that holds settings for one run."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thresher.serve.launch.agent import (
    AgentCommand,
    Launch,
    LaunchContext,
    LaunchError,
    get_table,
    parse_json_settings,
    read_json_settings,
)
from thresher.serve.launch.vendors import VENDOR_KEYS, VENDOR_URLS

SETTINGS = "OPENCODE_CONFIG_CONTENT"
FILE_NAMES = ("opencode.json", "opencode.jsonc")
FIXED_LOGINS = ("openai", "github-copilot")
"""Providers whose login, unlike an API key, sends requests to a fixed address."""


def plan_opencode(context: LaunchContext) -> Launch:
    """Plan a run of opencode with all providers that the user has configured."""
    settings = list(_iter_settings(context))
    logins = read_json_settings(_folder(context, "XDG_DATA_HOME", ".local/share") / "auth.json")
    catalog = read_json_settings(_folder(context, "XDG_CACHE_HOME", ".cache") / "models.json")
    names = [name for layer in settings for name in get_table(layer, "provider")]
    names += list(logins) + [name for name in VENDOR_URLS if _has_key(name, catalog, context.environment)]
    direct = [name for name in FIXED_LOGINS if get_table(logins, name).get("type") == "oauth"]
    base_urls = {
        name: url for name in dict.fromkeys(names) if name not in direct and (url := _base_url(name, settings, catalog))
    }
    if not base_urls:
        reason = f"its login for {direct[0]} uses a fixed address" if direct else "opencode has no provider yet"
        raise LaunchError(f"{reason}; add an API key with `opencode auth login`, then run again")

    def build(urls: Mapping[str, str], _folder: Path) -> AgentCommand:
        given = parse_json_settings(context.environment.get(SETTINGS, ""))
        providers = {**get_table(given, "provider")}
        for name, url in urls.items():
            own = get_table(providers, name)
            providers[name] = {**own, "options": {**get_table(own, "options"), "baseURL": url}}
        return AgentCommand(context.arguments, {SETTINGS: json.dumps({**given, "provider": providers})})

    notes = tuple(f"requests to {name} do not go through the proxy: its login uses a fixed address" for name in direct)
    return Launch(base_urls, build, notes)


def _iter_settings(context: LaunchContext) -> Iterator[dict[str, Any]]:
    """Yield the settings, those that win first."""
    yield parse_json_settings(context.environment.get(SETTINGS, ""))
    folders = [context.folder, *context.folder.parents]
    yield from (read_json_settings(folder / name) for folder in folders for name in FILE_NAMES)
    if file := context.environment.get("OPENCODE_CONFIG"):
        yield read_json_settings(Path(file))
    own = _folder(context, "XDG_CONFIG_HOME", ".config")
    yield from (read_json_settings(own / name) for name in (*FILE_NAMES, "config.json"))


def _folder(context: LaunchContext, variable: str, default: str) -> Path:
    return Path(context.environment.get(variable) or context.home / default, "opencode")


def _has_key(name: str, catalog: dict[str, Any], environment: Mapping[str, str]) -> bool:
    listed = get_table(catalog, name).get("env")
    names = listed if isinstance(listed, list) else VENDOR_KEYS[name]
    return any(environment.get(str(variable)) for variable in names)


def _base_url(name: str, settings: list[dict[str, Any]], catalog: dict[str, Any]) -> str:
    """Return the base URL of a provider: the user's, the catalog's or the vendor's; empty if none is known."""
    own = (get_table(layer, "provider", name, "options").get("baseURL") for layer in settings)
    listed = get_table(catalog, name).get("api")
    found = next((url for url in own if url), "") or listed or VENDOR_URLS.get(name, "")
    return str(found) if "{" not in str(found) and "$" not in str(found) else ""
