"""Conversations that no known agent wrote: messages in a list, in fields of many names."""
