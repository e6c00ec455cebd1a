"""Session database: rows, message blocks and session families."""
