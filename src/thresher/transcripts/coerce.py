"""Read fields of decoded JSON. A missing value, or a value of the wrong type, becomes an empty default.

A value that no file can mean, and that an archive, an index or a time zone cannot represent, is made safe here: lone
surrogates in text are replaced, and a number or a time outside the valid range counts as missing.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from thresher.dialects.surrogates import replace_lone_surrogates

MAX_COUNT = 1 << 53
"""Maximum of a count: larger integers are not exact in every JSON reader, and a sum of a few must fit 64 bits."""
_EARLIEST, _LATEST = (end.replace(tzinfo=UTC) for end in (datetime.min + timedelta(2), datetime.max - timedelta(2)))
"""Times between which every time zone has a date. An offset is less than one day."""


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return replace_lone_surrogates(value) if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """Return the value if it is a positive integer of possible size, else 0."""
    return value if type(value) is int and 0 < value <= MAX_COUNT else 0


def bounded_time(time: datetime | None) -> datetime | None:
    """Return a time that every time zone can display, in UTC if it has no zone; None for any other."""
    if time is None:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time if _EARLIEST <= time <= _LATEST else None


def value_at(value: Any, *path: str) -> Any:
    """Return the value at the end of a path of keys, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


# The readers call the next four functions for every field. For speed, a path with one key skips `value_at`.


def dict_at(value: Any, key: str, *path: str) -> dict[str, Any]:
    """Return the object at the end of a path of keys, or an empty object."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, dict) else {}


def list_at(value: Any, key: str, *path: str) -> list[Any]:
    """Return the list at the end of a path of keys, or an empty list."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, list) else []


def text_at(value: Any, key: str, *path: str) -> str:
    """Return the string at the end of a path of keys, or an empty string."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return replace_lone_surrogates(found) if isinstance(found, str) else ""


def count_at(value: Any, key: str, *path: str) -> int:
    """Return the positive integer of possible size at the end of a path of keys, or 0."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if type(found) is int and 0 < found <= MAX_COUNT else 0


def first_text(value: Any, *keys: str) -> str:
    """Return the first non-empty string under one of the keys, or an empty string."""
    for key in keys:
        if found := text_at(value, key):
            return found
    return ""
