"""A model endpoint: send a prompt, validate the answer.

Supports OpenAI's chat completions API, which most servers implement, and Anthropic's messages API. Requests contain
only widely supported fields: no temperature, and a token limit only if the API requires one.

The API key comes from the environment and goes into one header only. Error messages quote servers and connection errors
without the key. If a server rejects the key, its message is not quoted, because servers tend to quote part of the key.
Redirects are not followed, because they would forward the key.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from thresher.errors import OptionError, ThresherError
from thresher.model.jsontext import dump_json, load_json
from thresher.model.text import clip, to_printable_line

if TYPE_CHECKING:
    from thresher.summarize.http_client import HttpReply

AnswerT = TypeVar("AnswerT")
EndpointApi = Literal["openai", "anthropic"]
KEY_VARIABLES: dict[EndpointApi, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ANTHROPIC_VERSION = "2023-06-01"
"""Supported version of Anthropic's API."""
MAX_REPLY_BYTES = 2_000_000
"""Maximum bytes of a reply."""
MAX_QUOTED_CHARS = 200
"""Maximum characters to quote from a server in an error."""
RETRYABLE_STATUSES = frozenset({408, 409, 429})
"""HTTP statuses to retry, besides 500 and above."""
TRUNCATED_REASONS = ("length", "max_tokens", "model_context_window_exceeded")


class SummaryError(ThresherError):
    """A model returned no usable answer."""

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float = 0.0) -> None:
        """Store whether a retry may succeed, and the seconds that the server asks to wait before it."""
        super().__init__(message)
        self.is_retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True)
