"""Edits for a reader that cannot open a placeholder: an agent without a shell and without Thresher's tools.

Such a reader can only repeat a call. So a result of a file or a command may become a placeholder, and nothing else may
go.
"""

from thresher.model import History, Place, ToolCall, ToolResult
from thresher.model.tool_calls import describe_tool_call

UNRESTORABLE = "the agent could not restore it"
"""Reason for which an edit is refused."""


def is_repeatable_result(history: History, place: Place) -> bool:
    """Return whether a part is a result whose call names a file or a command, so that a new call returns it."""
    chain = history.chain_at.get(place)
    call = history.part(chain.call) if chain is not None else None
    if not isinstance(call, ToolCall) or not isinstance(history.part(place), ToolResult):
        return False
    use = describe_tool_call(call)
    return bool(use.path or use.command)
