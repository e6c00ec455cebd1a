"""Anthropic's Messages API."""

from collections.abc import Mapping
from typing import Any

from thresher.dialects.anthropic.cache_breakpoints import place_cache_breakpoints, request_thinking_drop
from thresher.dialects.anthropic.codec import NAME, ROLES, emit_anthropic, parse_anthropic, sniff_anthropic
from thresher.dialects.anthropic.http_api import HTTP_API
from thresher.dialects.anthropic.rules import RULES
from thresher.dialects.anthropic.system_rows import settle_system_rows
from thresher.dialects.base import Dialect, TokenFrame
from thresher.dialects.usage_fields import int_field
from thresher.model.message import Usage


def _read_usage(fields: Mapping[str, Any]) -> Usage | None:
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    if "prompt_tokens" in fields or not any(name in fields for name in cached):
        return None
    input_tokens, output_tokens = int_field(fields, "input_tokens"), int_field(fields, "output_tokens")
    written = fields.get("cache_creation")
    one_hour = int_field(written, "ephemeral_1h_input_tokens") if isinstance(written, Mapping) else 0
    read_tokens, written_tokens = (int_field(fields, name) for name in cached)
    return Usage(input_tokens, output_tokens, read_tokens, written_tokens, one_hour)


DIALECT = Dialect(
    NAME,
    "Anthropic Messages",
    parse_anthropic,
    emit_anthropic,
    sniff_anthropic,
    roles=ROLES,
    rules=RULES,
    http_api=HTTP_API,
    vendor="anthropic",
    model_name_part="claude",
    read_usage=_read_usage,
    place_cache_breakpoints=place_cache_breakpoints,
    request_thinking_drop=request_thinking_drop,
    settle_messages=settle_system_rows,
    # Measured on recorded usage, where only the sum of call and result is known. `tools` is documented at
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
    token_frame=TokenFrame(4, 48, 40, tools=346, factor=1.11),
)
