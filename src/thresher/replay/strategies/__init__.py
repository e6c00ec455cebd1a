"""The strategies that a replay compares."""
