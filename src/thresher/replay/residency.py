"""Check whether a request still contains the references of its call.

A reference is a hit if a text of the request contains it verbatim. A reference that is not a hit is recoverable if the
request shows how to get the text: by a placeholder for a block with that text, or by the call whose result contained
the text. Otherwise it is lost. A turn is served when all its references are hits. For each reference that is not a hit,
the model must refetch the smallest block that contains it.

Consecutive requests share nearly all their texts, so each text is inspected once. A text that equals a block counts as
that block; any other text (truncated, summarized) is added to an index.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import Part, content_id, part_text
from thresher.replay.references import Reference, ReferenceIndex, find_references
from thresher.replay.trace import Trace, argument_values, strip_line_numbers
from thresher.store import ContentStore, exact_id, short_id


class CallResidency(Struct, frozen=True):
    """The references of one call, by outcome."""

    references: tuple[Reference, ...]
    hits: tuple[Reference, ...]
    recoverable: tuple[Reference, ...]
    lost: tuple[Reference, ...]
    refetch_blocks: tuple[int, ...]
    """The blocks to refetch: for each missing reference the smallest block that contains it, without duplicates."""

    @property
    def is_served(self) -> bool:
        """True if all references are hits."""
        return len(self.hits) == len(self.references)


class _KnownText(NamedTuple):
    """The blocks and placeholders that one text of a request contains."""

    blocks: tuple[int, ...]
    other_text: int | None
    """Number of the text in the index of texts that equal no block; None if the text equals a block."""
    placeholder_blocks: frozenset[int]
    """Blocks whose placeholder is in the text."""


class _RequestContents(NamedTuple):
    """The texts of a request, and the blocks and placeholders that they contain."""

    texts: list[str]
    blocks: set[int]
    other_texts: set[int]
    """Index numbers of the texts that equal no block."""
    placeholder_blocks: set[int]
    """Blocks that have a placeholder in the request."""


class ResidencyChecker:
    """Check the requests of one trace, in any order. The store resolves placeholders that cover several parts."""

    def __init__(self, trace: Trace, *, store: ContentStore | None = None) -> None:
        """Find the references of all calls."""
        self.trace = trace
        self.references = find_references(trace)
        self._store = store
        self._other_texts = ReferenceIndex()
        self._known_texts: dict[str, _KnownText] = {}
        self._last_request = _RequestContents([], set(), set(), set())

    def check_call(self, call: int, sent: Sequence[str]) -> CallResidency:
        """Return the outcome of one call, given all the texts of its request."""
        request = self._inspect_request(sent)
        hits: list[Reference] = []
        missing: list[Reference] = []
        for reference in self.references[call]:
            is_hit = not reference.sources.isdisjoint(request.blocks) or self._other_texts.find_holders(
                reference.kind, reference.text, request.other_texts
            )
            (hits if is_hit else missing).append(reference)
        named = self._find_recoverable_blocks(request) if missing else set()
        recoverable = tuple([reference for reference in missing if not reference.sources.isdisjoint(named)])
        lost = tuple([reference for reference in missing if reference.sources.isdisjoint(named)])
        return CallResidency(
            self.references[call], tuple(hits), recoverable, lost, tuple(self._choose_refetches(missing))
        )

    def add_block_copy(self, part: Part, block: int) -> None:
        """Register the ids of another part that carries the text of a block, such as a refetched copy."""
        for id_ in (exact_id(part), content_id(part)):
            self._blocks_by_id.setdefault(short_id(id_), []).append(block)

    def _find_recoverable_blocks(self, request: _RequestContents) -> set[int]:
        """Return the blocks that the request shows how to get: by a placeholder or by the producing call."""
        named = request.blocks | request.placeholder_blocks
        results = {result for call, result in self._result_by_call.items() if call in named}
        return request.placeholder_blocks | results

    def _choose_refetches(self, references: Iterable[Reference]) -> Iterator[int]:
        """Yield the blocks to refetch, each once, even if several references need it."""
        fetched: set[int] = set()
        for reference in references:
            if reference.sources.isdisjoint(fetched):
                smallest = min(reference.sources, key=lambda block: (len(self.trace.blocks[block].text), -block))
                fetched.add(smallest)
                yield smallest

    def _inspect_request(self, sent: Sequence[str]) -> _RequestContents:
        """Return the content of a request. Reuse the last result if this request extends the last one."""
        texts, previous = list(sent), self._last_request
        count = len(previous.texts)
        if texts[:count] != previous.texts:
            count, previous = 0, _RequestContents([], set(), set(), set())
        request = previous._replace(texts=texts)
        for text in texts[count:]:
            known = self._known_texts.get(text)
            if known is None:
                known = self._known_texts[text] = self._inspect_text(text)
            request.blocks.update(known.blocks)
            request.placeholder_blocks.update(known.placeholder_blocks)
            if known.other_text is not None:
                request.other_texts.add(known.other_text)
        self._last_request = request
        return request

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
        """Yield the blocks that an id refers to. A placeholder may cover several blocks or other placeholders."""
        yield from self._blocks_by_id.get(short_id(id_), ())
        stored = self._store.get(id_) if self._store is not None and id_ not in within else None
        for member in stored if isinstance(stored, tuple) else ():
            yield from self._resolve_placeholder(member, within | {id_})

    @cached_property
    def _blocks_by_text(self) -> dict[str, tuple[int, ...]]:
        """Block numbers by text. Each block is listed by its text as searched and by its text as recorded."""
        numbers: dict[str, set[int]] = {}
        for number, block in enumerate(self.trace.blocks):
            for text in (block.text, part_text(self.trace.history.part(block.place))):
                numbers.setdefault(text, set()).add(number)
        return {text: tuple(blocks) for text, blocks in numbers.items()}

    @cached_property
    def _blocks_by_id(self) -> dict[str, list[int]]:
        """Block numbers by the short id that placeholders carry."""
        numbers: dict[str, list[int]] = {}
        history = self.trace.history
        for number, block in enumerate(self.trace.blocks):
            for id_ in {exact_id(history.part(block.place)), history.occurrence(block.place).content}:
                numbers.setdefault(short_id(id_), []).append(number)
        return numbers

    @cached_property
    def _result_by_call(self) -> dict[int, int]:
        """The block number of each result, by the block number of its call."""
        numbers = {block.place: number for number, block in enumerate(self.trace.blocks)}
        return {
            numbers[chain.call]: numbers[chain.result]
            for chain in self.trace.history.chains
            if chain.call in numbers and chain.result is not None and chain.result in numbers
        }
