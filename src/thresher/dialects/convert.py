"""Convert messages to histories and back, in any dialect."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from thresher.dialects.base import Emission
from thresher.dialects.extras import get_unusual_role, is_native
from thresher.dialects.intake import Messages, read_history
from thresher.dialects.table import find_dialect, get_native_dialect
from thresher.errors import ConvertError
from thresher.model import History, Message, Problem


def parse(messages: Messages, format: str | None = None) -> History:
    """Parse messages or a request body as a history; detect the dialect if `format` is None."""
    return read_history(messages, format)


def emit_with_losses(history: History, format: str, *, body: bool | None = None) -> Emission:
    """Emit a history in a dialect, with a list of everything that the dialect cannot represent.

    `body` selects a request body or a plain list of messages. By default, the output has the form that the
    history was parsed from, but a body replaces a list that cannot hold the system text or the tools.
    """
    dialect = find_dialect(format)
    try:
        emission = dialect.emit(history, body)
    except RecursionError as error:
        raise ConvertError("the history contains values that are nested too deeply") from error
    converted = (message for message in history if not is_native(message, format))
    unknown = tuple(unknown_role_problems(converted, "written as"))
    return structs.replace(emission, losses=(*emission.losses, *unknown)) if unknown else emission


def unknown_role_problems(messages: Iterable[Message], done: str) -> Iterator[Problem]:
    """Yield a problem for each unknown role of messages that were parsed from a dialect. Its text follows `done`."""
    counts: Counter[tuple[str, str]] = Counter()
    for message in messages:
        name = message.pocket.format if message.pocket is not None else ""
        role = get_unusual_role(message, name)
        native = get_native_dialect(name) if role else None
        if native is not None and native.roles and role not in native.roles:
            counts[role, message.role] += 1
    for (role, known), count in counts.items():
        times = f" ({count} times)" if count > 1 else ""
        yield Problem(f"unknown role `{role}`{times}", f"{done} `{known}`")


def emit(history: History, format: str, *, body: bool | None = None) -> Any:
    """Emit a history in a dialect, like `emit_with_losses`, but return only the messages or the request body."""
    return emit_with_losses(history, format, body=body).value
