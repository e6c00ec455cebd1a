"""Errors of the content store and the session archive.

StoreError              a store, archive or index cannot be read or written
├── NotStoredError      no content or session has the id
└── AmbiguousIdError    a shortened id matches several contents or sessions
"""

from thresher.errors import ThresherError


class StoreError(ThresherError):
    """The content store, the archive or its index cannot be read or written."""


class NotStoredError(StoreError):
    """No stored content or session has the id."""


class AmbiguousIdError(StoreError):
    """A shortened id matches several stored contents or sessions."""
