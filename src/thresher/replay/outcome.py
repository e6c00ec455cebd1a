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

from thresher.edits.standin import ids_in
from thresher.model import Part, content_id, part_text
from thresher.replay.references import Index, Needle, references
from thresher.replay.trace import Block, Trace, argument_values, unnumbered
from thresher.store import Store, exact_id, short_id


class Outcome(Struct, frozen=True):
    """What became of the needles of one call."""

    needles: tuple[Needle, ...]
    resident: tuple[Needle, ...]
    recoverable: tuple[Needle, ...]
    lost: tuple[Needle, ...]
    faults: tuple[int, ...]
    """The blocks to fetch again: the smallest that holds each needle which is not resident, each once."""

    @property
    def served(self) -> bool:
        """Whether the request held all that its call used."""
        return len(self.resident) == len(self.needles)


class _Sent(NamedTuple):
    """What one text of a request is known to be."""

    blocks: tuple[int, ...]
    other: int | None
    """Its number among the texts that are no block's."""
    named: frozenset[int]
    """The blocks that it stands in for."""


class _Present(NamedTuple):
    """A request, and what is in it."""

    sent: list[str]
    blocks: set[int]
    others: set[int]
    """The texts that are no block's."""
    named: set[int]
    """The blocks that something stands in for."""


class Referee:
    """Judges the requests of one trace, in any order; with the store that was written to, it knows what folds hold."""

    def __init__(self, trace: Trace, *, store: Store | None = None) -> None:
        """Find the needles of all calls."""
        self.trace = trace
        self.needles = references(trace)
        self._store = store
        self._others = Index()
        self._seen: dict[str, _Sent] = {}
        self._last = _Present([], set(), set(), set())

    def judge(self, call: int, sent: Sequence[str]) -> Outcome:
        """The outcome of one call, given all the texts that were sent for it."""
        here = self._present(sent)
        resident: list[Needle] = []
        faulty: list[Needle] = []
        for needle in self.needles[call]:
            served = not needle.sources.isdisjoint(here.blocks)
            served = served or bool(self._others.holders(needle.kind, needle.text, here.others))
            (resident if served else faulty).append(needle)
        told = self._told(here) if faulty else set()
        return Outcome(
            self.needles[call],
            tuple(resident),
            tuple([needle for needle in faulty if not needle.sources.isdisjoint(told)]),
            tuple([needle for needle in faulty if needle.sources.isdisjoint(told)]),
            tuple(self._fetched(faulty)),
        )

    def adopt(self, part: Part, block: int) -> None:
        """Know another part as a block: one that brings it again."""
        for id_ in (exact_id(part), content_id(part)):
            self._by_id.setdefault(short_id(id_), []).append(block)

    def _told(self, here: "_Present") -> set[int]:
        """The blocks that what was sent says how to get: by a stand-in, or by the call that they answer."""
        return here.named | {
            result for call, result in self._results.items() if call in here.blocks or call in here.named
        }

    def _fetched(self, needles: Iterable[Needle]) -> Iterator[int]:
        """One block brings all that it holds."""
        fetched: set[int] = set()
        for needle in needles:
            if needle.sources.isdisjoint(fetched):
                smallest = min(needle.sources, key=lambda block: (len(self.trace.blocks[block].text), -block))
                fetched.add(smallest)
                yield smallest

    def _present(self, sent: Sequence[str]) -> "_Present":
        """What is there; a request that goes on from the last one adds to what was there."""
        before = self._last
        goes_on = list(sent[: len(before.sent)]) == before.sent
        here = _Present(list(sent), *before[1:]) if goes_on else _Present(list(sent), set(), set(), set())
        for text in sent[len(before.sent) :] if goes_on else sent:
            known = self._seen.get(text)
            if known is None:
                known = self._seen[text] = self._look(text)
            here.blocks.update(known.blocks)
            here.named.update(known.named)
            if known.other is not None:
                here.others.add(known.other)
        self._last = here
        return here

    def _look(self, text: str) -> _Sent:
        blocks = self._originals.get(text, ())
        if blocks:
            return _Sent(blocks, None, frozenset())
        values = argument_values(text) if text.lstrip().startswith("{") else ()
        named = frozenset(block for id_ in ids_in(text) for block in self._behind(id_, frozenset()))
        return _Sent((), self._others.add("\n".join((unnumbered(text), *values))), named)

    def _behind(self, id_: str, within: frozenset[str]) -> Iterator[int]:
        """The blocks that an id stands for; a fold has members, which may be folds."""
        yield from self._by_id.get(short_id(id_), ())
        found = self._store.get(id_) if self._store is not None and id_ not in within else None
        if isinstance(found, tuple):
            for member in found:
                yield from self._behind(member, within | {id_})

    @cached_property
    def _originals(self) -> dict[str, tuple[int, ...]]:
        """The blocks of a text, as it is searched and as it was written."""
        found: dict[str, set[int]] = {}
        for number, block in enumerate(self.trace.blocks):
            for text in (block.text, part_text(self.trace.history.part(block.place))):
                found.setdefault(text, set()).add(number)
        return {text: tuple(blocks) for text, blocks in found.items()}

    @cached_property
    def _by_id(self) -> dict[str, list[int]]:
        """The blocks of an id, by what stand-ins carry."""
        found: dict[str, list[int]] = {}
        for number, block in enumerate(self.trace.blocks):
            for id_ in self._ids(block):
                found.setdefault(short_id(id_), []).append(number)
        return found

    def _ids(self, block: Block) -> set[str]:
        history = self.trace.history
        return {exact_id(history.part(block.place)), history.occurrence(block.place).content}

    @cached_property
    def _results(self) -> dict[int, int]:
        """The block of a call → the block of its result."""
        numbers = {block.place: number for number, block in enumerate(self.trace.blocks)}
        chains = ((numbers.get(chain.call), chain.result) for chain in self.trace.history.chains)
        return {
            call: numbers[result]
            for call, result in chains
            if call is not None and result is not None and result in numbers
        }
