"""The dialect of the OpenAI Responses API."""
