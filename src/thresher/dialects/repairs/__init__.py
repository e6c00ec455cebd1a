"""Repairs of what a rule found."""
