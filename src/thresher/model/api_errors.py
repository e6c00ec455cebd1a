"""Recognize messages that a harness wrote because a request to the model failed."""

import re

from thresher.model.message import Message
from thresher.model.parts import Text

_RESETS = r"(?: [∙·|] ?[^\n]{0,120})?"
_NOTICES = (
    re.compile(
        r"API Error(?: \([^()\n]{1,120}\))?(?::? \d{3})?[:.]?"
        r"(?: ?\{.*\}| (?:Rate limit(?: exceeded| reached)?|Overloaded|Connection (?:error|closed)|terminated"
        r"|Request (?:timed out|was aborted)|Internal server error)[.!]?)?" + _RESETS,
        re.DOTALL,
    ),
    re.compile(
        r"(?:Limit reached(?: for [\w.:-]{1,40})?"
        r"|(?:Claude usage|Claude AI usage|\d{1,2}-hour|Weekly|Session|Opus|Sonnet) limit reached"
        r"|You've (?:hit|reached) your (?:[\w-]{1,20} )?limit)[.!]?(?:\|\d+| Your limit will reset [^\n]{1,120})?"
        + _RESETS
    ),
)
"""Patterns of complete texts, by any author."""
_OPENING = re.compile(
    r"\s*(?:API Error|Prompt is too long|Credit balance|[^\n]{0,80}\b(?:limit|error|API key|login)\b)", re.IGNORECASE
)


def is_error_notice(text: str) -> bool:
    """Return whether a text is nothing but the report of a failed request, whoever wrote it."""
    text = text.strip()
    may_match = text.startswith(("API Error", "Claude", "You've ")) or "imit reached" in text[:60]
    return may_match and any(pattern.fullmatch(text) for pattern in _NOTICES)


def starts_like_error_notice(text: str) -> bool:
    """Return whether harness text that replaces a model's answer reports a failed request."""
    return bool(_OPENING.match(text))


def is_api_error(message: Message) -> bool:
    """Return whether a message in the model's role only reports a failed request."""
    if message.role != "assistant" or not message.parts or not all(isinstance(part, Text) for part in message.parts):
        return False
    is_from_harness = message.author == "harness" and starts_like_error_notice(message.text)
    return is_from_harness or is_error_notice(message.text)
