"""From files to archived sessions: change detection, extraction, provenance, redaction."""
