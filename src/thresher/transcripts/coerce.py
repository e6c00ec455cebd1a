"""Values of a decoded document that may be anything: what is of the kind that is wanted, or nothing."""

from typing import Any


def as_dict(value: Any) -> dict[str, Any]:
    """An object, or one without fields."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """A number of things, or none of them."""
    return value if type(value) is int and value > 0 else 0


def value_at(value: Any, *path: str) -> Any:
    """The value at the end of a path of keys, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def dict_at(value: Any, key: str, *path: str) -> dict[str, Any]:
    """The object at the end of a path of keys, or one without fields."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, dict) else {}


def list_at(value: Any, key: str, *path: str) -> list[Any]:
    """The list at the end of a path of keys, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, list) else []


def text_at(value: Any, key: str, *path: str) -> str:
    """The string at the end of a path of keys, or an empty one."""
    # Most paths are one key: these are called for every field that is read, so they call nothing else for it.
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if isinstance(found, str) else ""


def count_at(value: Any, key: str, *path: str) -> int:
    """The number of things at the end of a path of keys, or none of them."""
    found = value.get(key) if isinstance(value, dict) else None
    found = value_at(found, *path) if path else found
    return found if type(found) is int and found > 0 else 0


def first_text(value: Any, *keys: str) -> str:
    """The first string under one of the keys that is not empty, or an empty one."""
    for key in keys:
        if found := text_at(value, key):
            return found
    return ""
