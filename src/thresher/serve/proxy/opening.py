"""The way in which an agent can open a placeholder, read from the tools of its requests."""

from collections.abc import Iterable

from thresher.model.tool_catalog import find_tool_kind

SHELL_COMMAND = "thresher restore ID"
_SHELL_TOOLS = ("shell", "exec", "local_shell", "bash", "unified_exec", "exec_command", "run_shell_command")


def choose_opening(tools: Iterable[str]) -> str | None:
    """Return Thresher's own restore tool if the agent has it, else a command if it has a shell, else None."""
    names = list(tools)
    own = next((name for name in names if "thresher" in name.lower() and name.lower().endswith("restore")), None)
    if own is not None:
        return own
    has_shell = any(name.lower() in _SHELL_TOOLS or find_tool_kind(name).category == "execution" for name in names)
    return SHELL_COMMAND if has_shell else None
