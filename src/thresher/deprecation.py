"""Deprecated names: they still work, with a warning."""

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def warn_renamed(where: str, old: str, new: str) -> None:
    """Warn that the name `old` is deprecated and that `new` replaces it."""
    warnings.warn(f"`{where}`: `{old}` is deprecated; use `{new}`", DeprecationWarning, stacklevel=4)


def rename_options(where: str, given: Any, renamed: Mapping[str, str]) -> None:
    """Rename deprecated options in place, each with a warning."""
    for old in renamed.keys() & given.keys():
        warn_renamed(where, old, renamed[old])
        given[renamed[old]] = given.pop(old)


def rename_value(where: str, option: str, value: Any, renamed: Mapping[str, str]) -> Any:
    """Return the current spelling of an option's value; warn if the given one is deprecated."""
    if not isinstance(value, str) or value not in renamed:
        return value
    warn_renamed(where, f"{option}={value!r}", f"{option}={renamed[value]!r}")
    return renamed[value]


class RenamedField:
    """Descriptor of a deprecated attribute: warns, then returns the attribute that replaces it."""

    def __init__(self, old: str, current: str) -> None:
        self.name = old
        self.current = current

    def __get__(self, instance: object, owner: type) -> Any:
        warn_renamed(owner.__name__, self.name, self.current)
        return getattr(instance, self.current)


def update_options(kind: Any, options: dict[str, Any]) -> None:
    """Rename the deprecated options and option values of a class in place, each with a warning."""
    renamed, values = getattr(kind, "renamed_options", ({}, {}))
    rename_options(kind.__name__, options, renamed)
    for option in values.keys() & options.keys():
        options[option] = rename_value(kind.__name__, option, options[option], values[option])


def renamed_fields(
    *, values: Mapping[str, Mapping[str, str]] | None = None, **renamed: str
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that accepts deprecated field names and field values, with a warning."""

    def decorate(kind: type[T]) -> type[T]:
        original = kind.__init__

        @wraps(original)
        def initialize(self: T, *positional: Any, **options: Any) -> None:
            update_options(kind, options)
            original(self, *positional, **options)

        fields = {old: RenamedField(old, new) for old, new in renamed.items()}
        for name, value in {**fields, "__init__": initialize, "renamed_options": (renamed, values or {})}.items():
            setattr(kind, name, value)
        return kind

    return decorate


class ForwardedNames:
    """Module-level `__getattr__` for deprecated names. `moved` maps each one to the `module:name` that replaces it."""

    def __init__(self, module: str, moved: Mapping[str, str]) -> None:
        self.module = module
        self.moved = moved

    def __call__(self, name: str) -> Any:
        """Return the object that replaces a deprecated name, with a warning."""
        if name not in self.moved:
            raise AttributeError(f"module {self.module!r} has no attribute {name!r}")
        home, _, current = self.moved[name].partition(":")
        warnings.warn(f"`{self.module}.{name}` is deprecated; use `{home}.{current}`", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), current)
