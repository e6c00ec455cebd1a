"""Checks that several dialects share, and the rules built from them."""
