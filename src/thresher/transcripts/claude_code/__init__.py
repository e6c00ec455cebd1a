"""Transcript format of Claude Code."""
