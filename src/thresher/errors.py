"""The errors a caller may catch.

ThresherError
├── ReadError       a file cannot be read as a conversation at all (what can be read in part becomes problems)
├── FormatError     a format is not known, or a value is not in the format it was said to be in
└── ConvertError    a history cannot be written in the wanted format
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
