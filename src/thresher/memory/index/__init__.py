"""Full-text index, derived from the archive."""
