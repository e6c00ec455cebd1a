"""Detect the agent session in which this process runs, from environment variables."""

from collections.abc import Mapping

SESSION_ID_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "CLAUDE_SESSION_ID", "CODEX_THREAD_ID", "CODEX_SESSION_ID")
"""Variables that contain a session id."""
AGENT_VARIABLES = ("CLAUDECODE", "CODEX_SANDBOX", "CODEX_CI", "OPENCODE", "GEMINI_CLI")
"""Variables that agents set in the processes that they start; their values are not session ids."""


def find_current_session(environment: Mapping[str, str]) -> str:
    """Return the id of the session in which this process runs, or an empty string."""
    return next((value for name in SESSION_ID_VARIABLES if (value := environment.get(name))), "")


def is_inside_agent(environment: Mapping[str, str]) -> bool:
    """Return whether an agent started this process, with or without a session id."""
    return any(environment.get(name) for name in AGENT_VARIABLES)
