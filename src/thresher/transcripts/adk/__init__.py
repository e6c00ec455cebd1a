"""The transcript format of Google ADK."""
