"""Damage in a file becomes a problem with its line; the rest is read."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.errors import ReadError, UnknownFormatError
from thresher.transcripts import ReadLimits
from thresher.transcripts.source import import_zstd

GOOD = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "Hello there."}}


def row(uuid: str, parent: str | None = None, text: str = "Hello there.", **fields: Any) -> dict[str, Any]:
    return GOOD | {"uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": text}} | fields


def lines(*rows: dict[str, Any] | bytes) -> bytes:
    return b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in rows)


def read(tmp_path: Path, data: bytes, name: str = "s.jsonl", **options: Any) -> th.Session:
    path = tmp_path / name
    path.write_bytes(data)
    session = th.read(path, **options)
    assert isinstance(session, th.Session)
    return session


def texts(session: th.Session) -> list[str]:
    return [message.text for message in session.messages(branches=True)]


BAD_LINES = {
    "half a record": (b'{"type":"user","uuid":"x","mess\n', "not a JSON object", 2),
    "no JSON": (b"what is this\n", "not a JSON object", 2),
    "a list": (b"[1, 2]\n", "not a JSON object", 2),
    "NUL bytes": (b"\0\0\0\0\n", "NUL bytes", 2),
    "nested too deep": (b'{"type":"user","message":' + b"[" * 100_000 + b"\n", "not a JSON object", 2),
}


@pytest.mark.parametrize(("bad", "what", "line"), BAD_LINES.values(), ids=list(BAD_LINES))
def test_a_bad_line_is_reported_and_the_rest_is_read(tmp_path: Path, bad: bytes, what: str, line: int) -> None:
    session = read(tmp_path, lines(row("a"), bad, row("b", "a", "Still here.")))
    assert texts(session) == ["Hello there.", "Still here."]
    [problem] = session.problems
    assert (what in problem.what, problem.line, problem.file) == (True, line, str(tmp_path / "s.jsonl"))


def test_a_truncated_last_line_is_reported(tmp_path: Path) -> None:
    session = read(tmp_path, lines(row("a"), b'{"type":"assistant","uuid":"b","par'))
    assert texts(session) == ["Hello there."]
    assert "truncated" in session.problems[0].what


def test_two_records_on_one_line_are_both_read(tmp_path: Path) -> None:
    glued = lines(row("a"))[:-1] + lines(row("b", "a", "Second."))
    session = read(tmp_path, glued)
    assert texts(session) == ["Hello there.", "Second."]
    assert "2 records" in session.problems[0].done


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"caf\xe9", "caf\ufffd"), (b"\\ud83d!", "\ufffd!"), (b"a\x00b", "ab"), (b"tab\there", "tab\there")],
    ids=["wrong UTF-8", "lone surrogate", "NUL inside", "raw control character"],
)
def test_invalid_characters_are_replaced_and_reported(tmp_path: Path, raw: bytes, text: str) -> None:
    session = read(tmp_path, lines(row("a", text="TEXT")).replace(b"TEXT", raw))
    assert texts(session) == [text]
    assert len(session.problems) == 1


def test_unknown_records_and_versions_are_counted(tmp_path: Path) -> None:
    session = read(tmp_path, lines(row("a", version="99.0"), {"type": "hologram", "sessionId": "s"}, {"no": "type"}))
    assert session.records == {"user": 1, "hologram": 1, "?": 1}
    assert session.version == "99.0"


def test_unknown_blocks_and_fields_survive(tmp_path: Path) -> None:
    block = {"type": "hologram", "depth": 3}
    session = read(tmp_path, lines(row("a", message={"role": "user", "content": [block]}, mood="calm")))
    assert th.emit(session.history, "anthropic") == [{"role": "user", "content": [block]}]
    assert json.loads(session.history[0].records[0])["mood"] == "calm"


def test_a_line_over_the_limit_is_skipped_and_reported(tmp_path: Path) -> None:
    long = row("long", "a", "x" * 300_000)
    session = read(tmp_path, lines(row("a"), long, row("b", "long", "After.")), limits=ReadLimits(line=100_000))
    assert texts(session) == ["Hello there.", "After."]
    assert "over the limit of 100,000" in session.problems[0].what
    assert session.problems[0].line == 2


def test_a_compression_bomb_is_read_up_to_the_limit(tmp_path: Path) -> None:
    data = gzip.compress(lines(row("a"), *(row(f"n{n}", text="0" * 5_000) for n in range(200))))
    session = read(tmp_path, data, "s.jsonl.gz", limits=ReadLimits(unpacked=200_000))
    assert 1 < len(texts(session)) < 200
    assert any("decompresses to more than 200,000 bytes" in problem.what for problem in session.problems)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: import_zstd().compress(data)], ids=["gzip", "zstd"])
def test_compressed_files_are_read_under_any_name(tmp_path: Path, pack: Any) -> None:
    data = pack(lines(row("a"), row("b", "a", "Packed.")))
    assert texts(read(tmp_path, data, "odd-name")) == ["Hello there.", "Packed."]
    cut = read(tmp_path, pack(lines(*(row(f"n{n}", text=f"{n} {hash(n)}" * 50) for n in range(3_000))))[:-200], "cut")
    assert any("damaged" in problem.what for problem in cut.problems)
    assert len(texts(cut)) > 2_000


def test_a_cycle_of_parents_ends(tmp_path: Path) -> None:
    session = read(tmp_path, lines(row("a", "c"), row("b", "a", "Two."), row("c", "b", "Three.")))
    assert sorted(texts(session)) == ["Hello there.", "Three.", "Two."]
    assert "form a cycle" in session.problems[0].what


def test_a_missing_parent_is_reported_and_earlier_messages_are_kept(tmp_path: Path) -> None:
    session = read(tmp_path, lines(row("a"), row("b", "gone", "Later.")))
    assert texts(session) == ["Hello there.", "Later."]
    assert "gone" in session.problems[0].what


def test_an_empty_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ReadError, match="is empty"):
        th.read(tmp_path / "empty.jsonl")


def test_a_missing_file_a_folder_and_an_unknown_file_are_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Milk, flour, eggs.")
    for path, said in (
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "is a folder"),
        (tmp_path / "notes.txt", "known"),
    ):
        with pytest.raises(ReadError, match=said):
            th.read(path)


def test_an_empty_file_with_an_explicit_format_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    session = th.read(tmp_path / "empty.jsonl", format="claude-code")
    assert isinstance(session, th.Session)
    assert len(session.history) == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b'{"trajectory": [{"action": "ls", "obser', "is truncated or damaged"),
        (b'{\n  "messages": [\n    {"role": "us', "is truncated or damaged"),
        (b"SQLite format 3\0" + b"\xff" * 3000, "is a database that cannot be read"),
        (b'{"messages": 3}', "matches no known format"),
        (b"\x89PNG\r\n\x1a\n", "matches no known format"),
    ],
    ids=["empty", "cut off", "cut off, on lines", "damaged database", "other JSON", "a picture"],
)
def test_the_error_for_an_unknown_file_explains_it(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(UnknownFormatError, match=said):
        read(tmp_path, data, "odd")
