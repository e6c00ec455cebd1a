"""A history that came in broken, made legal: what is told apart from edits, and never makes a history worse.

The rules say what is wrong, and for each group of them one function puts it right; then the rules are asked again,
until they find nothing. A group comes after those on which it builds: results are told from orphans before calls
are answered, and calls are answered before messages are joined. What no rule names is not touched, and a history
in which nothing is wrong is the same object after.
"""

from collections.abc import Sequence

from msgspec import Struct

from thresher.edits.legality import Violation, check
from thresher.edits.repair import content, tools
from thresher.edits.repair.content import RepairFunction
from thresher.edits.repair.workspace import Repair, RepairWorkspace
from thresher.errors import ThresherError
from thresher.model import History

__all__ = ["Repair", "RepairError", "RepairResult", "repair"]


class RepairError(ThresherError):
    """A history cannot be made legal."""


class RepairResult(Struct, frozen=True):
    """A legal history, and what was done to make it so."""

    history: History
    repairs: tuple[Repair, ...] = ()


REPAIR_STEPS: tuple[tuple[tuple[str, ...], RepairFunction], ...] = (
    (("lone-surrogate",), content.repair_surrogates),
    (("arguments-json",), content.wrap_arguments),
    (("unknown-role",), content.reset_unknown_role),
    (("misplaced-part",), tools.repair_misplaced_parts),
    (("orphan-result", "repeated-result"), tools.convert_unmatched_results),
    (("unanswered-call", "result-place"), tools.answer_open_calls),
    (("result-kind",), tools.match_result_kinds),
    (("missing-id", "repeated-id", "id-form"), tools.replace_call_ids),
    (("unsigned-thinking", "thinking-last", "empty-text", "blank-message"), content.remove_parts),
    (("empty-message",), content.remove_messages),
    (("results-first", "thinking-first"), content.move_parts_to_front),
    (("call-after-model",), content.merge_model_messages),
    (("first-role",), content.insert_opening_message),
    (("lone-reasoning",), content.remove_parts),
    (("repeated-item",), tools.remove_item_ids),
    (("thought-signature",), content.mark_unsigned_calls),
    (("trailing-space",), content.trim_end),
)
"""What puts right what, in the order in which it is done."""
MAX_REPAIR_ROUNDS = 4 * len(REPAIR_STEPS)
"""More than any history takes: a fix may lead to another one, not back to itself."""


def repair(history: History, dialect: str | None = None) -> RepairResult:
    """Make a history legal in a dialect, or in all four at once."""
    violations = check(history, dialect)
    if not violations:
        return RepairResult(history)
    bench = RepairWorkspace(history)
    for _ in range(MAX_REPAIR_ROUNDS):
        fix, found = _next(violations)
        fix(bench, found)
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


def _next(violations: Sequence[Violation]) -> tuple[RepairFunction, list[Violation]]:
    """The first fix that there is work for, and that work."""
    broken = {one.rule for one in violations}
    rules, fix = next((rules, fix) for rules, fix in REPAIR_STEPS if not broken.isdisjoint(rules))
    return fix, [one for one in violations if one.rule in rules]
