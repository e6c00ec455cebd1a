"""The transcript format of Claude Code."""
