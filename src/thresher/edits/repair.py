"""A history that came in broken, made legal: what is told apart from edits, and never makes a history worse.

The rules say what is wrong, and for each group of them one function puts it right; then the rules are asked again,
until they find nothing. A group comes after those on which it builds: results are told from orphans before calls
are answered, and calls are answered before messages are joined. What no rule names is not touched, and a history
in which nothing is wrong is the same object after.
"""

from collections.abc import Sequence

from msgspec import Struct

from thresher.edits import repair_content as content
from thresher.edits import repair_tools as tools
from thresher.edits.legality import Violation, check
from thresher.edits.repair_bench import Bench, Repair
from thresher.edits.repair_content import Fix
from thresher.errors import ThresherError
from thresher.model import History

__all__ = ["Repair", "RepairError", "Repaired", "repair"]


class RepairError(ThresherError):
    """A history cannot be made legal."""


class Repaired(Struct, frozen=True):
    """A legal history, and what was done to make it so."""

    history: History
    repairs: tuple[Repair, ...] = ()


FIXES: tuple[tuple[tuple[str, ...], Fix], ...] = (
    (("lone-surrogate",), content.mend_surrogates),
    (("arguments-json",), content.wrap_arguments),
    (("unknown-role",), content.forget_role),
    (("misplaced-part",), tools.set_right),
    (("orphan-result", "repeated-result"), tools.tell_loose),
    (("unanswered-call", "result-place"), tools.answer),
    (("result-kind",), tools.match_kinds),
    (("missing-id", "repeated-id", "id-form"), tools.rename),
    (("unsigned-thinking", "thinking-last", "empty-text", "blank-message"), content.leave_out),
    (("empty-message",), content.leave_out_messages),
    (("results-first", "thinking-first"), content.sort_parts),
    (("call-after-model",), content.join_models),
    (("first-role",), content.open_with_user),
    (("lone-reasoning",), content.leave_out),
    (("repeated-item",), tools.forget_items),
    (("thought-signature",), content.sign_calls),
    (("trailing-space",), content.trim_end),
)
"""What puts right what, in the order in which it is done."""
ROUNDS = 4 * len(FIXES)
"""More than any history takes: a fix may lead to another one, not back to itself."""


def repair(history: History, dialect: str | None = None) -> Repaired:
    """Make a history legal in a dialect, or in all four at once."""
    violations = check(history, dialect)
    if not violations:
        return Repaired(history)
    bench = Bench(history)
    for _ in range(ROUNDS):
        fix, found = _next(violations)
        fix(bench, found)
        violations = check(bench.history, dialect)
        if not violations:
            return Repaired(bench.history, tuple(sorted(bench.repairs, key=_where)))
    first = violations[0]
    raise RepairError(
        f"message {first.message + 1} cannot be made legal for `{first.dialect}`: {first.detail} ({first.rule}); "
        "leave that message out, or send the history to another dialect"
    )


def _where(one: Repair) -> tuple[int, int]:
    return one.message, -1 if one.part is None else one.part


def _next(violations: Sequence[Violation]) -> tuple[Fix, list[Violation]]:
    """The first fix that there is work for, and that work."""
    broken = {one.rule for one in violations}
    rules, fix = next((rules, fix) for rules, fix in FIXES if not broken.isdisjoint(rules))
    return fix, [one for one in violations if one.rule in rules]
