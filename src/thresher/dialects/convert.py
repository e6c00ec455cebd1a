"""Convert messages to histories and back, in any dialect."""

from typing import Any

from thresher.dialects.base import Emission
from thresher.dialects.intake import Messages, read_history
from thresher.dialects.table import find_dialect
from thresher.errors import ConvertError
from thresher.model import History


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
        return dialect.emit(history, body)
    except RecursionError as error:
        raise ConvertError("the history contains values that are nested too deeply") from error


def emit(history: History, format: str, *, body: bool | None = None) -> Any:
    """Emit a history in a dialect, like `emit_with_losses`, but return only the messages or the request body."""
    return emit_with_losses(history, format, body=body).value
