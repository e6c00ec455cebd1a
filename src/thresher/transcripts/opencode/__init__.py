"""The transcript format of opencode."""
