"""A rule of an API: how to find where a history breaks it, and how to repair that."""

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.repairs.steps import RepairStep

RuleCheck = Callable[[DialectLayout], Iterable[RuleFinding]]


class LegalityRule(Struct, frozen=True):
    """One requirement of an API on a conversation, visible in the history alone.

    A requirement that the vendor does not document and no error message proves is not a rule.
    """

    name: str
    check: RuleCheck
    repair: RepairStep
    documented: str = ""
    """The vendor's page on it."""
    error: str = ""
    """The API's error, or what it does, where the rule is broken."""

    def documented_at(self, page: str, error: str) -> "LegalityRule":
        """Return the rule as one API has it."""
        return structs.replace(self, documented=page, error=error)
