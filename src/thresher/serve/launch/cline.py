"""Cline behind the proxy: a copy of its provider settings, with other base URLs, for this run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thresher.serve.launch.agent import (
    AgentCommand,
    Launch,
    LaunchContext,
    LaunchError,
    get_table,
    read_json_settings,
)
from thresher.serve.launch.vendors import VENDOR_URLS

SETTINGS = "CLINE_PROVIDER_SETTINGS_PATH"
OWN_NAMES = {"openai-native": "openai", "gemini": "google"}
"""Cline's names for vendors, where they differ."""


def plan_cline(context: LaunchContext) -> Launch:
    """Plan a run of Cline with the providers that the user has configured with an API key."""
    file = _find_settings(context)
    settings = read_json_settings(file)
    providers = get_table(settings, "providers")
    base_urls = {name: url for name in providers if (url := _base_url(name, get_table(providers, name)))}
    if not base_urls:
        raise LaunchError(
            f"no provider in `{file}` has an API key, and a login cannot go through the proxy; add a key with "
            "`cline auth PROVIDER --apikey KEY`, then run again"
        )

    def build(urls: Mapping[str, str], temporary: Path) -> AgentCommand:
        changed: dict[str, Any] = {
            name: {**entry, "settings": {**entry["settings"], "baseUrl": urls[name]}} if name in urls else entry
            for name, entry in providers.items()
        }
        copy = temporary / "providers.json"
        copy.write_text(json.dumps({**settings, "providers": changed}), "utf-8")
        copy.chmod(0o600)
        return AgentCommand(context.arguments, {SETTINGS: str(copy)})

    direct = [name for name in providers if name not in base_urls]
    notes = ["changes of Cline's provider settings are lost after this run"]
    notes += [f"requests to {name} do not go through the proxy" for name in direct]
    return Launch(base_urls, build, tuple(notes))


def _find_settings(context: LaunchContext) -> Path:
    known = context.environment
    if known.get(SETTINGS):
        return Path(known[SETTINGS])
    folder = Path(known.get("CLINE_DIR") or context.home / ".cline")
    arguments = list(context.arguments)
    for option, part in (("--data-dir", ""), ("--config", "data")):
        if option in arguments[:-1]:
            return context.folder / arguments[arguments.index(option) + 1] / part / "settings" / "providers.json"
    return Path(known.get("CLINE_DATA_DIR") or folder / "data", "settings", "providers.json")


def _base_url(name: str, entry: dict[str, Any]) -> str:
    """Return the base URL of a provider with an API key; empty for a login, whose renewal a copy would lose."""
    settings = get_table(entry, "settings")
    if not settings.get("apiKey") or entry.get("tokenSource") not in (None, "manual"):
        return ""
    return str(settings.get("baseUrl") or VENDOR_URLS.get(OWN_NAMES.get(name, name), ""))
