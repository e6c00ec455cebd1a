"""Convert messages to histories and back, in any dialect."""

from typing import Any

from thresher.dialects.base import Dialect, Emission
from thresher.dialects.table import dialect_names, find_dialect, load_dialects
from thresher.errors import ConvertError, FormatError
from thresher.model import History


def parse(messages: Any, format: str | None = None) -> History:
    """Messages, or a whole request body, to a history; without a `format` it is recognised."""
    found = find_dialect(format) if format else detect_dialect(messages)
    if found is None:
        raise FormatError(
            f"cannot tell which API these messages are for; say it: format=… ({', '.join(dialect_names())})"
        )
    try:
        return found.parse(messages)
    except RecursionError as error:
        raise FormatError("these messages hold values nested too deep to follow") from error


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


def detect_dialect(value: Any) -> Dialect | None:
    """The wire format that is surest of a value, if one is."""
    scored = [(one.sniff(value), one) for one in load_dialects()]
    score, best = max(scored, key=lambda pair: pair[0])
    return best if score else None
