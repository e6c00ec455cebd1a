"""OpenAI's Responses API over HTTP."""

from thresher.dialects.http_api import HttpApi, build_openai_error

HTTP_API = HttpApi(
    base_url="https://api.openai.com",
    generate_path=r"/responses",
    vendor_paths=r"/v1/(?:responses|chat|completions|embeddings|conversations|realtime|audio|images|assistants)\b",
    build_error=build_openai_error,
)
