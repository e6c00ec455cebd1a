"""Parse damaged copies of files; each must parse or raise an expected error. `make fuzz` is the long version."""

from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType

from thresher.transcripts import ReadLimits

FUZZER = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
MUTANTS = 150


def _loaded() -> ModuleType:
    spec = spec_from_file_location("fuzz", FUZZER)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _loaded()


def read_damaged(data: bytes, path: Path, random: Random, format: str | None = None) -> None:
    """Parse many damaged copies of a file, with a detected format and, if given, as `format`."""
    for mutation, damaged in islice(fuzz.mutants(fuzz.excerpt(data, random), random), MUTANTS):
        limits = ReadLimits(line=random.choice((100, 2000)), unpacked=5000) if random.random() < 0.1 else None
        if damaged.startswith(b"-- "):
            fuzz.database(damaged, path)
        else:
            path.write_bytes(damaged)
        for insisted in {None, format}:
            try:
                fuzz.exercise(path, limits, insisted)
            except Exception as error:
                error.add_note(f"{path.name}, read as {insisted}: {mutation}")
                raise
