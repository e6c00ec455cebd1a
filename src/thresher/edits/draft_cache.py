"""Derived values of a message that drafts share: computed once for as long as the message lives."""

from collections.abc import Iterator

from thresher.edits.edit import Elision
from thresher.model import History, Message, Part, Place
from thresher.model.message_cache import cached_per_message
from thresher.store import exact_id
from thresher.tokens import TokenWeights


@cached_per_message
def cached_placeholders(_: Message) -> dict[tuple[int, int, str, str], tuple[str, Part]]:
    """Stand-ins made for a message's parts, by part, turn and note: the next plan makes the same ones."""
    return {}


@cached_per_message
def cached_truncations(_: Message) -> dict[tuple[int, tuple[Elision, ...]], Part | None]:
    """Cuts made in a message's parts."""
    return {}


@cached_per_message
def cached_part_weights(_: Message) -> dict[tuple[TokenWeights, int], tuple[int, Part]]:
    """What those weigh, by scale; the parts are held so that their ids stay theirs."""
    return {}


@cached_per_message
def cached_exact_ids(message: Message) -> tuple[str, ...]:
    """Return the exact id of each part."""
    return tuple([exact_id(part) for part in message.parts])


def pair_chain_places(history: History) -> Iterator[tuple[Place, Place]]:
    """Yield the call and the result of each tool chain, both ways round."""
    for chain in history.chains:
        if chain.result is not None:
            yield chain.call, chain.result
            yield chain.result, chain.call
