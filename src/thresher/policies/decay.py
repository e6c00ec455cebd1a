"""What tools brought fades: the longer ago, the less of it is asked for again, and then names are most of it.

How fast was set by hand on recordings (`thresher replay`), in as few words as will do: a part wears by one with each
call, by half as much again with each prompt of the human's since then, and again where it is neither a file nor what
a sub-agent found; faster where its file was edited since or the same text came again; half as fast where it is what the
agent itself wrote into a call. What has worn off becomes a pointer that tells the names which stood in it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Replace
from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import History, Place
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count
from thresher.policies.file_accesses import collect_file_accesses
from thresher.policies.identifiers import IdentifierSelector, find_identifiers
from thresher.policies.mask import is_short_placeholder
from thresher.tokens import TokenWeights, default_token_weights

POLICY_NAME = "decay"
DECAY_PER_PROMPT = 0.5
"""What a prompt since then adds to how fast a part wears; three of them at most."""
MAX_PROMPTS = 3
DECAY_PER_EDIT = 0.15
"""What an edit of the file since then adds; five of them at most."""
MAX_EDITS = 5
REPEATED_FACTOR = 3.0
SLOW_CATEGORIES = frozenset({"file_read", "subagent"})
"""Kinds of work whose results are asked for longest."""
OTHER_CATEGORY_FACTOR = 1.5
CALL_FACTOR = 0.5
SHORT_CALL_TOKENS = 150
"""Tokens of a call that is left as it is."""


class _DecayingPart(NamedTuple):
    place: Place
    decay: float
    max_identifiers: int
    """How many its pointer may tell."""


@renamed_fields(age="max_decay", names="max_identifiers")
@dataclass(frozen=True, kw_only=True)
class DecayResults:
    """Point to results, and to what was written into long calls, when they have worn off; the most worn first."""

    max_decay: int = 24
    """The wear that is too much: calls since then, for a file that was read in this exchange and not edited."""
    max_identifiers: int = 80
    """Names that a pointer tells at most; half as many for a call."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count(POLICY_NAME, max_decay=self.max_decay, max_identifiers=self.max_identifiers)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose, the most worn first."""
        worn = [part for part in self._measure_parts(history) if part.decay > self.max_decay]
        names = IdentifierSelector(history) if worn else None
        notes: dict[Place, str] = {}
        for place, _, most in sorted(worn):
            found = find_identifiers(history[place.message])[place.part]
            notes[place] = names.select(found, most) if names is not None and most else ""
        for place, wear, _ in sorted(worn, key=lambda part: -part.decay):
            yield Replace(history.occurrence(place), POLICY_NAME, f"worn off ({wear:.0f} calls)", note=notes[place])

    def _measure_parts(self, history: History) -> Iterator[_DecayingPart]:
        """All that may fade."""
        rate = _DecayRate(history)
        for link in history.links:
            if link.chain.active or link.use.category == "question":
                continue
            call, result = link.chain.call, link.chain.result
            if result is not None and not is_short_placeholder(link.result):
                yield _DecayingPart(result, rate.result_decay(link, result), self.max_identifiers)
            if self.scale.parts(history[call.message])[call.part] > SHORT_CALL_TOKENS and not find_placeholder_ids(
                link.call.arguments
            ):
                yield _DecayingPart(call, rate.base_decay(call) * CALL_FACTOR, self.max_identifiers // 2)


class _DecayRate:
    """How far the parts of a history have worn."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._calls = len(history.turns)
        self._prompts = [exchange.start for exchange in history.exchanges]
        files = collect_file_accesses(history)
        self._reads = {read.result_place: read for read in files.reads}
        self._edits = {path: [edit.order for edit in edits] for path, edits in files.edits.items()}
        self._last_ordinals = {one.content: one.ordinal for one in history.occurrences}

    def base_decay(self, place: Place) -> float:
        """The calls since then, and more where the human has spoken."""
        prompts = len(self._prompts) - bisect_right(self._prompts, place.message)
        return (self._calls - self._history.turn(place.message)) * (1 + DECAY_PER_PROMPT * min(MAX_PROMPTS, prompts))

    def result_decay(self, link: ToolUse, place: Place) -> float:
        """How far a result has worn."""
        one = self._history.occurrence(place)
        wear = self.base_decay(place) * (REPEATED_FACTOR if self._last_ordinals[one.content] > one.ordinal else 1)
        read = self._reads.get(place)
        if read is not None:
            edits = self._edits.get(read.path, [])
            wear *= 1 + DECAY_PER_EDIT * min(MAX_EDITS, len(edits) - bisect_right(edits, read.order))
        return wear if link.use.category in SLOW_CATEGORIES else wear * OTHER_CATEGORY_FACTOR
