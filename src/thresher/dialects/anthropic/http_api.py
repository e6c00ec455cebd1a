"""Anthropic's Messages API over HTTP."""

from typing import Any

from thresher.dialects.cache_comparison import CacheComparison, ComparisonResult
from thresher.dialects.http_api import HttpApi

_ERROR_TYPES = {413: "request_too_large", 502: "api_error", 504: "timeout_error"}


def _build_error(status: int, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _read_diagnostics(diagnostics: Any) -> ComparisonResult:
    if diagnostics is None:
        return ComparisonResult("match")
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, dict) else None
    if reason is None:
        return ComparisonResult("inconclusive", "pending")
    kind = str(reason.get("type")) if isinstance(reason, dict) else ""
    return ComparisonResult("miss" if kind.endswith("_changed") else "inconclusive", kind)


HTTP_API = HttpApi(
    base_url="https://api.anthropic.com",
    generate_path=r"/messages",
    count_path=r"/messages/count_tokens",
    vendor_paths=r"/v1/(?:messages|complete|organizations|skills)\b",
    vendor_headers=("anthropic-version", "x-api-key"),
    cache_comparison=CacheComparison(
        field="diagnostics",
        id_field="previous_message_id",
        begins_with_null=True,
        answer_field="diagnostics",
        history_reason="messages_changed",
        read=_read_diagnostics,
    ),
    build_error=_build_error,
)
