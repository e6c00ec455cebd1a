"""Errors of the content store.

StoreError              the store cannot be read or written; the edit is then not made
├── NotStoredError      no content has the id
└── AmbiguousIdError    a shortened id matches several contents
"""

from thresher.errors import ThresherError


class StoreError(ThresherError):
    """The content store cannot be read or written."""


class NotStoredError(StoreError):
    """No stored content has the id."""


class AmbiguousIdError(StoreError):
    """A shortened id matches several stored contents."""
