"""System text inside the messages, which newer models accept and Claude Code sends with every turn.

Such a row must follow a message of the user, or one of the model that ends with the use of a server's tool. A message
of the model must follow it, unless it is the last row. A row elsewhere is sent with the role of the user instead.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs

from thresher.dialects.anthropic.codec import NAME, SYSTEM_ROLE
from thresher.dialects.extras import get_extra_fields, is_native, is_opaque_message
from thresher.model import Message
from thresher.model.jsontext import dump_json
from thresher.model.parts import Unknown

_SERVER_TOOL_USES = ("server_tool_use", "mcp_tool_use")
BEFORE = "system text must follow a message of the user"
AFTER = "an answer of the model must follow system text"


def is_system_row(message: Message) -> bool:
    """Return True for system text inside the messages."""
    if not is_native(message, NAME) or message.pocket is None or '"role"' not in message.pocket.fields:
        return False
    return get_extra_fields(message, NAME).get("role") == SYSTEM_ROLE and not is_opaque_message(message, NAME)


def find_misplaced_rows(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Yield the index of each misplaced system row, and the reason."""
    for index, message in enumerate(messages):
        if not is_system_row(message):
            continue
        if not index or not _may_precede(messages[index - 1]):
            yield index, BEFORE
        elif index + 1 < len(messages) and messages[index + 1].role != "assistant":
            yield index, AFTER


def _may_precede(message: Message) -> bool:
    """Return True for a message of the user, or one of the model that ends with the use of a server's tool."""
    last = message.parts[-1] if message.parts else None
    return message.role != "assistant" or (isinstance(last, Unknown) and last.kind in _SERVER_TOOL_USES)


def settle_system_rows(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages in which each misplaced system row has the role of the user, after an edit of its neighbors."""
    misplaced = dict(find_misplaced_rows(messages))
    return [_demote(message) if index in misplaced else message for index, message in enumerate(messages)]


def _demote(message: Message) -> Message:
    fields = {key: value for key, value in get_extra_fields(message, NAME).items() if key != "role"}
    pocket = message.pocket
    assert pocket is not None
    return structs.replace(message, pocket=structs.replace(pocket, fields=dump_json(fields) if fields else ""))
