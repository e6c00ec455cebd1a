"""The transcript format of SWE-agent."""
