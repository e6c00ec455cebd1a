"""Values of a decoded document that may be anything: what is of the kind that is wanted, or nothing."""

from typing import Any


def dict_or_empty(value: Any) -> dict[str, Any]:
    """An object, or one without fields."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def text_or_empty(value: Any) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def count_or_zero(value: Any) -> int:
    """A number of things, or none of them."""
    return value if type(value) is int and value > 0 else 0


def value_at(value: Any, *path: str) -> Any:
    """What stands at the end of a row of keys, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
