"""Gemini's generateContent API."""

from collections.abc import Mapping
from typing import Any

from thresher.dialects.base import Dialect, TokenFrame
from thresher.dialects.gemini.codec import NAME, ROLES, emit_gemini, parse_gemini, sniff_gemini
from thresher.dialects.gemini.http_api import HTTP_API
from thresher.dialects.gemini.rules import RULES
from thresher.dialects.usage_fields import int_field
from thresher.model.message import Usage

_USAGE_FIELDS = (
    ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount"),
    ("prompt_token_count", "cached_content_token_count", "candidates_token_count"),
)


def _read_usage(fields: Mapping[str, Any]) -> Usage | None:
    for input_field, cached_field, output_field in _USAGE_FIELDS:
        if input_field in fields:
            cached_tokens = int_field(fields, cached_field)
            return Usage(int_field(fields, input_field) - cached_tokens, int_field(fields, output_field), cached_tokens)
    return None


DIALECT = Dialect(
    NAME,
    "Gemini generateContent",
    parse_gemini,
    emit_gemini,
    sniff_gemini,
    messages_field="contents",
    roles=ROLES,
    rules=RULES,
    http_api=HTTP_API,
    vendor="gemini",
    prompt_fields=frozenset({"systemInstruction", "system_instruction", "tools", "config"}),
    takes_text=True,
    read_usage=_read_usage,
    token_frame=TokenFrame(factor=1.05),
    links_steps=True,
    merges_same_role=True,
)
