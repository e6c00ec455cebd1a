"""The transcript format of OpenHands."""
