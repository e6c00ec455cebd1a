"""OpenAI's Responses API over HTTP."""

from typing import Any

from thresher.dialects.cache_comparison import CacheComparison, ComparisonResult
from thresher.dialects.http_api import HttpApi, build_openai_error


def _read_diagnostics(diagnostics: Any) -> ComparisonResult:
    kind = str(diagnostics.get("type")) if isinstance(diagnostics, dict) else "no_result"
    if kind == "cache_miss":
        return ComparisonResult("miss", str(diagnostics.get("reason")))
    return ComparisonResult("match") if kind == "cache_hit" else ComparisonResult("inconclusive", kind)


HTTP_API = HttpApi(
    base_url="https://api.openai.com",
    generate_path=r"/responses",
    vendor_paths=r"/v1/(?:responses|chat|completions|embeddings|conversations|realtime|audio|images|assistants)\b",
    cache_comparison=CacheComparison(
        field="prompt_cache_options",
        id_field="comparison_response_id",
        answer_field="prompt_cache_diagnostics",
        history_reason="input_changed",
        read=_read_diagnostics,
    ),
    build_error=build_openai_error,
)
