"""The MCP server, and the configuration entries with which clients start it."""
