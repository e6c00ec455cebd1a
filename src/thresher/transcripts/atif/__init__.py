"""Transcript format ATIF (Agent Trajectory Interchange Format)."""
