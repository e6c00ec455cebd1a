"""The search for the best thresholds of `auto`."""
