"""The dialect of the Gemini API."""
