"""Transcript format of Aider."""
