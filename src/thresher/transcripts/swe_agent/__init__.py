"""Transcript format of SWE-agent."""
