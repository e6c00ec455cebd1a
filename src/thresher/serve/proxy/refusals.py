"""Decide whether an error of the upstream is about the history of a request, which an edit may have caused."""

import re

from thresher.model.jsontext import load_json

REFUSAL_STATUSES = (400, 422)
MAX_ERROR_BYTES = 1024 * 1024
_TOO_LONG = re.compile(
    r"too long|too many tokens|context.?(?:length|window)|maximum context|exceeds? the (?:maximum|limit)"
    r"|input token count",
    re.IGNORECASE,
)
"""The only error of the history is its size: the original would be longer, and the client's recovery needs this
message."""
_RULES = (
    ("thinking", re.compile(r"thinking|signature|thought|reasoning|encrypted_content", re.IGNORECASE)),
    (
        "tool pairing",
        re.compile(r"tool_use|tool_result|tool_call|tool call|function.?(?:call|response)", re.IGNORECASE),
    ),
    ("roles", re.compile(r"\broles?\b.*(?:alternate|must|expected|unexpected)", re.IGNORECASE | re.DOTALL)),
    ("messages", re.compile(r"\b(?:messages|input|contents)(?:[.\[:]|` | must)", re.IGNORECASE)),
)


def find_refusal(status: int, body: bytes) -> str:
    """Return the rule that an error names; empty if it is not about the history."""
    if status not in REFUSAL_STATUSES:
        return ""
    message = read_error_message(body)
    if _TOO_LONG.search(message):
        return ""
    return next((name for name, pattern in _RULES if pattern.search(message)), "")


def read_error_message(body: bytes) -> str:
    """Return the message of an error in any vendor's envelope, or else the whole text."""
    try:
        value = load_json(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error") if isinstance(value, dict) else None
    fields = error if isinstance(error, dict) else value if isinstance(value, dict) else {}
    texts = [fields.get(name) for name in ("message", "param", "code")]
    return " ".join(text for text in texts if isinstance(text, str)) or body.decode("utf-8", "replace")
