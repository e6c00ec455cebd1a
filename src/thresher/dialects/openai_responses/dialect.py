"""OpenAI's Responses API."""

from functools import partial

from thresher.dialects.base import Dialect
from thresher.dialects.layout import arrange_in_order
from thresher.dialects.openai_responses.codec import (
    NAME,
    ROLES,
    emit_openai_responses,
    parse_openai_responses,
    sniff_openai_responses,
)
from thresher.dialects.openai_responses.http_api import HTTP_API
from thresher.dialects.openai_responses.rules import RULES
from thresher.dialects.usage_fields import usage_with_cached

DIALECT = Dialect(
    NAME,
    "OpenAI Responses",
    parse_openai_responses,
    emit_openai_responses,
    sniff_openai_responses,
    messages_field="input",
    arrange=arrange_in_order,
    roles=frozenset(ROLES),
    rules=RULES,
    http_api=HTTP_API,
    vendor="openai",
    prompt_fields=frozenset({"instructions", "tools"}),
    server_history_fields=("previous_response_id", "conversation"),
    takes_text=True,
    read_usage=partial(
        usage_with_cached,
        input_field="input_tokens",
        output_field="output_tokens",
        details_field="input_tokens_details",
    ),
    links_steps=True,
    has_item_ids=True,
    reasoning_needs_next_item=True,
)
