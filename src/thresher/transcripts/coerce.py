"""Read fields of decoded JSON that may have any type: return the value if its type matches, or an empty default."""

from typing import Any


def as_dict(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, or an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """Return a string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """Return a positive integer, or 0."""
    return value if type(value) is int and value > 0 else 0


def value_at(value: Any, *path: str) -> Any:
    """Return the value at the end of a path of keys, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


# The readers call the next four functions for every field. Most paths are one key, which needs no call of `value_at`.


def dict_at(value: Any, key: str, *path: str) -> dict[str, Any]:
    """Return the object at the end of a path of keys, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, dict) else {}


def list_at(value: Any, key: str, *path: str) -> list[Any]:
    """Return the list at the end of a path of keys, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, list) else []


def text_at(value: Any, key: str, *path: str) -> str:
    """Return the string at the end of a path of keys, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, str) else ""


def count_at(value: Any, key: str, *path: str) -> int:
    """Return the positive integer at the end of a path of keys, or 0."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if type(found) is int and found > 0 else 0


def first_text(value: Any, *keys: str) -> str:
    """Return the first non-empty string under one of the keys, or an empty one."""
    for key in keys:
        if found := text_at(value, key):
            return found
    return ""
