"""A rule of an API: a check that finds violations, and a step that repairs them."""

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.repairs.steps import RepairStep

RuleCheck = Callable[[DialectLayout], Iterable[RuleFinding]]


class LegalityRule(Struct, frozen=True):
    """A requirement of an API that can be checked without sending the request.

    The vendor's documentation or an error message of the API must prove each rule.
    """

    name: str
    check: RuleCheck
    repair: RepairStep
    documented: str = ""
    """Address of the vendor's documentation."""
    error: str = ""
    """The API's error message, or a description of what the API does if the rule is broken."""

    def documented_at(self, page: str, error: str) -> "LegalityRule":
        """Return the rule with one API's documentation and error."""
        return structs.replace(self, documented=page, error=error)
