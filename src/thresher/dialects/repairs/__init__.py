"""Repairs of rule violations."""
