"""Ingestion of source files into the archive: change detection, extraction, provenance and redaction."""
