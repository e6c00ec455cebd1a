"""A small file that becomes a huge one takes little memory and few steps, and the rest of it is reported."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

import thresher as th
from step_count import count_steps
from thresher.errors import OptionError, ReadError
from thresher.transcripts import ReadLimits
from thresher.transcripts.source import MAX_PROBLEMS, MEBIBYTE, UNPACKED_VARIABLE, import_zstd

ROW = (
    b'{"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","timestamp":"2026-03-01T00:00:00Z",'
    b'"message":{"role":"user","content":"hello"}}\n'
)
SIZE = 4 * MEBIBYTE
BOMBS = {
    "line breaks": b"\n" * SIZE,
    "spaces": b" " * SIZE,
    "NULs": b"\0" * SIZE,
    "one string": b'[{"role":"user","content":"' + b"a" * SIZE + b'"}]',
    "one string without an end": b'{"messages":"' + b"a" * SIZE,
    "a string in an unknown document": b'{"x":"' + b"a" * SIZE + b'"}',
    "a document on many lines": b'{\n"messages":"' + b"a" * SIZE + b'"}',
    "nested lists": b"[" * SIZE,
    "a long line": ROW + b'{"type":"x","a":"' + b"a" * SIZE + b'"}\n' + ROW,
    "records": ROW * (SIZE // len(ROW)),
    "records between line breaks": ROW + b"\n" * SIZE + ROW,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("pack", [gzip.compress, import_zstd().compress], ids=["gzip", "zstd"])
def test_reading_takes_at_most_three_times_the_unpacked_size(bomb: bytes, pack: object, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl"
    assert callable(pack)
    path.write_bytes(pack(bomb))
    th.sniff(path)  # imports every format
    tracemalloc.start()
    try:
        th.read_all(path)
    except ReadError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3.1 * len(bomb) + MEBIBYTE


def test_problems_beyond_a_limit_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(ROW + b"x\n" * 5_000 + ROW.replace(b'"a"', b'"b"').replace(b"null", b'"a"'))
    session = th.read(path)
    assert len(session.history) == 2
    assert len(session.problems) == MAX_PROBLEMS + 1
    assert session.problems[-1].what == "4,000 more problems up to line 5,001"


@pytest.mark.parametrize("name", ["records", "a document on many lines", "one string", "line breaks"])
def test_unpacking_stops_at_the_limit_and_is_reported(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(import_zstd().compress(ROW + BOMBS[name]))
    session = th.read(path, limits=ReadLimits(unpacked=MEBIBYTE))
    assert any("decompresses to more than 1,048,576 bytes" in problem.what for problem in session.problems)
    assert session.history[0].text == "hello"
    path.write_bytes(import_zstd().compress(BOMBS["a document on many lines"]))
    with pytest.raises(ReadError, match="decompresses to more than 1,048,576 bytes"):
        th.read(path, limits=ReadLimits(unpacked=MEBIBYTE))


def test_a_document_of_too_many_values_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json"
    path.write_bytes(b'{\n"messages": [' + b"[]," * 100_000 + b"[]]}")
    with pytest.raises(ReadError, match="values, too many"):
        th.read(path, limits=ReadLimits(unpacked=MEBIBYTE))


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ReadLimits().unpacked == 1024 * MEBIBYTE
    monkeypatch.setenv(UNPACKED_VARIABLE, "3")
    assert ReadLimits().unpacked == 3 * MEBIBYTE
    assert th.fit([{"role": "user", "content": "hello"}], budget=1000), "it is no option of a policy"
    for invalid in ("0", "-1", "1G"):
        monkeypatch.setenv(UNPACKED_VARIABLE, invalid)
        with pytest.raises(OptionError, match="a number of MiB"):
            ReadLimits()


@pytest.mark.parametrize("flood", [b"\n", b" \n", b"\r\n"], ids=repr)
def test_a_flood_of_blank_lines_costs_hardly_any_steps(flood: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(ROW)
    th.read(path)

    def steps(lines: int) -> int:
        path.write_bytes(ROW + flood * lines + ROW)
        return count_steps(lambda: th.read(path))

    assert steps(3_000_000) < 2 * steps(300_000), "blocks of blank lines are only counted"
