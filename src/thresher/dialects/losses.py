"""Record content that a target dialect cannot represent."""

from thresher.model import Problem
from thresher.model.parts import Thinking, Unknown


class ConversionLosses:
    """Collection of conversion losses, each kind once with a count."""

    def __init__(self) -> None:
        """Start without losses."""
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, problem: str, done: str) -> None:
        """Record one loss."""
        self._counts[problem, done] = self._counts.get((problem, done), 0) + 1

    def add_foreign_part(self, part: Thinking | Unknown) -> None:
        """Record a part that only the vendor of its dialect accepts."""
        if isinstance(part, Thinking):
            self.add("thinking of another vendor's model", "removed: only its own vendor accepts it")
        else:
            self.add(f"part `{part.kind}` of another format", "removed")

    def to_problems(self) -> tuple[Problem, ...]:
        """Return all losses in the order of their first occurrence."""
        times = {1: ""}
        return tuple(
            Problem(problem + times.get(n, f" ({n} times)"), done) for (problem, done), n in self._counts.items()
        )
