"""Errors that a caller may catch.

ThresherError
├── ReadError               a file that does not parse as a conversation; UnknownFormatError: its format is unknown
│                           (files that parse in part return problems instead)
├── FormatError             unknown dialect or transcript format, or a value that does not match it
├── ConvertError            a history that the target dialect cannot encode
├── OptionError             unknown policy, preset or option, or an invalid value
├── PlanError               a plan for another history
├── RepairError             an invalid history that no rule can repair
├── BudgetError             a history that cannot fit the budget; names the smallest size and the pinned content
├── StoreError              a failed read or write of the content store; NotStoredError: unknown id;
│                           AmbiguousIdError: a shortened id that matches several contents
├── CounterError            unknown token counter, or one that is not installed
├── LedgerError             a failed read or write of a window's ledger
├── McpClientError          a client's configuration file cannot be read or written; ManualEditError: edit it by hand
├── SessionNotWrittenError  a session that its agent has not written to disk yet
├── ModelCatalogError       a list of models that cannot be read
└── SummaryError            a model that returned no summary
"""

from collections.abc import Iterable


class ThresherError(Exception):
    """Base class of all errors. A message names the problem, its location, and the next step."""


class ReadError(ThresherError):
    """A file does not parse as a conversation."""


class UnknownFormatError(ReadError):
    """The transcript format of a file is unknown."""


class FormatError(ThresherError):
    """A dialect or transcript format is unknown, or a value does not match it."""


class ConvertError(ThresherError):
    """The target dialect cannot encode a history."""


class OptionError(ThresherError):
    """A policy, preset or option is unknown, or a value is invalid."""


class PlanError(ThresherError):
    """A plan was made for another history."""


class BudgetError(ThresherError):
    """A history cannot fit the budget."""

    def __init__(self, message: str, smallest: int) -> None:
        """`smallest` is the smallest size in tokens that edits can reach."""
        super().__init__(message)
        self.smallest = smallest


def suggest_name(unknown: str, names: Iterable[str]) -> str:
    """Return a question that suggests the most similar name, " Did you mean `smart`?"; empty if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    close = get_close_matches(unknown, list(names), 1)
    return f" Did you mean `{close[0]}`?" if close else ""
