"""Accept what callers have: messages as dicts or SDK objects, a request body, a history, a session.

The objects of the anthropic, openai and google-genai SDKs may be anywhere: as messages, or inside one, such as
`{"role": "assistant", "content": response.content}`.
"""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from thresher.dialects.base import Dialect
from thresher.dialects.table import dialect_names, find_dialect, load_dialects
from thresher.errors import FormatError
from thresher.model import History, Message, Session

CERTAIN_MATCH = 3
"""`Dialect.sniff` of a value that no other dialect writes."""
Messages = History | Session | Iterable[Any] | dict[str, Any]
"""What `parse`, `fit`, `plan`, `check`, `count` and `repair` take."""


def read_history(value: Messages, dialect: str | None = None) -> History:
    """Return the history that a caller gives in any form; without a `dialect`, messages are recognized."""
    return read_with_dialect(value, dialect)[0]


def read_with_dialect(value: Messages, dialect: str | None = None) -> tuple[History, str | None]:
    """Return the history, and the dialect that is named or, for messages, recognized."""
    if isinstance(value, History):
        return value, dialect
    if isinstance(value, Session):
        return value.history, dialect
    if isinstance(value, list | tuple) and value and all(isinstance(one, Message) for one in value):
        return History(tuple(value)), dialect
    if value == []:
        return History(), dialect
    try:
        plain = to_plain_request(value, dialect)
        found = find_dialect(dialect) if dialect else require_dialect(plain)
        return found.parse(plain), found.name
    except RecursionError as error:
        raise FormatError("these messages hold values nested too deep to follow") from error


def require_dialect(value: Any) -> Dialect:
    """Return the dialect of messages, or explain that it cannot be told."""
    found = detect_dialect(value)
    if found is not None:
        return found
    for number, row in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(row, dict):
            raise FormatError(f"message {number + 1} is {_describe(row)}; expected a dict or an object of an SDK")
    raise FormatError(f"cannot tell which API these messages are for; say it: format=… ({', '.join(dialect_names())})")


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def detect_dialect(value: Any) -> Dialect | None:
    """Return the dialect that is most certain of a value, if one is."""
    scored = [(one.sniff(value), one) for one in load_dialects()]
    score, best = max(scored, key=lambda pair: pair[0])
    return best if score else None


def to_plain_request(value: Any, dialect: str | None = None) -> Any:
    """Return messages or a request body as JSON values; the same object where it is made of them already."""
    if isinstance(value, dict):
        return to_json_value(value)
    if not isinstance(value, list | tuple):
        hint = "; make a list of it" if isinstance(value, Iterable) and not isinstance(value, str | bytes) else ""
        raise FormatError(
            f"expected a list of{f' `{dialect}`' if dialect else ''} messages (dicts or SDK objects), a request body, "
            f"a History or a Session; got {_describe(value)}{hint}"
        )
    return to_json_value(value)


def to_json_value(value: Any) -> Any:
    """Return a value as JSON values; the same object where it is made of them already."""
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


def convert_sdk_object(thing: Any) -> Any:
    """Return an object of a vendor's SDK as JSON values."""
    if hasattr(thing, "model_dump"):
        return to_json_value(thing.model_dump(mode="json", by_alias=True, exclude_none=True))
    if hasattr(thing, "to_dict"):
        return to_json_value(thing.to_dict())
    raise FormatError(
        f"a message holds a {type(thing).__name__}, which is not a JSON value: give dicts, lists and texts"
    )
