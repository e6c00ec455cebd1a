"""Anthropic's Messages API over HTTP."""

from typing import Any

from thresher.dialects.http_api import HttpApi

_ERROR_TYPES = {413: "request_too_large", 502: "api_error", 504: "timeout_error"}


def _build_error(status: int, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


HTTP_API = HttpApi(
    base_url="https://api.anthropic.com",
    generate_path=r"/messages",
    count_path=r"/messages/count_tokens",
    vendor_paths=r"/v1/(?:messages|complete|organizations|skills)\b",
    vendor_headers=("anthropic-version", "x-api-key"),
    build_error=_build_error,
)
