"""The plan of a run: the addresses of an agent's requests, and the settings that send them through the proxy."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from thresher.errors import ThresherError


class LaunchError(ThresherError):
    """An agent cannot be started behind the proxy."""


class LaunchContext(NamedTuple):
    """The call of an agent, and the places of its settings."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    home: Path
    folder: Path
    """Folder that the agent starts in."""


class AgentCommand(NamedTuple):
    """Arguments of an agent, and variables to add to its environment."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str]


Build = Callable[[Mapping[str, str], Path], AgentCommand]


@dataclass(frozen=True)
class Launch:
    """Plan of a run of an agent behind the proxy."""

    base_urls: Mapping[str, str]
    """Base URL that the agent uses without the proxy, for each API or vendor."""
    build: Build
    """Takes the same names with their base URLs in the proxy, and an empty folder that is deleted after the run."""
    notes: tuple[str, ...] = field(default=())
    """Differences for the user in this run."""


class Agent(NamedTuple):
    """An agent that `thresher run` knows."""

    title: str
    program: str
    plan: Callable[[LaunchContext], Launch]
    costs: str = ""
    """Features that the agent lacks behind a proxy, printed once."""


def plan_variables(
    context: LaunchContext, defaults: Mapping[str, tuple[tuple[str, ...], str]], saved: Mapping[str, str] | None = None
) -> Launch:
    """Plan an agent that reads its base URLs from variables.

    `defaults` has the variables and the default base URL of each API; `saved` has values from the agent's files.
    """
    known = {**(saved or {}), **context.environment}
    base_urls = {
        api: next((known[name] for name in names if known.get(name)), default)
        for api, (names, default) in defaults.items()
    }

    def build(urls: Mapping[str, str], _folder: Path) -> AgentCommand:
        return AgentCommand(
            context.arguments, {name: urls[api] for api, (names, _) in defaults.items() for name in names}
        )

    return Launch(base_urls, build)


def read_json_settings(file: Path) -> dict[str, Any]:
    """Return the settings in a JSON file, which may have comments; empty if it is missing or has another form."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return {}
    return parse_json_settings(text)


def parse_json_settings(text: str) -> dict[str, Any]:
    """Parse JSON settings, with or without comments; empty if they have another form."""
    for candidate in (text, _COMMENT.sub(lambda match: match[1] or "", text)):
        try:
            settings = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return settings if isinstance(settings, dict) else {}
    return {}


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A string, or a comment or trailing comma."""


def read_toml_settings(file: Path) -> dict[str, Any]:
    """Return the settings in a TOML file; empty if it is missing or cannot be parsed."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return {}


def read_variable_file(file: Path) -> dict[str, str]:
    """Return the variables in a `.env` file, or the top-level texts of a simple YAML file; empty if it is missing."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return {}
    return {match[1]: match[3] for match in _ASSIGNMENT.finditer(text)}


_ASSIGNMENT = re.compile(
    r"""^(?:export[ \t]+)?(\w+)[ \t]*[=:][ \t]*(["']?)([^\s"'#]*)\2[ \t]*(?:#.*)?$""", re.MULTILINE
)


def get_table(settings: Any, *keys: str) -> dict[str, Any]:
    """Return a nested table; empty if it is missing or has another form."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings if isinstance(settings, dict) else {}
