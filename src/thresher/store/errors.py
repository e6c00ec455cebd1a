"""What can go wrong with the store.

StoreError              it cannot be read or written; what was to be elided must then stay
├── NotStoredError      nothing of that id is in it
└── AmbiguousIdError    a shortened id fits more than one thing
"""

from thresher.errors import ThresherError


class StoreError(ThresherError):
    """The store cannot be read or written."""


class NotStoredError(StoreError):
    """Nothing of that id is in the store."""


class AmbiguousIdError(StoreError):
    """A shortened id fits more than one thing."""
