"""The policy `decay`: replace tool results by placeholders as they age, and list the identifiers that they contained.

The older a result is, the less of it is used again, and what is used is mostly identifiers. The rates are tuned on
recordings (`thresher replay`). The decay of a part grows by 1 with each call of the model. It grows faster after each
later prompt. For a result, it also grows faster after each later edit of the file, if a later part repeats the text,
and if the tool neither reads a file nor starts a sub-agent. Arguments of a call decay half as fast. The placeholder
lists the identifiers of the text that it replaces.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Replace
from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import History, Place
from thresher.model.human_words import ANSWERED_CATEGORIES
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count
from thresher.policies.file_accesses import collect_file_accesses
from thresher.policies.identifiers import IdentifierSelector, find_identifiers
from thresher.policies.mask import is_short_placeholder
from thresher.tokens import TokenWeights, default_token_weights

POLICY_NAME = "decay"
DECAY_PER_PROMPT = 0.5
"""Increase of the decay rate for each later prompt, up to `MAX_PROMPTS` prompts."""
MAX_PROMPTS = 3
DECAY_PER_EDIT = 0.15
"""Increase of the decay rate for each later edit of the file, up to `MAX_EDITS` edits."""
MAX_EDITS = 5
REPEATED_FACTOR = 3.0
SLOW_CATEGORIES = frozenset({"file_read", "subagent"})
"""Tool categories whose results stay useful longest."""
OTHER_CATEGORY_FACTOR = 1.5
CALL_FACTOR = 0.5
SHORT_CALL_TOKENS = 150
"""Maximum tokens of a short call, which always stays unchanged."""


class _DecayingPart(NamedTuple):
    place: Place
    decay: float
    max_identifiers: int
    """Maximum number of identifiers in the part's placeholder."""


@renamed_fields(age="max_decay", names="max_identifiers")
@dataclass(frozen=True, kw_only=True)
class DecayResults:
    """Replace decayed results and long call arguments by placeholders, most decayed first."""

    max_decay: int = 24
    """Decay above which a part is replaced. A file read in this exchange and not edited decays by 1 per call."""
    max_identifiers: int = 80
    """Maximum identifiers in a placeholder; half as many for a call."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count(POLICY_NAME, max_decay=self.max_decay, max_identifiers=self.max_identifiers)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose placeholders, most decayed first."""
        decayed = [part for part in self._measure_parts(history) if part.decay > self.max_decay]
        names = IdentifierSelector(history) if decayed else None
        notes: dict[Place, str] = {}
        for place, _, limit in sorted(decayed):
            found = find_identifiers(history[place.message])[place.part]
            notes[place] = names.select(found, limit) if names is not None and limit else ""
        for place, decay, _ in sorted(decayed, key=lambda part: -part.decay):
            yield Replace(history.occurrence(place), POLICY_NAME, f"decayed ({decay:.0f} calls)", note=notes[place])

    def _measure_parts(self, history: History) -> Iterator[_DecayingPart]:
        """Yield all parts that may decay."""
        rate = _DecayRate(history)
        for link in history.links:
            if link.chain.active or link.use.category in ANSWERED_CATEGORIES:
                continue
            call, result = link.chain.call, link.chain.result
            if result is not None and not is_short_placeholder(link.result):
                yield _DecayingPart(result, rate.result_decay(link, result), self.max_identifiers)
            is_long = self.scale.parts(history[call.message])[call.part] > SHORT_CALL_TOKENS
            if is_long and not find_placeholder_ids(link.call.arguments):
                yield _DecayingPart(call, rate.base_decay(call) * CALL_FACTOR, self.max_identifiers // 2)


class _DecayRate:
    """Computes the decay of the parts of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._calls = len(history.turns)
        self._prompts = [exchange.start for exchange in history.exchanges]
        files = collect_file_accesses(history)
        self._reads = {read.result_place: read for read in files.reads}
        self._edits = {path: [edit.order for edit in edits] for path, edits in files.edits.items()}
        self._last_ordinals = {one.content: one.ordinal for one in history.occurrences}

    def base_decay(self, place: Place) -> float:
        """Return a part's age in calls of the model, increased by later prompts."""
        prompts = len(self._prompts) - bisect_right(self._prompts, place.message)
        return (self._calls - self._history.turn(place.message)) * (1 + DECAY_PER_PROMPT * min(MAX_PROMPTS, prompts))

    def result_decay(self, link: ToolUse, place: Place) -> float:
        """Return the decay of a result."""
        occurrence = self._history.occurrence(place)
        is_repeated = self._last_ordinals[occurrence.content] > occurrence.ordinal
        decay = self.base_decay(place) * (REPEATED_FACTOR if is_repeated else 1)
        read = self._reads.get(place)
        if read is not None:
            edits = self._edits.get(read.path, [])
            decay *= 1 + DECAY_PER_EDIT * min(MAX_EDITS, len(edits) - bisect_right(edits, read.order))
        return decay if link.use.category in SLOW_CATEGORIES else decay * OTHER_CATEGORY_FACTOR
