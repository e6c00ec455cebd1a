"""Tests that read as a specification: one test for each requirement, grouped by feature."""
