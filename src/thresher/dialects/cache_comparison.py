"""How a request asks an API to compare it with an earlier one, and how the answer says why the cache did not serve it.

Documented by Anthropic (guide "Cache diagnostics", Python SDK 2.10) and by OpenAI (guide "Prompt cache diagnostics",
Python SDK 3.51): the fields, the reasons, and that the comparison changes neither the answer nor the cache.

- Anthropic: the API remembers only requests that have the field, so the first one carries `null`. A stream has the
  result in `message_start`. `null` means no difference, `cache_miss_reason: null` that the comparison was unfinished.
  The header `cache-diagnosis-2026-04-07` was needed before the feature was generally available; no header is added
  here.
- OpenAI: Responses API, GPT-5.6 and later. Older models refuse the field with status 400.

Not documented: how long a request is remembered, whether OpenAI compares responses with `store: false`, which event of
OpenAI's stream carries the result (the last one that has it counts), and how other servers treat the fields.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import Struct

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


class ComparisonResult(NamedTuple):
    """The result of an API's comparison of a request with an earlier one."""

    outcome: Literal["match", "miss", "inconclusive"]
    """`match`: the request continues the earlier one; `miss`: it differs, which breaks the cache."""
    reason: str = ""


class CacheComparison(Struct, frozen=True, kw_only=True):
    """The fields of one API."""

    field: str
    """Field of the request that holds `id_field`."""
    id_field: str
    """Field for the id of the earlier answer."""
    begins_with_null: bool = False
    """True if the first request of a conversation must have the field, too, without an id."""
    answer_field: str
    """Field of the answer that holds the result."""
    history_reason: str
    """Reason that names the messages; all others name fields that Thresher never changes."""
    read: Callable[[Any], ComparisonResult]
    """Function that reads the result."""

    def can_ask(self, body: dict[str, Any]) -> bool:
        """Return True unless the client has set the field itself."""
        return self.field not in body or (isinstance(body[self.field], dict) and self.id_field not in body[self.field])

    def read_answer(self, fields: dict[str, Any]) -> ComparisonResult:
        """Return the result in an answer, whose fields may lack it."""
        if self.answer_field not in fields:
            return ComparisonResult("inconclusive", "no_result")
        result = self.read(fields[self.answer_field])
        # A reason becomes a key of the status, so it must be a name and no text.
        is_fine = result.outcome == "match" or _NAME.fullmatch(result.reason)
        return result if is_fine else result._replace(reason="unknown")

    def is_named_in(self, error: str) -> bool:
        """Return True if the message of an error names one of the fields."""
        return re.search(rf"\b(?:{self.field}|{self.id_field})\b", error) is not None
