"""Whether a request still holds what its call was going to use.

A needle is resident if some text of the request holds it word for word, recoverable if not, but something that was
sent says where to get it (a stand-in that names a text with it, or the call whose result had it), and lost otherwise.
Only what is resident is served; for the rest a model must fetch again the smallest block that holds it.

Requests of one run share nearly all their texts, so each text is looked into once: one that is a block's own counts
as that block, any other (cut, summarised) is indexed like one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import Part, content_id, part_text
from thresher.replay.references import Reference, ReferenceIndex, find_references
from thresher.replay.trace import Trace, TraceBlock, argument_values, strip_line_numbers
from thresher.store import ContentStore, exact_id, short_id


class CallResidency(Struct, frozen=True):
    """What became of the needles of one call."""

    references: tuple[Reference, ...]
    hits: tuple[Reference, ...]
    recoverable: tuple[Reference, ...]
    lost: tuple[Reference, ...]
    refetch_blocks: tuple[int, ...]
    """The blocks to fetch again: the smallest that holds each needle which is not resident, each once."""

    @property
    def is_served(self) -> bool:
        """Whether the request held all that its call used."""
        return len(self.hits) == len(self.references)


class _KnownText(NamedTuple):
    """What one text of a request is known to be."""

    blocks: tuple[int, ...]
    other_text: int | None
    """Its number among the texts that are no block's."""
    placeholder_blocks: frozenset[int]
    """The blocks that it stands in for."""


class _RequestContents(NamedTuple):
    """A request, and what is in it."""

    texts: list[str]
    blocks: set[int]
    other_texts: set[int]
    """The texts that are no block's."""
    placeholder_blocks: set[int]
    """The blocks that something stands in for."""


class ResidencyChecker:
    """Judges the requests of one trace, in any order; with the store that was written to, it knows what folds hold."""

    def __init__(self, trace: Trace, *, store: ContentStore | None = None) -> None:
        """Find the needles of all calls."""
        self.trace = trace
        self.references = find_references(trace)
        self._store = store
        self._other_texts = ReferenceIndex()
        self._known_texts: dict[str, _KnownText] = {}
        self._last_request = _RequestContents([], set(), set(), set())

    def check_call(self, call: int, sent: Sequence[str]) -> CallResidency:
        """The outcome of one call, given all the texts that were sent for it."""
        here = self._inspect_request(sent)
        resident: list[Reference] = []
        faulty: list[Reference] = []
        for needle in self.references[call]:
            served = not needle.sources.isdisjoint(here.blocks)
            served = served or bool(self._other_texts.find_holders(needle.kind, needle.text, here.other_texts))
            (resident if served else faulty).append(needle)
        told = self._find_recoverable_blocks(here) if faulty else set()
        return CallResidency(
            self.references[call],
            tuple(resident),
            tuple([needle for needle in faulty if not needle.sources.isdisjoint(told)]),
            tuple([needle for needle in faulty if needle.sources.isdisjoint(told)]),
            tuple(self._choose_refetches(faulty)),
        )

    def add_block_copy(self, part: Part, block: int) -> None:
        """Know another part as a block: one that brings it again."""
        for id_ in (exact_id(part), content_id(part)):
            self._blocks_by_id.setdefault(short_id(id_), []).append(block)

    def _find_recoverable_blocks(self, here: "_RequestContents") -> set[int]:
        """The blocks that what was sent says how to get: by a stand-in, or by the call that they answer."""
        return here.placeholder_blocks | {
            result
            for call, result in self._result_by_call.items()
            if call in here.blocks or call in here.placeholder_blocks
        }

    def _choose_refetches(self, needles: Iterable[Reference]) -> Iterator[int]:
        """One block brings all that it holds."""
        fetched: set[int] = set()
        for needle in needles:
            if needle.sources.isdisjoint(fetched):
                smallest = min(needle.sources, key=lambda block: (len(self.trace.blocks[block].text), -block))
                fetched.add(smallest)
                yield smallest

    def _inspect_request(self, sent: Sequence[str]) -> "_RequestContents":
        """What is there; a request that goes on from the last one adds to what was there."""
        before = self._last_request
        goes_on = list(sent[: len(before.texts)]) == before.texts
        here = (
            _RequestContents(list(sent), *before[1:]) if goes_on else _RequestContents(list(sent), set(), set(), set())
        )
        for text in sent[len(before.texts) :] if goes_on else sent:
            known = self._known_texts.get(text)
            if known is None:
                known = self._known_texts[text] = self._inspect_text(text)
            here.blocks.update(known.blocks)
            here.placeholder_blocks.update(known.placeholder_blocks)
            if known.other_text is not None:
                here.other_texts.add(known.other_text)
        self._last_request = here
        return here

    def _inspect_text(self, text: str) -> _KnownText:
        blocks = self._blocks_by_text.get(text, ())
        if blocks:
            return _KnownText(blocks, None, frozenset())
        values = argument_values(text) if text.lstrip().startswith("{") else ()
        named = frozenset(
            block for id_ in find_placeholder_ids(text) for block in self._resolve_placeholder(id_, frozenset())
        )
        return _KnownText((), self._other_texts.add("\n".join((strip_line_numbers(text), *values))), named)

    def _resolve_placeholder(self, id_: str, within: frozenset[str]) -> Iterator[int]:
        """The blocks that an id stands for; a fold has members, which may be folds."""
        yield from self._blocks_by_id.get(short_id(id_), ())
        found = self._store.get(id_) if self._store is not None and id_ not in within else None
        if isinstance(found, tuple):
            for member in found:
                yield from self._resolve_placeholder(member, within | {id_})

    @cached_property
    def _blocks_by_text(self) -> dict[str, tuple[int, ...]]:
        """The blocks of a text, as it is searched and as it was written."""
        found: dict[str, set[int]] = {}
        for number, block in enumerate(self.trace.blocks):
            for text in (block.text, part_text(self.trace.history.part(block.place))):
                found.setdefault(text, set()).add(number)
        return {text: tuple(blocks) for text, blocks in found.items()}

    @cached_property
    def _blocks_by_id(self) -> dict[str, list[int]]:
        """The blocks of an id, by what stand-ins carry."""
        found: dict[str, list[int]] = {}
        for number, block in enumerate(self.trace.blocks):
            for id_ in self._block_ids(block):
                found.setdefault(short_id(id_), []).append(number)
        return found

    def _block_ids(self, block: TraceBlock) -> set[str]:
        history = self.trace.history
        return {exact_id(history.part(block.place)), history.occurrence(block.place).content}

    @cached_property
    def _result_by_call(self) -> dict[int, int]:
        """The block of a call → the block of its result."""
        numbers = {block.place: number for number, block in enumerate(self.trace.blocks)}
        chains = ((numbers.get(chain.call), chain.result) for chain in self.trace.history.chains)
        return {
            call: numbers[result]
            for call, result in chains
            if call is not None and result is not None and result in numbers
        }
