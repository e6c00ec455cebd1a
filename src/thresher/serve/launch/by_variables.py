"""Agents that read base URLs from variables: aider, goose, and any other command."""

from collections.abc import Mapping
from pathlib import Path

from thresher.serve.launch.agent import AgentCommand, Launch, LaunchContext, plan_variables, read_variable_file

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com"
GEMINI = "https://generativelanguage.googleapis.com"
USUAL_VARIABLES = {
    "anthropic": (("ANTHROPIC_BASE_URL",), ANTHROPIC),
    "openai": (("OPENAI_BASE_URL", "OPENAI_API_BASE"), f"{OPENAI}/v1"),
    "gemini": (("GOOGLE_GEMINI_BASE_URL",), GEMINI),
}
AIDER_VARIABLES = {
    "anthropic": (("ANTHROPIC_API_BASE",), ANTHROPIC),
    "openai": (("OPENAI_API_BASE",), f"{OPENAI}/v1"),
    "gemini": (("GEMINI_API_BASE",), f"{GEMINI}/v1beta"),
}
GOOSE_VARIABLES = {
    "anthropic": (("ANTHROPIC_HOST",), ANTHROPIC),
    "openai": (("OPENAI_HOST",), OPENAI),
    "gemini": (("GOOGLE_HOST",), GEMINI),
    "openrouter": (("OPENROUTER_HOST",), "https://openrouter.ai"),
}


def plan_any_command(context: LaunchContext) -> Launch:
    """Plan a run of a command that uses the variables of the vendors' SDKs."""
    return plan_variables(context, USUAL_VARIABLES)


def plan_aider(context: LaunchContext) -> Launch:
    """Plan a run of aider. Its `.env` files win over the environment, and its arguments win over these files."""
    saved: dict[str, str] = {}
    for folder in (context.home, *reversed(context.folder.parents), context.folder):
        saved |= read_variable_file(folder / ".env")
    launch = plan_variables(context._replace(environment={**context.environment, **saved}), AIDER_VARIABLES)

    def build(urls: Mapping[str, str], temporary: Path) -> AgentCommand:
        command = launch.build(urls, temporary)
        pairs = [word for name, url in command.variables.items() for word in ("--set-env", f"{name}={url}")]
        return AgentCommand((*pairs, *context.arguments), command.variables)

    return Launch(launch.base_urls, build)


def plan_goose(context: LaunchContext) -> Launch:
    """Plan a run of goose."""
    folder = Path(context.environment.get("XDG_CONFIG_HOME") or context.home / ".config", "goose")
    return plan_variables(context, GOOSE_VARIABLES, read_variable_file(folder / "config.yaml"))
