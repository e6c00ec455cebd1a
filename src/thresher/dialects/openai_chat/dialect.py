"""OpenAI's Chat Completions API, which many vendors' servers implement."""

from functools import partial

from thresher.dialects.base import Dialect
from thresher.dialects.openai_chat.codec import NAME, ROLES, emit_openai_chat, parse_openai_chat
from thresher.dialects.openai_chat.http_api import HTTP_API
from thresher.dialects.openai_chat.layout import arrange_chat_rows
from thresher.dialects.openai_chat.rows import sniff_openai_chat
from thresher.dialects.openai_chat.rules import RULES
from thresher.dialects.usage_fields import usage_with_cached

DIALECT = Dialect(
    NAME,
    "OpenAI Chat Completions",
    parse_openai_chat,
    emit_openai_chat,
    sniff_openai_chat,
    arrange=arrange_chat_rows,
    roles=frozenset(ROLES),
    rules=RULES,
    http_api=HTTP_API,
    prompt_fields=frozenset({"tools", "functions"}),
    read_usage=partial(
        usage_with_cached,
        input_field="prompt_tokens",
        output_field="completion_tokens",
        details_field="prompt_tokens_details",
    ),
    one_result_per_message=True,
)
