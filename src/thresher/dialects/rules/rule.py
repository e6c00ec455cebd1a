"""A rule of an API: a check that finds violations, and a step that repairs them."""

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.repairs.steps import RepairStep

RuleCheck = Callable[[DialectLayout], Iterable[RuleFinding]]


class LegalityRule(Struct, frozen=True):
    """One requirement of an API that the history alone shows.

    A rule must be documented by the vendor or proven by an error message.
    """

    name: str
    check: RuleCheck
    repair: RepairStep
    documented: str = ""
    """The vendor's documentation."""
    error: str = ""
    """The API's error message, or its behavior if the rule is broken."""

    def documented_at(self, page: str, error: str) -> "LegalityRule":
        """Return the rule with one API's documentation and error."""
        return structs.replace(self, documented=page, error=error)
