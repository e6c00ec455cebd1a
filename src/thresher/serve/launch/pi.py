"""pi behind the proxy: an extension for this run that sets the base URLs of its providers."""

import json
from collections.abc import Mapping
from pathlib import Path

from thresher.serve.launch.agent import AgentCommand, Launch, LaunchContext, get_table, read_json_settings
from thresher.serve.launch.vendors import VENDOR_URLS

SPECIAL_URLS = {
    "anthropic": "https://api.anthropic.com",  # pi adds /v1
    "mistral": "https://api.mistral.ai",
    "openai-codex": "https://chatgpt.com/backend-api",
}
SEVERAL_URLS = ("opencode",)
"""Providers whose models have different base URLs."""


def plan_pi(context: LaunchContext) -> Launch:
    """Plan a run of pi with the providers that it knows and those in the user's `models.json`."""
    folder = Path(context.environment.get("PI_CODING_AGENT_DIR") or context.home / ".pi" / "agent").expanduser()
    own = get_table(read_json_settings(folder / "models.json"), "providers")
    base_urls = {**VENDOR_URLS, **SPECIAL_URLS}
    base_urls |= {name: str(url) for name in own if (url := get_table(own, name).get("baseUrl"))}
    base_urls = {name: url for name, url in base_urls.items() if name not in SEVERAL_URLS or name in own}

    def build(urls: Mapping[str, str], temporary: Path) -> AgentCommand:
        extension = temporary / "thresher.js"
        lines = [
            f"  pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(url)} }});"
            for name, url in urls.items()
        ]
        extension.write_text("\n".join(["export default function (pi) {", *lines, "}", ""]), "utf-8")
        return AgentCommand(("--extension", str(extension), *context.arguments), {})

    return Launch(base_urls, build)
