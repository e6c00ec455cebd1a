"""The transcript format of Aider."""
