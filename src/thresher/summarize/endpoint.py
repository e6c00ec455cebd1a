"""A model behind an address: what is asked of it, and what counts as its answer.

Two shapes are spoken: OpenAI's chat completions, which most servers imitate, and Anthropic's messages. Nothing is sent
that only some servers understand: no temperature, and a limit of tokens only where the API demands one.

The key is read from the environment when it is needed and goes into one header. Texts from elsewhere (a server's words,
a broken connection's) enter an error message only after the key was taken out of them; what a server says to a refused
key is not shown at all, since servers like to quote a part of it. Redirects are not followed: they would carry the key.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, Literal, get_args

from thresher.errors import OptionError, ThresherError
from thresher.model.jsontext import dump_json, load_json
from thresher.model.text import clip, to_printable_line

if TYPE_CHECKING:
    from thresher.summarize.http_client import HttpReply

EndpointApi = Literal["openai", "anthropic"]
KEY_VARIABLES: dict[EndpointApi, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ANTHROPIC_VERSION = "2023-06-01"
"""The version of Anthropic's API that this speaks."""
MAX_REPLY_BYTES = 2_000_000
"""Bytes of an answer; more is refused."""
MAX_QUOTED_CHARS = 200
"""Characters of a server's own words in an error."""
RETRYABLE_STATUSES = frozenset({408, 409, 429})
"""States that another try may find gone, besides all from 500 on."""
TRUNCATED_REASONS = ("length", "max_tokens", "model_context_window_exceeded")


class SummaryError(ThresherError):
    """A model gave no answer that can be used."""

    def __init__(self, message: str, *, passing: bool = False, wait: float = 0.0) -> None:
        """Say whether another try may do, and how many seconds the server wants to be left alone first."""
        super().__init__(message)
        self.is_retryable = passing
        self.retry_after = wait


