"""Transcript format of lists of messages that match no known agent, with fields of many names."""
