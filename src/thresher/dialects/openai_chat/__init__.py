"""The dialect of the OpenAI Chat Completions API."""
