"""Transcript format of Google ADK."""
