"""Checks that several dialects share, and the rules they become."""
