"""From source files to archived sessions: change detection, extraction, provenance and redaction."""
