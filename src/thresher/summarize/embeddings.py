"""Request embeddings from an OpenAI-compatible server: Ollama, vLLM, llama.cpp, a vendor."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from thresher.summarize.endpoint import Endpoint, SummaryError, send_with_retries

MAX_EMBEDDING_BYTES = 100_000_000
"""Maximum bytes of a reply. A batch of long vectors is large, because each number is text."""


class EmbeddingReply(NamedTuple):
    """The vectors of the texts, in order, and the tokens that the server counted; 0 if it did not say."""

    vectors: list[list[float]]
    tokens: int


def request_embeddings(endpoint: Endpoint, texts: Sequence[str]) -> EmbeddingReply:
    """Return the vectors of several texts, with retries; raise `SummaryError` if the answer is unusable."""
    plain = [text.encode("utf-8", "replace").decode() for text in texts]

    def read(value: dict[str, Any], _key: str) -> EmbeddingReply:
        vectors = _read_vectors(value.get("data"), len(plain))
        if vectors is None:
            what = f"did not return {len(plain)} vectors of one length"
            raise SummaryError(f"{endpoint.host} {what}; check that {endpoint.model} is an embedding model")
        return EmbeddingReply(vectors, _read_tokens(value.get("usage")))

    body = {"model": endpoint.model, "input": plain, "encoding_format": "float"}
    return send_with_retries(endpoint, endpoint.address_of("/embeddings"), body, read, max_bytes=MAX_EMBEDDING_BYTES)


def _read_vectors(data: Any, count: int) -> list[list[float]] | None:
    """Return the vectors in the order of the texts; None if one is missing or invalid."""
    if not isinstance(data, list) or len(data) != count or not all(isinstance(row, dict) for row in data):
        return None
    places = [row.get("index", at) for at, row in enumerate(data)]
    if sorted(places, key=str) != sorted(range(count), key=str):
        return None
    vectors = [data[places.index(at)].get("embedding") for at in range(count)]
    size = len(vectors[0]) if vectors and isinstance(vectors[0], list) else 0
    return vectors if size and all(_is_vector(vector, size) for vector in vectors) else None


def _is_vector(value: Any, size: int) -> bool:
    is_list = isinstance(value, list) and len(value) == size
    return is_list and all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)


def _read_tokens(usage: Any) -> int:
    """Return the token count of a usage object; 0 if there is none."""
    tokens = usage.get("total_tokens", usage.get("prompt_tokens")) if isinstance(usage, dict) else 0
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0 else 0
