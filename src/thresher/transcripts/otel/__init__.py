"""The transcript format of OpenTelemetry GenAI."""
