"""The proxy between an agent and a model's API."""
