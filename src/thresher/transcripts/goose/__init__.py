"""The transcript format of goose."""
