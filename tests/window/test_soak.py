"""A slice of the soak test in `benchmarks/soak.py`: irregular loops, crashing processes, two processes at once."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import soak

SLICES = 4


@pytest.mark.parametrize("part", range(SLICES))
def test_a_slice_of_the_soak_finds_no_broken_law(part: int) -> None:
    outcomes = list(soak.outcomes(7, range(part * 10, part * 10 + 10), processes=1))
    assert [outcome.fault for outcome in outcomes if outcome.fault] == []
    assert sum((outcome.counts for outcome in outcomes), Counter())["calls"] > 20


def test_the_slices_contain_every_kind() -> None:
    assert {soak.kind_of(7, number) for number in range(SLICES * 10)} == set(soak.KINDS)
