"""Start an agent with its requests going through the proxy: one module per agent, and the launcher."""
