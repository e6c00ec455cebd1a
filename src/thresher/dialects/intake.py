"""Accept messages in any form: dicts, SDK objects, a request body, a history, a session.

Objects of the anthropic, openai and google-genai SDKs may be messages, or values inside a message, such as
`{"role": "assistant", "content": response.content}`.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from thresher.dialects.base import Dialect
from thresher.dialects.table import dialect_names, find_dialect, load_dialects
from thresher.errors import FormatError
from thresher.model import History, Message, Session

CERTAIN_MATCH = 3
"""Score of `Dialect.sniff` for a value that no other dialect produces."""
Messages = History | Session | Iterable[Any] | dict[str, Any]
"""Input type of `parse`, `fit`, `plan`, `check`, `count` and `repair`."""


def read_history(value: Messages, dialect: str | None = None) -> History:
    """Return the history of an input in any form; detect the dialect if `dialect` is None."""
    return read_with_dialect(value, dialect)[0]


def read_with_dialect(value: Messages, dialect: str | None = None) -> tuple[History, str | None]:
    """Return the history, and the dialect that was named or detected."""
    if isinstance(value, History):
        return value, dialect
    if isinstance(value, Session):
        return value.history, dialect
    if isinstance(value, list | tuple) and value and all(isinstance(message, Message) for message in value):
        return History(tuple(value)), dialect
    if value == []:
        return History(), dialect
    with reject_deep_nesting():
        plain = to_plain_request(value, dialect)
        found = find_dialect(dialect) if dialect else require_dialect(plain)
        return found.parse(plain), found.name


@contextmanager
def reject_deep_nesting() -> Iterator[None]:
    """Raise `FormatError` for values that are nested too deeply for Python's stack."""
    try:
        yield
    except RecursionError as error:
        raise FormatError("these messages contain values that are nested too deeply") from error


def require_dialect(value: Any) -> Dialect:
    """Return the dialect of messages; raise an error with the reason if it cannot be detected."""
    detected = detect_dialect(value)
    if detected is not None:
        return detected
    for number, row in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(row, dict):
            raise FormatError(f"message {number + 1} is {_describe(row)}; expected a dict or an SDK object")
    raise FormatError(f"cannot detect the API of these messages; pass `format=` ({', '.join(dialect_names())})")


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def detect_dialect(value: Any) -> Dialect | None:
    """Return the dialect with the highest score for a value; None if none matches."""
    scored = [(dialect.sniff(value), dialect) for dialect in load_dialects()]
    score, best = max(scored, key=lambda pair: pair[0])
    return best if score else None


def to_plain_request(value: Any, dialect: str | None = None) -> Any:
    """Convert messages or a request body to JSON values; return the same object if nothing needs conversion."""
    if not isinstance(value, dict | list | tuple):
        hint = "; convert it to a list" if isinstance(value, Iterable) and not isinstance(value, str | bytes) else ""
        raise FormatError(
            f"expected a list of{f' `{dialect}`' if dialect else ''} messages (dicts or SDK objects), a request body, "
            f"a History or a Session; got {_describe(value)}{hint}"
        )
    return to_json_value(value)


def to_json_value(value: Any) -> Any:
    """Convert to JSON values recursively; return the same object if nothing needs conversion."""
    if type(value) is dict:
        changed = {key: new for key, old in value.items() if (new := to_json_value(old)) is not old}
        return {**value, **changed} if changed else value
    if isinstance(value, tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if type(value) is list:
        items = [to_json_value(item) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if value is None or isinstance(value, str | int | float | bool | dict | list):
        return value
    return convert_sdk_object(value)


def convert_sdk_object(value: Any) -> Any:
    """Convert an SDK object to JSON values."""
    if hasattr(value, "model_dump"):
        return to_json_value(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    if hasattr(value, "to_dict"):
        return to_json_value(value.to_dict())
    raise FormatError(
        f"a message contains a {type(value).__name__}, which is not a JSON value; use dicts, lists and strings"
    )
