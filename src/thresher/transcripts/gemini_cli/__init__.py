"""The transcript format of Gemini CLI."""
