"""How the tokens that a provider billed compare with those counted here.

Each assistant message may carry its call's bill, and the bill tells the size of all the model was given. Over the turns
of a session that is a line: a base (system prompt and tools, which few transcripts hold) and so many tokens
billed for one counted. The slope is the median of the slopes between turns (Theil and Sen), so that a turn
which was given something else (a hidden reminder, a stripped result) does not bend it. Each segment has a base of its
own, for a compaction brings files back that no transcript tells of. Too few turns, or a slope that no tokenizer has,
and nothing is changed.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from thresher.model import History, Session
from thresher.tokens.weights import TokenWeights

MIN_TURNS = 8
"""Turns below which nothing is believed."""
MAX_TURNS = 60
"""Turns of one segment that are compared with each other, taken evenly."""
MIN_TOKEN_DISTANCE = 500
"""Tokens that must lie between two turns for their slope to say anything."""
PLAUSIBLE = (0.5, 2.5)

CalibrationPoint = tuple[int, int]


class Calibration(Struct, frozen=True):
    """Billed ≈ base + factor × counted."""

    base: int = 0
    """What the model was given and the history does not hold, in the latest segment."""
    factor: float = 1.0
    turns: int = 0
    """How many turns it rests on; 0: it changes nothing."""
    error: float = 0.0
    """The share by which it is still off, at the median turn."""

    def scale(self, scale: TokenWeights) -> TokenWeights:
        """The same scale, its texts weighed as they were billed."""
        return TokenWeights(scale.counter, factor=scale.factor * self.factor, vendor=scale.vendor, media=scale.media)


def calibrate(conversation: Session | History, scale: TokenWeights) -> Calibration:
    """Compare what was billed with what `scale` counts."""
    segments = conversation.segments if isinstance(conversation, Session) else (conversation,)
    return fit_calibration([list(_points(segment, scale)) for segment in segments])


def fit_calibration(segments: Sequence[Sequence[CalibrationPoint]]) -> Calibration:
    """What turns say of which it is known how much was counted and how much billed, each segment's by itself."""
    from statistics import median  # noqa: PLC0415 - brings fractions and decimals along, and few calibrate

    groups = [group for points in segments if (group := _sample_evenly(points))]
    turns = sum(map(len, groups))
    slopes = [slope for group in groups for slope in _slopes(group)]
    if turns < MIN_TURNS or not slopes:
        return Calibration()
    factor = median(slopes)
    if not PLAUSIBLE[0] <= factor <= PLAUSIBLE[1]:
        return Calibration()
    bases = [median(billed - factor * counted for counted, billed in group) for group in groups]
    errors = [
        abs(base + factor * counted - billed) / billed
        for base, group in zip(bases, groups, strict=True)
        for counted, billed in group
    ]
    return Calibration(max(0, round(bases[-1])), factor, turns, median(errors))


def _points(history: History, scale: TokenWeights) -> Iterator[CalibrationPoint]:
    """For each turn with a bill: what was counted before it, and what was billed.

    One that a compaction repeats was billed for what stood before it then.
    """
    counted, done = scale.tools(history.tools), 0
    for turn in history.turns:
        counted += sum(map(scale.message, history.messages[done : turn.start]))
        done = turn.start
        made = (message for message in history.messages[turn.start : turn.stop] if not message.carried)
        bill = next((message.usage for message in made if message.usage), None)
        if bill is not None and bill.context > 0:
            yield counted, bill.context


def _sample_evenly(points: Sequence[CalibrationPoint]) -> Sequence[CalibrationPoint]:
    if len(points) <= MAX_TURNS:
        return points
    return [points[index * len(points) // MAX_TURNS] for index in range(MAX_TURNS)]


def _slopes(points: Sequence[CalibrationPoint]) -> Iterator[float]:
    for (counted, billed), (counted_later, billed_later) in combinations(points, 2):
        if counted_later - counted >= MIN_TOKEN_DISTANCE:
            yield (billed_later - billed) / (counted_later - counted)
