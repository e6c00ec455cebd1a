"""What Thresher knows, for other programs: an MCP server, and the entries that make clients start it."""
