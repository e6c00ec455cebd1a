"""A history that came in broken, made legal: what is told apart from edits, and never makes a history worse.

The rules say what is wrong, and for each group of them one function puts it right; then the rules are asked again,
until they find nothing. A group comes after those on which it builds: results are told from orphans before calls
are answered, and calls are answered before messages are joined. What no rule names is not touched, and a history
in which nothing is wrong is the same object after.
"""

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from thresher.dialects.intake import Messages, read_with_dialect
from thresher.dialects.repairs.steps import RepairStep
from thresher.dialects.repairs.workspace import Repair, RepairWorkspace, Violation
from thresher.dialects.table import find_dialect, load_dialects
from thresher.edits.legality import check
from thresher.errors import ThresherError
from thresher.model import History


class RepairError(ThresherError):
    """A history cannot be made legal."""


class RepairResult(Struct, frozen=True):
    """A legal history, and what was done to make it so."""

    history: History
    repairs: tuple[Repair, ...] = ()


MAX_REPAIR_ROUNDS = 100
"""More than any history takes: a repair may lead to another one, not back to itself."""


def repair(messages: Messages, dialect: str | None = None) -> RepairResult:
    """Make a conversation legal in a dialect; without one, as `check` chooses."""
    history, dialect = read_with_dialect(messages, dialect)
    violations = check(history, dialect)
    if not violations:
        return RepairResult(history)
    bench = RepairWorkspace(history, frozenset(one.name for one in load_dialects() if one.one_result_per_message))
    for _ in range(MAX_REPAIR_ROUNDS):
        step, found = _next(violations)
        step.repair(bench, found)
        violations = check(bench.history, dialect)
        if not violations:
            return RepairResult(bench.history, tuple(sorted(bench.repairs, key=_where)))
    first = violations[0]
    raise RepairError(
        f"message {first.message + 1} cannot be made legal for `{first.dialect}`: {first.detail} ({first.rule}); "
        "leave that message out, or send the history to another dialect"
    )


def _where(one: Repair) -> tuple[int, int]:
    return one.message, -1 if one.part is None else one.part


def _next(violations: Sequence[Violation]) -> tuple[RepairStep, list[Violation]]:
    """Return the first step that there is work for, and that work."""
    steps = [_repair_steps(one.dialect)[one.rule] for one in violations]
    first = min(steps, key=lambda step: step.order)
    return first, [one for one, step in zip(violations, steps, strict=True) if step == first]


@cache
def _repair_steps(dialect: str) -> dict[str, RepairStep]:
    return {rule.name: rule.repair for rule in find_dialect(dialect).rules}
