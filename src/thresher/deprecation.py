"""Old names that still work, with a warning."""

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any


class ForwardedNames:
    """A module's `__getattr__` that finds each old name at its new `module:name`."""

    def __init__(self, module: str, moved: Mapping[str, str]) -> None:
        self.module = module
        self.moved = moved

    def __call__(self, name: str) -> Any:
        """Return what is called otherwise today, with a warning that says how."""
        if name not in self.moved:
            raise AttributeError(f"module {self.module!r} has no attribute {name!r}")
        home, _, current = self.moved[name].partition(":")
        warnings.warn(f"`{self.module}.{name}` is deprecated; use `{home}.{current}`", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), current)
