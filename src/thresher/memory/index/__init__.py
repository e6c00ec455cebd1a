"""The full-text index, derived from the archive."""
