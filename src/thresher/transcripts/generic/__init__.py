"""Transcript format for lists of messages of unknown origin, with various field names."""
