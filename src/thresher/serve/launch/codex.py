"""Codex behind the proxy: `-c` overrides of the base URL for this run."""

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
    read_toml_settings,
)

API_URL = "https://api.openai.com/v1"
CHATGPT_URL = "https://chatgpt.com/backend-api/codex"
BUILT_IN = "openai"
"""The built-in provider, whose base URL is a setting of its own."""


def plan_codex(context: LaunchContext) -> Launch:
    """Plan a run of Codex with the provider that its settings, profile and arguments choose."""
    folder = Path(context.environment.get("CODEX_HOME") or context.home / ".codex")
    overrides, profile = _read_arguments(context.arguments)
    config = read_toml_settings(folder / "config.toml")
    profile = profile or str(config.get("profile", ""))
    layers = [overrides, get_table(config, "profiles", profile) if profile else {}, config]
    if profile:
        layers.insert(1, read_toml_settings(folder / f"{profile}.config.toml"))
    if "--oss" in context.arguments:
        raise LaunchError(
            "`--oss` uses a model on this machine, so there is no cost to save; start Codex without `run`"
        )
    provider = _find(layers, "model_provider") or BUILT_IN
    if provider == BUILT_IN:
        key = "openai_base_url"
        base_url = _find(layers, key) or _default_url(folder, context.environment)
    else:
        key = (
            f"model_providers.{json.dumps(provider)}.base_url"
            if "." in provider
            else f"model_providers.{provider}.base_url"
        )
        tables = (get_table(layer, "model_providers", provider) for layer in layers)
        base_url = overrides.get(key) or _find(list(tables), "base_url")
    if not base_url:
        raise LaunchError(
            f"the Codex provider `{provider}` has no base_url in `{folder / 'config.toml'}`, so its requests cannot go "
            "through the proxy; choose another one with -c model_provider=NAME"
        )

    def build(urls: Mapping[str, str], _folder: Path) -> AgentCommand:
        # The last override of a key wins, also after a subcommand.
        return AgentCommand(_add_override(context.arguments, f"{key}={json.dumps(urls['openai'])}"), {})

    return Launch({"openai": base_url}, build)


def _add_override(arguments: tuple[str, ...], override: str) -> tuple[str, ...]:
    """Add an override before the other arguments, without an earlier one for the same key."""
    key = override.partition("=")[0]
    kept: list[str] = []
    skip = False
    for at, argument in enumerate(arguments):
        value = arguments[at + 1] if at + 1 < len(arguments) else ""
        if skip:
            skip = False
        elif argument in ("-c", "--config") and value.partition("=")[0].strip() == key:
            skip = True
        elif not argument.startswith((f"-c{key}=", f"--config={key}=")):
            kept.append(argument)
    return ("-c", override, *kept)


def _read_arguments(arguments: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Return the overrides and the profile among the arguments."""
    overrides: dict[str, Any] = {}
    profile = ""
    for at, argument in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        name, equals, value = argument.partition("=")
        if argument in ("-c", "--config"):
            key, _, text = following.partition("=")
        elif name == "--config" and equals:
            key, _, text = value.partition("=")
        else:
            if argument in ("-p", "--profile"):
                profile = following
            elif name == "--profile":
                profile = value
            continue
        overrides[key.strip()] = text.strip().strip("\"'")
    return overrides, profile


def _find(layers: list[dict[str, Any]], key: str) -> str:
    return next((str(layer[key]) for layer in layers if layer.get(key)), "")


def _default_url(folder: Path, environment: Mapping[str, str]) -> str:
    """Return the base URL of the login: a ChatGPT login has another one than an API key."""
    login = read_json_settings(folder / "auth.json")
    if environment.get("CODEX_API_KEY") or (login.get("OPENAI_API_KEY") and login.get("auth_mode") != "chatgpt"):
        return API_URL
    return CHATGPT_URL if get_table(login, "tokens") else API_URL
