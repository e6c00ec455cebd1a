"""Repair what a dialect would refuse, and report each repair."""
