"""What a conversation weighs.

In: histories. Out: numbers of tokens. Knows the model, not the formats.
"""

from thresher.tokens.estimate import count, estimate

__all__ = ["count", "estimate"]
