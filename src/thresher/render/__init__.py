"""Formatting of sessions, search results and reports, as text and tables for people and as JSON values for programs.

Transcript text is data: its control codes never reach a terminal, and its brackets are never parsed as markup.
"""
