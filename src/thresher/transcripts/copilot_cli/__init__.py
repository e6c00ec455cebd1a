"""The transcript format of Copilot CLI."""
