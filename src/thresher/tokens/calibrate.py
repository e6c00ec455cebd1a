"""Calibrate token counts against the usage that a provider reports.

Each assistant message may carry the usage of its call, which includes the size of the whole prompt. Over a session the
reported size is a linear function of the counted size: a base (system prompt and tools, which few transcripts contain)
plus a factor times the counted size. The factor is the median of the slopes between turns (Theil-Sen), so a turn with a
different prompt (a hidden reminder, a stripped result) does not distort it. Each segment has its own base, because a
compaction restores files that no transcript contains. With too few turns, or an implausible slope, calibration changes
nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from thresher.model import History, Session
from thresher.tokens.weights import TokenWeights

MIN_TURNS = 8
"""Minimum number of turns with usage for a calibration."""
MAX_TURNS = 60
"""Maximum number of turns to compare per segment; from more turns, an even sample is taken."""
MIN_TOKEN_DISTANCE = 500
"""Minimum number of tokens between two turns for their slope to count."""
PLAUSIBLE = (0.5, 2.5)

CalibrationPoint = tuple[int, int]


class Calibration(Struct, frozen=True):
    """Reported tokens ≈ base + factor × counted tokens."""

    base: int = 0
    """Prompt tokens that the latest segment of the transcript does not contain, such as tool definitions."""
    factor: float = 1.0
    turns: int = 0
    """Number of turns used; 0 means that the calibration changes nothing."""
    error: float = 0.0
    """Median relative error after calibration."""

    def scale(self, weights: TokenWeights) -> TokenWeights:
        """Return the same weights, multiplied by the calibrated factor."""
        return TokenWeights(
            weights.counter, factor=weights.factor * self.factor, vendor=weights.vendor, media=weights.media
        )


def calibrate(conversation: Session | History, weights: TokenWeights) -> Calibration:
    """Calibrate the counts of `weights` against the usage that a conversation reports."""
    segments = conversation.segments if isinstance(conversation, Session) else (conversation,)
    return fit_calibration([list(_points(segment, weights)) for segment in segments])


def fit_calibration(segments: Sequence[Sequence[CalibrationPoint]]) -> Calibration:
    """Fit the calibration to the counted and reported tokens of each segment."""
    from statistics import median  # noqa: PLC0415 - loads fractions and decimal, and few callers calibrate

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


def _points(history: History, weights: TokenWeights) -> Iterator[CalibrationPoint]:
    """Yield the counted and reported prompt size of each turn with usage.

    The usage of messages that a compaction carried over is skipped, because it belongs to an earlier prompt.
    """
    counted, position = weights.tools(history.tools), 0
    for turn in history.turns:
        counted += sum(map(weights.message, history.messages[position : turn.start]))
        position = turn.start
        produced = (message for message in history.messages[turn.start : turn.stop] if not message.carried)
        usage = next((message.usage for message in produced if message.usage), None)
        if usage is not None and usage.context > 0:
            yield counted, usage.context


def _sample_evenly(points: Sequence[CalibrationPoint]) -> Sequence[CalibrationPoint]:
    if len(points) <= MAX_TURNS:
        return points
    return [points[index * len(points) // MAX_TURNS] for index in range(MAX_TURNS)]


def _slopes(points: Sequence[CalibrationPoint]) -> Iterator[float]:
    for (counted, billed), (counted_later, billed_later) in combinations(points, 2):
        if counted_later - counted >= MIN_TOKEN_DISTANCE:
            yield (billed_later - billed) / (counted_later - counted)
