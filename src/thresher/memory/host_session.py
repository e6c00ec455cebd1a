"""Which session a program runs in, as far as agents tell the programs that they start."""

from collections.abc import Mapping

SESSION_ID_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "CLAUDE_SESSION_ID", "CODEX_THREAD_ID", "CODEX_SESSION_ID")
"""Variables that hold a session's id."""
AGENT_VARIABLES = ("CLAUDECODE", "CODEX_SANDBOX", "CODEX_CI", "OPENCODE", "GEMINI_CLI")
"""Variables that agents set, if they tell nothing else."""


def find_current_session(environment: Mapping[str, str]) -> str:
    """The id of the session that this runs in, or nothing."""
    return next((value for name in SESSION_ID_VARIABLES if (value := environment.get(name))), "")


def is_inside_agent(environment: Mapping[str, str]) -> bool:
    """Whether an agent started this, be it that it does not say in which session."""
    return any(environment.get(name) for name in AGENT_VARIABLES)