class Endpoint:
    """A model, its server, and the timeout and retry policy."""

    url: str
    """Base URL, such as `http://localhost:8000/v1` or `https://api.anthropic.com`, or the full URL for requests."""
    model: str
    api: EndpointApi = "openai"
    key_variable: str | None = None
    """Environment variable with the key; None: the API's usual one; empty: send no key."""
    timeout: float = 60.0
    """Timeout of one attempt, in seconds."""
    retries: int = 2
    backoff: float = 0.5
    """Seconds to wait before the first retry; each further retry doubles the wait."""
    max_tokens: int = 8_192
    """Maximum tokens of an answer; sent only to Anthropic's API, which requires a limit."""

    def __post_init__(self) -> None:
        problem = next(self._problems(), "")
        if problem:
            raise OptionError(f"endpoint: {problem}")

    def _problems(self) -> Iterator[str]:
        if self.api not in get_args(EndpointApi):
            yield f"`api` must be one of {', '.join(get_args(EndpointApi))}, got {self.api!r}"
        yield from _address_problems(self.url)
        if not isinstance(self.model, str) or not self.model.strip():
            yield "`model` must be the model's name on the server, got an empty value"
        for name, value, least in (("timeout", self.timeout, 0.001), ("backoff", self.backoff, 0)):
            if not _is_number(value) or not least <= value < math.inf:
                yield f"`{name}` must be a number of seconds, {least:g} or more, got {value!r}"
        for name, value, least in (("retries", self.retries, 0), ("max_tokens", self.max_tokens, 1)):
            if not _is_number(value) or value != int(value) or value < least:
                yield f"`{name}` must be a whole number, {least} or more, got {value!r}"

    @property
    def address(self) -> str:
        """The URL for requests."""
        return self.address_of("/chat/completions" if self.api == "openai" else "/messages")

    def address_of(self, last: str) -> str:
        """Return the URL of an operation, whose path ends with `last`."""
        from urllib.parse import urlsplit, urlunsplit  # noqa: PLC0415 - only needed with a model

        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        if not path.endswith(last):
            # A base URL with a path already contains the version of OpenAI's API; other URLs need `/v1`.
            versioned = path.endswith("/v1") or (self.api == "openai" and path)
            path += last if versioned else f"/v1{last}"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    @property
    def host(self) -> str:
        """The server's name, with its port if the URL has one, for error messages."""
        from urllib.parse import urlsplit  # noqa: PLC0415 - only needed with a model

        return urlsplit(self.url).netloc

    @property
    def is_local(self) -> bool:
        """True if the server runs on this machine."""
        from urllib.parse import urlsplit  # noqa: PLC0415 - only needed with a model

        return (urlsplit(self.url).hostname or "") in ("localhost", "127.0.0.1", "::1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _address_problems(url: str) -> Iterator[str]:
    """Yield the problems of a URL without quoting it, because it may contain a password."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - only needed with a model

    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        yield "`url` must consist of printable ASCII characters without spaces"
        return
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        yield f"`url` is not a valid URL: {error}"
        return
    if parts.scheme not in ("http", "https") or not host:
        yield "`url` must start with http:// or https:// and a host"
    if "@" in parts.netloc:
        yield "`url` must not contain a name or password: put the key into an environment variable (`key_variable`)"


def ask_model(endpoint: Endpoint, instructions: str, text: str) -> str:
    """Return the model's answer, with retries; raise `SummaryError` if there is no usable answer."""
    return ask_model_with_usage(endpoint, instructions, text)[0]


def ask_model_with_usage(endpoint: Endpoint, instructions: str, text: str) -> tuple[str, dict[str, Any]]:
    """Return the model's answer, and the usage object that the server sent with it, or an empty one."""
    body = _body(endpoint, _replace_surrogates(instructions), _replace_surrogates(text))

    def read(value: dict[str, Any], key: str) -> tuple[str, dict[str, Any]]:
        usage = value.get("usage")
        return _replace_surrogates(_extract_answer(endpoint, value, key)), usage if isinstance(usage, dict) else {}

    return send_with_retries(endpoint, endpoint.address, body, read)


def send_with_retries(
    endpoint: Endpoint,
    address: str,
    body: Mapping[str, Any],
    read: Callable[[dict[str, Any], str], AnswerT],
    *,
    max_bytes: int = MAX_REPLY_BYTES,
) -> AnswerT:
    """Send a request, with retries; return what `read` makes of the reply's JSON object and the key."""
    key = _read_key(endpoint)
    data = dump_json(body).encode()
    for attempt in range(endpoint.retries + 1):
        try:
            return read(_send_once(endpoint, address, data, key, max_bytes), key)
        except SummaryError as error:
            # If the server asks to wait longer than one timeout, an earlier retry would only fail again.
            if not error.is_retryable or attempt == endpoint.retries or error.retry_after > endpoint.timeout:
                raise
            wait = max(error.retry_after, endpoint.backoff * 2**attempt)
        sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which servers reject."""
    return text.encode("utf-8", "replace").decode()


def _read_key(endpoint: Endpoint) -> str:
    name = KEY_VARIABLES[endpoint.api] if endpoint.key_variable is None else endpoint.key_variable
    key = os.environ.get(name, "").strip() if name else ""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SummaryError(f"the key in `{name}` contains characters that are invalid in a header; set it again")
    return key


def _body(endpoint: Endpoint, instructions: str, text: str) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    if endpoint.api == "openai":
        return {"model": endpoint.model, "messages": [{"role": "system", "content": instructions}, message]}
    limit = int(endpoint.max_tokens)
    return {"model": endpoint.model, "max_tokens": limit, "system": instructions, "messages": [message]}


def _headers(endpoint: Endpoint, key: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "thresher"}
    if endpoint.api == "anthropic":
        headers["anthropic-version"] = ANTHROPIC_VERSION
        return headers | ({"x-api-key": key} if key else {})
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _send_once(endpoint: Endpoint, address: str, body: bytes, key: str, max_bytes: int) -> dict[str, Any]:
    """Send the request once and return the reply's JSON object; raise `SummaryError` if there is none."""
    from thresher.summarize.http_client import HttpRequestError, send_http_post  # noqa: PLC0415 - imports urllib and ssl

    try:
        reply = send_http_post(address, body, _headers(endpoint, key), timeout=endpoint.timeout, max_bytes=max_bytes)
    except HttpRequestError as error:
        detail = _quote_without_key(str(error), key)
    else:
        if reply.body is None:
            raise SummaryError(f"{endpoint.host} sent more than {max_bytes:,} bytes, too much for an answer")
        return _read_object(endpoint, address, reply, key)
    # Raised outside of `except`, so that no traceback contains the request and its key.
    raise SummaryError(f"no answer from {endpoint.host}: {detail}", retryable=True)


def _read_object(endpoint: Endpoint, address: str, reply: "HttpReply", key: str) -> dict[str, Any]:
    value = _parse_json(reply.body or b"")
    if not 200 <= reply.status < 300:
        raise _build_status_error(endpoint, reply, value, key)
    if not isinstance(value, dict):
        raise SummaryError(f"{endpoint.host} did not return a JSON object; check the URL {address}")
    return value


def _extract_answer(endpoint: Endpoint, value: dict[str, Any], key: str) -> str:
    text, end, refusal = (_read_chat_reply if endpoint.api == "openai" else _read_anthropic_reply)(value)
    if refusal or end in ("content_filter", "refusal"):
        raise SummaryError(f"{endpoint.model} refused: {_quote_without_key(refusal, key) or end}")
    if end in TRUNCATED_REASONS:  # a summary must be complete
        raise SummaryError(f"the answer of {endpoint.model} was truncated at its token limit ({end})")
    if not text.strip():
        detail = _quote_without_key(_error_text(value), key)
        raise SummaryError(
            f"{endpoint.model} at {endpoint.host} returned an empty answer" + (f": {detail}" * bool(detail))
        )
    return text


def _parse_json(body: bytes) -> Any:
    try:
        return load_json(body)
    except (ValueError, RecursionError):
        return None


def _build_status_error(endpoint: Endpoint, reply: "HttpReply", value: Any, key: str) -> SummaryError:
    status = reply.status
    retryable = status in RETRYABLE_STATUSES or status >= 500
    if status in (401, 403):
        name = KEY_VARIABLES[endpoint.api] if endpoint.key_variable is None else endpoint.key_variable
        missing = f"requires a key: set {name}" if name else "requires a key, but `key_variable` is empty"
        problem = f"rejected the key in {name}" if key else missing
    elif 300 <= status < 400:
        problem = "returned a redirect, which is not followed: use the URL that it points to"
    else:
        detail = _quote_without_key(_error_text(value), key)
        problem = "returned an error" + (f": {detail}" if detail else "")
    message = f"{endpoint.host} {problem} (status {status})"
    return SummaryError(message, retryable=retryable, retry_after=reply.retry_after)


def _error_text(value: Any) -> str:
    """Extract a server's error message from the common formats."""
    error = value.get("error", value) if isinstance(value, dict) else None
    return _text_or_empty(error.get("message", error.get("detail")) if isinstance(error, dict) else error)


def _quote_without_key(text: str, key: str) -> str:
    """Return a server's text as one short line without the key."""
    flat = to_printable_line(text)
    return clip(flat.replace(key, "…") if key else flat, MAX_QUOTED_CHARS)


def _read_chat_reply(value: dict[str, Any]) -> tuple[str, str, str]:
    """Return text, finish reason and refusal of an OpenAI reply."""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    fields = message if isinstance(message, dict) else {}
    return (
        _join_text_blocks(fields.get("content")),
        _text_or_empty(choice.get("finish_reason")),
        _text_or_empty(fields.get("refusal")),
    )


def _read_anthropic_reply(value: dict[str, Any]) -> tuple[str, str, str]:
    """Return text, stop reason and an empty refusal of an Anthropic reply."""
    return _join_text_blocks(value.get("content")), _text_or_empty(value.get("stop_reason")), ""


def _join_text_blocks(content: Any) -> str:
    if not isinstance(content, list):
        return _text_or_empty(content)
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(_text_or_empty(block.get("text")) for block in blocks)


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
