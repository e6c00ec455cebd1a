"""No damaged file breaks a reader: a short, fixed run of the fuzzer (`make fuzz` is the long one)."""

from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from fixture_files import fixtures, ready
from thresher.formats import Limits
from thresher.formats.table import FORMATS
from thresher.samples import write_samples

FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
FILES = 7
MUTANTS = 150


def load_fuzzer() -> ModuleType:
    spec = spec_from_file_location("fuzz", FUZZER)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = load_fuzzer()


def damage(data: bytes, path: Path, random: Random) -> None:
    """Read many damaged copies of a file."""
    for mutation, damaged in islice(fuzz.mutants(fuzz.excerpt(data, random), random), MUTANTS):
        limits = Limits(line=random.choice((100, 2000)), unpacked=5000) if random.random() < 0.1 else None
        if damaged.startswith(b"-- "):
            fuzz.database(damaged, path)
        else:
            path.write_bytes(damaged)
        try:
            fuzz.exercise(path, limits)
        except Exception as error:
            error.add_note(f"{path.name}: {mutation}")
            raise


def test_every_sample_is_fuzzed(tmp_path: Path) -> None:
    assert len(write_samples(tmp_path)) == FILES


@pytest.mark.parametrize("number", range(FILES))
def test_damaged_samples_are_read_or_refused(number: int, tmp_path: Path) -> None:
    sample = write_samples(tmp_path)[number]
    damage(sample.read_bytes(), sample, Random(number))


@pytest.mark.parametrize("fixture", [path for name in FORMATS for path in fixtures(name)], ids=lambda path: path.name)
def test_damaged_fixtures_are_read_or_refused(fixture: Path, tmp_path: Path) -> None:
    damage(fixture.read_bytes(), tmp_path / fixture.name, Random(fixture.name))


@pytest.mark.parametrize("fixture", [path for name in FORMATS for path in fixtures(name)], ids=lambda path: path.name)
def test_a_file_that_is_insisted_upon_is_read_or_refused(fixture: Path, tmp_path: Path) -> None:
    """Every format is told to read every fixture."""
    path = ready(fixture, tmp_path)
    for name in FORMATS:
        fuzz.exercise(path, format=name)


def test_the_same_seed_gives_the_same_files() -> None:
    data = b'{"type":"user","uuid":"a"}\n{"type":"user","uuid":"b","parentUuid":"a"}\n'
    first, second = (list(islice(fuzz.mutants(data, Random(7)), 200)) for _ in range(2))
    assert first == second
    assert len({damaged for _, damaged in first}) > 100