@dataclass(frozen=True)
class Endpoint:
    """A model, where it is, and how patiently it is asked."""

    url: str
    """The base address: `http://localhost:8000/v1`, `https://api.anthropic.com`; or the whole one."""
    model: str
    api: EndpointApi = "openai"
    key_variable: str | None = None
    """The environment variable that holds the key; None: the API's usual one; empty: no key is sent."""
    timeout: float = 60.0
    """Seconds for one whole try."""
    retries: int = 2
    backoff: float = 0.5
    """Seconds before the second try; doubled for each one after it."""
    max_tokens: int = 8_192
    """What an answer may have at most, where the API wants to be told (Anthropic's)."""

    def __post_init__(self) -> None:
        problem = next(self._problems(), "")
        if problem:
            raise OptionError(f"endpoint: {problem}")

    def _problems(self) -> Iterator[str]:
        if self.api not in get_args(EndpointApi):
            yield f"`api` is one of {', '.join(get_args(EndpointApi))}; not {self.api!r}"
        yield from _address_problems(self.url)
        if not isinstance(self.model, str) or not self.model.strip():
            yield "`model` is the name that the server knows the model by; it is empty"
        for name, value, least in (("timeout", self.timeout, 0.001), ("backoff", self.backoff, 0)):
            if not _is_number(value) or not least <= value < math.inf:
                yield f"`{name}` is a number of seconds, {least:g} or more; not {value!r}"
        for name, value, least in (("retries", self.retries, 0), ("max_tokens", self.max_tokens, 1)):
            if not _is_number(value) or value != int(value) or value < least:
                yield f"`{name}` is a whole number, {least} or more; not {value!r}"

    @property
    def address(self) -> str:
        """Where requests go."""
        from urllib.parse import urlsplit, urlunsplit  # noqa: PLC0415 - only who asks a model needs it

        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        last = "/chat/completions" if self.api == "openai" else "/messages"
        if not path.endswith(last):
            # OpenAI's servers are given by a base that ends in its version, wherever that is; a bare host has none.
            versioned = path.endswith("/v1") or (self.api == "openai" and path)
            path += last if versioned else f"/v1{last}"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    @property
    def host(self) -> str:
        """The server, as errors name it."""
        from urllib.parse import urlsplit  # noqa: PLC0415 - only who asks a model needs it

        return urlsplit(self.url).netloc


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _address_problems(url: str) -> Iterator[str]:
    """What is wrong with an address; it is not repeated, for it may hold a password."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - only who asks a model needs it

    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        yield "`url` is an address of plain ASCII characters without blanks"
        return
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        yield f"`url` cannot be read as an address: {error}"
        return
    if parts.scheme not in ("http", "https") or not host:
        yield "`url` begins with http:// or https:// and a host"
    if "@" in parts.netloc:
        yield "`url` holds a name or a password: put the key into an environment variable and name it in `key_variable`"


def ask_model(endpoint: Endpoint, instructions: str, text: str) -> str:
    """What the model answers; raises `SummaryError` once no try has brought a usable answer."""
    key = _read_key(endpoint)
    body = dump_json(_body(endpoint, _replace_surrogates(instructions), _replace_surrogates(text))).encode()
    for tried in range(endpoint.retries + 1):
        try:
            return _replace_surrogates(_extract_answer(endpoint, _send_once(endpoint, body, key), key))
        except SummaryError as error:
            # Who is told to wait for longer than a try may last would only be turned away again before.
            if not error.is_retryable or tried == endpoint.retries or error.retry_after > endpoint.timeout:
                raise
            wait = max(error.retry_after, endpoint.backoff * 2**tried)
        sleep(wait)
    raise AssertionError("the last try returns or raises")


def _replace_surrogates(text: str) -> str:
    """The text without halves of characters, which no server takes."""
    return text.encode("utf-8", "replace").decode()


def _read_key(endpoint: Endpoint) -> str:
    name = KEY_VARIABLES[endpoint.api] if endpoint.key_variable is None else endpoint.key_variable
    key = os.environ.get(name, "").strip() if name else ""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SummaryError(f"the key in {name} holds characters that no header may hold; set it anew")
    return key


def _body(endpoint: Endpoint, instructions: str, text: str) -> dict[str, Any]:
    asked = {"role": "user", "content": text}
    if endpoint.api == "openai":
        return {"model": endpoint.model, "messages": [{"role": "system", "content": instructions}, asked]}
    limit = int(endpoint.max_tokens)
    return {"model": endpoint.model, "max_tokens": limit, "system": instructions, "messages": [asked]}


def _headers(endpoint: Endpoint, key: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "thresher"}
    if endpoint.api == "anthropic":
        headers["anthropic-version"] = ANTHROPIC_VERSION
        return headers | ({"x-api-key": key} if key else {})
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _send_once(endpoint: Endpoint, body: bytes, key: str) -> "HttpReply":
    """One try: a reply in time, of a size that can be read."""
    from thresher.summarize.http_client import HttpRequestError, send_http_post  # noqa: PLC0415 - brings urllib and ssl along

    try:
        reply = send_http_post(
            endpoint.address, body, _headers(endpoint, key), seconds=endpoint.timeout, largest=MAX_REPLY_BYTES
        )
    except HttpRequestError as error:
        told = _quote_without_key(str(error), key)
    else:
        if reply.body is None:
            raise SummaryError(f"{endpoint.host} sent more than {MAX_REPLY_BYTES:,} bytes; that is no summary")
        return reply
    # Outside of the `except`, so that no traceback shows what the connection was given.
    raise SummaryError(f"{endpoint.host} gave no answer: {told}", passing=True)


def _extract_answer(endpoint: Endpoint, reply: "HttpReply", key: str) -> str:
    value = _parse_json(reply.body or b"")
    if not 200 <= reply.status < 300:
        raise _build_status_error(endpoint, reply, value, key)
    if not isinstance(value, dict):
        raise SummaryError(f"{endpoint.host} did not answer with a JSON object; is {endpoint.address} the right place?")
    text, end, refusal = (_read_chat_reply if endpoint.api == "openai" else _read_anthropic_reply)(value)
    if refusal or end in ("content_filter", "refusal"):
        raise SummaryError(f"{endpoint.model} refused: {_quote_without_key(refusal, key) or end}")
    if end in TRUNCATED_REASONS:  # nobody can say what is missing, so the rest may not stand for the whole
        raise SummaryError(f"the answer of {endpoint.model} was broken off by its limit of tokens ({end})")
    if not text.strip():
        told = _quote_without_key(_error_text(value), key)
        raise SummaryError(f"{endpoint.model} at {endpoint.host} answered without a word" + (f": {told}" * bool(told)))
    return text


def _parse_json(body: bytes) -> Any:
    try:
        return load_json(body)
    except (ValueError, RecursionError):
        return None


def _build_status_error(endpoint: Endpoint, reply: "HttpReply", value: Any, key: str) -> SummaryError:
    status = reply.status
    passing = status in RETRYABLE_STATUSES or status >= 500
    if status in (401, 403):
        name = KEY_VARIABLES[endpoint.api] if endpoint.key_variable is None else endpoint.key_variable
        what = f"does not accept the key in {name}" if key else f"wants a key, and {name or 'no variable'} holds none"
    elif 300 <= status < 400:
        what = "answered with a redirect, which is not followed: give the address that it leads to"
    else:
        told = _quote_without_key(_error_text(value), key)
        what = "answered with an error" + (f": {told}" if told else "")
    return SummaryError(f"{endpoint.host} {what} (status {status})", passing=passing, wait=reply.retry_after)


def _error_text(value: Any) -> str:
    """What a server says went wrong, in the few ways in which they say it."""
    error = value.get("error", value) if isinstance(value, dict) else None
    told = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return told if isinstance(told, str) else ""


def _quote_without_key(text: str, key: str) -> str:
    """Foreign words on one line, short, and without the key."""
    flat = to_printable_line(text)
    return clip(flat.replace(key, "…") if key else flat, MAX_QUOTED_CHARS)


def _read_chat_reply(value: dict[str, Any]) -> tuple[str, str, str]:
    """Text, reason to end and words of refusal of OpenAI's shape."""
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
    """The same of Anthropic's, which refuses by its reason alone."""
    return _join_text_blocks(value.get("content")), _text_or_empty(value.get("stop_reason")), ""


def _join_text_blocks(content: Any) -> str:
    if not isinstance(content, list):
        return _text_or_empty(content)
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(_text_or_empty(block.get("text")) for block in blocks)


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
