"""Collect what a target dialect cannot hold."""

from thresher.model import Problem
from thresher.model.parts import Thinking, Unknown


class ConversionLosses:
    """Collects what a target cannot hold, each kind of loss once with its places counted."""

    def __init__(self) -> None:
        """Start with none."""
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, what: str, done: str) -> None:
        """Note one."""
        self._counts[what, done] = self._counts.get((what, done), 0) + 1

    def add_foreign_part(self, part: Thinking | Unknown) -> None:
        """Note a part that only its own vendor understands."""
        if isinstance(part, Thinking):
            self.add("thinking of another vendor's model", "left out: only its own vendor takes it back")
        else:
            self.add(f"part `{part.kind}` of another format", "left out")

    def to_problems(self) -> tuple[Problem, ...]:
        """All of them, in the order they were first met."""
        times = {1: ""}
        return tuple(Problem(what + times.get(n, f" ({n} times)"), done) for (what, done), n in self._counts.items())
