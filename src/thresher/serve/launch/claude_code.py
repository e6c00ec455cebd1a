"""Claude Code behind the proxy: a variable, or a setting where the user's settings have that variable."""

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
    parse_json_settings,
    read_json_settings,
)

BASE_URL = "ANTHROPIC_BASE_URL"
DEFAULT_URL = "https://api.anthropic.com"
CLOUDS = {
    "CLAUDE_CODE_USE_BEDROCK": "Amazon Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Google Vertex AI",
    "CLAUDE_CODE_USE_FOUNDRY": "Microsoft Foundry",
}
MANAGED_SETTINGS = Path("/etc/claude-code/managed-settings.json")
COSTS = "behind any other base URL than Anthropic's own, Claude Code has no Remote Control"


def plan_claude_code(context: LaunchContext) -> Launch:
    """Plan a run of Claude Code."""
    given, rest = _split_settings(context)
    in_settings = _read_variables(context, given)
    known = {**context.environment, **in_settings}
    for name, cloud in CLOUDS.items():
        if known.get(name, "").lower() not in ("", "0", "false", "no", "off"):
            raise LaunchError(
                f"Claude Code uses {cloud} here ({name} is set), where requests are signed for that address and cannot "
                "go through the proxy; unset the variable to use an API key or a Claude login"
            )
    managed = _text_table(read_json_settings(MANAGED_SETTINGS))
    if BASE_URL in managed:
        raise LaunchError(f"`{MANAGED_SETTINGS}` sets {BASE_URL}, which nothing can override; ask its administrator")
    base_url = known.get(BASE_URL) or DEFAULT_URL

    def build(urls: Mapping[str, str], _folder: Path) -> AgentCommand:
        variables = {BASE_URL: urls["anthropic"]}
        # Claude Code expects other base URLs not to know tool search. The proxy passes it on.
        if base_url == DEFAULT_URL and "ENABLE_TOOL_SEARCH" not in known:
            variables["ENABLE_TOOL_SEARCH"] = "true"
        if BASE_URL not in in_settings:
            return AgentCommand(context.arguments, variables)
        settings = {**given, "env": {**get_table(given, "env"), BASE_URL: urls["anthropic"]}}
        return AgentCommand(("--settings", json.dumps(settings), *rest), variables)

    return Launch({"anthropic": base_url}, build)


def _split_settings(context: LaunchContext) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings that the user gives with `--settings`, and the other arguments."""
    arguments = list(context.arguments)
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--":
            break
        if name == "--settings" and (equals or at + 1 < len(arguments)):
            value = value if equals else arguments[at + 1]
            settings = parse_json_settings(value) or read_json_settings(context.folder / value)
            return settings, tuple(arguments[:at] + arguments[at + (1 if equals else 2) :])
    return {}, context.arguments


def _read_variables(context: LaunchContext, given: dict[str, Any]) -> dict[str, str]:
    """Return the variables in the settings of the user, the project and the call; the later ones win."""
    own = Path(context.environment.get("CLAUDE_CONFIG_DIR") or context.home / ".claude")
    project = context.folder / ".claude"
    files = (own / "settings.json", project / "settings.json", project / "settings.local.json")
    variables: dict[str, str] = {}
    for settings in (*(read_json_settings(file) for file in files), given):
        variables |= _text_table(settings)
    return variables


def _text_table(settings: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in get_table(settings, "env").items()}
