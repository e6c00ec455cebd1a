"""The session database: rows, blocks and families."""
