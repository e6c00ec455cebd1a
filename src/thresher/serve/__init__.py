"""MCP server for other programs, and the configuration entries that make clients start it."""
