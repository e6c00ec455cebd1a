"""The errors a caller may catch.

ThresherError
├── ReadError       a file cannot be read as a conversation at all (what can be read in part becomes problems), or
│                   (UnknownFormatError) is in no known format
├── FormatError     a format is not known, or a value is not in the format it was said to be in
├── ConvertError    a history cannot be written in the wanted format
├── OptionError     a policy, a preset or one of their options is not known, or has a value that makes no sense
├── PlanError       a plan does not belong to the history it is applied to
├── RepairError     a broken history that no rule could mend
├── BudgetError     a history cannot be made as small as asked: says how small it can get, and what pins it
├── StoreError      what is left out cannot be written down, or is not there (NotStoredError), or is not told apart
│                   by so few digits (AmbiguousIdError)
├── CounterError    a way of counting tokens is not known, or not installed
├── LedgerError     a window's ledger cannot be read or written
├── ClientError     a client's configuration is not changed, and why: (ByHandError) it has to be done by hand
├── UnwrittenError  a client names a conversation that no file tells of yet
└── SummaryError    a model wrote no summary: it could not be asked, or its answer is none
"""


class ThresherError(Exception):
    """Anything Thresher refuses to do; the message says what, where, and what to do next."""


class ReadError(ThresherError):
    """A file cannot be read as a conversation."""


class UnknownFormatError(ReadError):
    """A file is in no known format."""


class FormatError(ThresherError):
    """A format is unknown, or a value is not in it."""


class ConvertError(ThresherError):
    """A history cannot be written in the wanted format."""


class OptionError(ThresherError):
    """A policy, a preset or an option is unknown, or a value makes no sense."""


class PlanError(ThresherError):
    """A plan does not belong to the history it is applied to."""


class BudgetError(ThresherError):
    """A history cannot be made as small as asked."""

    def __init__(self, message: str, smallest: int) -> None:
        """Say how small it can get."""
        super().__init__(message)
        self.smallest = smallest
