"""No damaged file breaks a reader."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from damage import fuzz, read_damaged
from fixture_files import fixtures, ready
from thresher.samples import write_samples
from thresher.transcripts.table import format_names

FILES = 7


def test_every_sample_is_fuzzed(tmp_path: Path) -> None:
    assert len(write_samples(tmp_path)) == FILES


@pytest.mark.parametrize("number", range(FILES))
def test_damaged_samples_are_read_or_refused(number: int, tmp_path: Path) -> None:
    sample = write_samples(tmp_path)[number]
    read_damaged(sample.read_bytes(), sample, Random(number))


@pytest.mark.parametrize(
    "fixture", [path for name in format_names() for path in fixtures(name)], ids=lambda path: path.name
)
def test_damaged_fixtures_are_read_or_refused(fixture: Path, tmp_path: Path) -> None:
    own = fixture.name.partition(".")[0]
    read_damaged(fixture.read_bytes(), tmp_path / fixture.name, Random(fixture.name), own)


@pytest.mark.parametrize(
    "fixture", [path for name in format_names() for path in fixtures(name)], ids=lambda path: path.name
)
def test_a_file_with_an_explicit_format_is_read_or_refused(fixture: Path, tmp_path: Path) -> None:
    """Every format reads every fixture."""
    path = ready(fixture, tmp_path)
    for name in format_names():
        fuzz.exercise(path, format=name)


def test_the_same_seed_gives_the_same_files() -> None:
    data = b'{"type":"user","uuid":"a"}\n{"type":"user","uuid":"b","parentUuid":"a"}\n'
    first, second = (list(islice(fuzz.mutants(data, Random(7)), 200)) for _ in range(2))
    assert first == second
    assert len({damaged for _, damaged in first}) > 100
