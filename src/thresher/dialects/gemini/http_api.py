"""Gemini's generateContent API over HTTP."""

from typing import Any

from thresher.dialects.http_api import HttpApi

_STATUS_WORDS = {502: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


def _build_error(status: int, message: str) -> dict[str, Any]:
    word = _STATUS_WORDS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return {"error": {"code": status, "message": message, "status": word}}


HTTP_API = HttpApi(
    base_url="https://generativelanguage.googleapis.com",
    generate_path=r"/models/[^/]+:(?:streamGenerateContent|generateContent)",
    count_path=r"/models/[^/]+:countTokens",
    names_model_in_path=True,
    vendor_paths=r"/v1(?:alpha|beta)\d?/|/upload/v1",
    vendor_headers=("x-goog-api-key",),
    build_error=_build_error,
)
