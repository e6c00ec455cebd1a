"""Repair an illegal history. Repairs are reported separately from edits.

Each rule names a repair step that resolves its violations. After each step the history is validated again, until no
violation is left. Steps have a fixed order, because some build on others: first orphaned results are resolved, then
calls get missing results, then messages are merged. Messages without a violation do not change, and a legal history is
returned as the same object.
"""

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from thresher.dialects.intake import Messages, read_with_dialect
from thresher.dialects.repairs.content_repairs import insert_missing_message
from thresher.dialects.repairs.steps import RepairStep
from thresher.dialects.repairs.workspace import Repair, RepairWorkspace, Violation
from thresher.dialects.table import find_dialect, load_dialects
from thresher.edits.legality import check
from thresher.errors import ThresherError
from thresher.model import History


class RepairError(ThresherError):
    """No sequence of repairs makes the history legal."""


class RepairResult(Struct, frozen=True):
    """A legal history, and the repairs that made it legal."""

    history: History
    repairs: tuple[Repair, ...] = ()


MAX_REPAIR_ROUNDS = 100
"""Maximum repair steps, as a safety limit: a repair may require another one, but repairs never cycle."""


def repair(messages: Messages, dialect: str | None = None) -> RepairResult:
    """Make a conversation legal in a dialect; the default dialect is the same as in `check`."""
    history, dialect = read_with_dialect(messages, dialect)
    violations = check(history, dialect)
    if not violations:
        return RepairResult(history)
    bench = RepairWorkspace(history, frozenset(one.name for one in load_dialects() if one.one_result_per_message))
    for _ in range(MAX_REPAIR_ROUNDS):
        step, found = _next_step(violations)
        step.repair(bench, found)
        if bench.has_lost_all_messages:
            insert_missing_message(bench)
        violations = check(bench.history, dialect)
        if not violations:
            return RepairResult(bench.history, tuple(sorted(bench.repairs, key=_where)))
    first = violations[0]
    raise RepairError(
        f"message {first.message + 1} cannot be made legal for `{first.dialect}`: {first.detail} ({first.rule}); "
        "remove that message, or use another dialect"
    )


def _where(one: Repair) -> tuple[int, int]:
    return one.message, -1 if one.part is None else one.part


def _next_step(violations: Sequence[Violation]) -> tuple[RepairStep, list[Violation]]:
    """Return the first repair step that has violations to resolve, and these violations."""
    steps = [_repair_steps(one.dialect)[one.rule] for one in violations]
    first = min(steps, key=lambda step: step.order)
    return first, [one for one, step in zip(violations, steps, strict=True) if step == first]


@cache
def _repair_steps(dialect: str) -> dict[str, RepairStep]:
    return {rule.name: rule.repair for rule in find_dialect(dialect).rules}
