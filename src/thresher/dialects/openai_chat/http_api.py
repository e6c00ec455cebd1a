"""OpenAI's Chat Completions API over HTTP."""

from thresher.dialects.http_api import HttpApi, build_openai_error

HTTP_API = HttpApi(
    base_url="https://api.openai.com", generate_path=r"/chat/completions", build_error=build_openai_error
)
