"""Caches of values derived from a message, which all drafts share while the message is in memory."""

from collections.abc import Iterator

from thresher.edits.edit import Elision
from thresher.model import History, Message, Part, Place
from thresher.model.message_cache import cached_per_message
from thresher.store import exact_id
from thresher.tokens import TokenWeights


@cached_per_message
def cached_placeholders(_: Message) -> dict[tuple[int, int, str, str, bool, str | None], tuple[str, Part]]:
    """Cache the placeholders of a message's parts for later plans, by all that they depend on."""
    return {}


@cached_per_message
def cached_truncations(_: Message) -> dict[tuple[int, tuple[Elision, ...]], Part | None]:
    """Cache the truncated parts of a message, by part index and elided spans."""
    return {}


@cached_per_message
def cached_part_weights(_: Message) -> dict[tuple[TokenWeights, int], tuple[int, Part]]:
    """Cache the tokens of placeholders and truncated parts, by the `id()` of the part.

    Each value also holds its part, so that no other part gets the same `id()`.
    """
    return {}


@cached_per_message
def cached_exact_ids(message: Message) -> tuple[str, ...]:
    """Return the exact id of each part."""
    return tuple([exact_id(part) for part in message.parts])


def pair_chain_places(history: History) -> Iterator[tuple[Place, Place]]:
    """Yield the call and the result of each tool chain, in both orders."""
    for chain in history.chains:
        if chain.result is not None:
            yield chain.call, chain.result
            yield chain.result, chain.call
