"""Messages of errors for a client: they quote arguments, ids and titles, so they are data like an answer."""

from thresher.memory.ingest.redaction import redact
from thresher.render.agent_view import fence_recalled_text
from thresher.render.text import shorten

MAX_ERROR_CHARS = 2_000


def describe_error(error: Exception) -> str:
    """Return the message of an error, redacted and inside recall tags."""
    message = fence_recalled_text(shorten(redact(str(error)), MAX_ERROR_CHARS), [])
    return f"The call failed, and this is the reason:\n{message}"
