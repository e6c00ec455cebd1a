"""Convert messages to histories and back, in any dialect."""

from typing import Any

from thresher.dialects.base import Emission
from thresher.dialects.intake import Messages, read_history
from thresher.dialects.table import find_dialect
from thresher.errors import ConvertError
from thresher.model import History


def parse(messages: Messages, format: str | None = None) -> History:
    """Read messages, or a whole request body, as a history; without a `format` it is recognized."""
    return read_history(messages, format)


def emit_with_losses(history: History, format: str, *, body: bool | None = None) -> Emission:
    """A history in a wire format, with a word on each thing that the format cannot hold.

    `body` chooses between a request body and a plain list of messages. By default it comes as it was given; a
    list with system text or tools that the target has no place for in its list becomes a body.
    """
    found = find_dialect(format)
    try:
        return found.emit(history, body)
    except RecursionError as error:
        raise ConvertError("this history holds values nested too deep to follow") from error


def emit(history: History, format: str, *, body: bool | None = None) -> Any:
    """A history as an API takes it: `emit_with_losses` without the words."""
    return emit_with_losses(history, format, body=body).value
