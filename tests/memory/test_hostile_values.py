"""A file with values that nothing can store or display is one problem; every other file is in the memory."""

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name, places, synced

import thresher as th
from command_line import run
from fixture_files import fixtures
from thresher.memory.ingest.sync import sync_sources
from thresher.memory.ingest.workers import IngestOptions
from thresher.memory.session_store import SessionStore
from thresher.model import History, Message, Session, Usage
from thresher.model.parts import Text
from thresher.render.text import format_local_time
from thresher.transcripts import format_names, read_all
from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import MAX_COUNT, count_at, text_at
from thresher.transcripts.otel.spans import parse_span_time

HOSTILE = [
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59-23:59"',
    '"\\ud83d in an id of many characters"',
    "18446744073709551616",
    "-9223372036854775809",
    "-62135596800",
    "1e400",
    "9" * 400,
]
ZONES = ("Pacific/Kiritimati", "Etc/GMT+12", "UTC")
DOCUMENTS = [path for name in format_names() for path in fixtures(name) if path.suffix in (".json", ".jsonl")]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _leaves(inner, (*path, key))
    if not isinstance(value, dict | list):
        yield path


def _put(value: Any, path: tuple[Any, ...], new: str) -> Any:
    if not path:
        return new
    items = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {key: _put(inner, path[1:], new) if key == path[0] else inner for key, inner in items}
    return changed if isinstance(value, dict) else [*changed.values()]


def _with_hostile_values(data: str) -> Iterator[str]:
    """Yield copies of a file with one hostile value in one field. Fields of the same name and depth count once."""
    try:
        rows = [json.loads(data)]
    except ValueError:
        rows = [json.loads(line) for line in data.splitlines() if line.strip()]
    seen: set[Any] = set()
    for number, row in enumerate(rows):
        for path in _leaves(row):
            shape = (*("#" if isinstance(key, int) else key for key in path), row.get("type") if len(rows) > 1 else "")
            if shape in seen:
                continue
            hostile = HOSTILE[len(seen) % len(HOSTILE)]
            seen.add(shape)
            changed = json.dumps(_put(row, path, "@")).replace('"@"', hostile)
            yield "\n".join([*map(json.dumps, rows[:number]), changed, *map(json.dumps, rows[number + 1 :])])


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "memory")


@pytest.mark.parametrize("fixture", DOCUMENTS, ids=lambda path: path.name)
def test_no_value_in_any_field_stops_a_sync(fixture: Path, store: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"{name(1)}.jsonl").write_bytes(chat(name(1), ["an ordinary kumquat", "yes"]))
    for number, data in enumerate(_with_hostile_values(fixture.read_text(encoding="utf-8"))):
        (folder / f"{number}-{fixture.name}").write_text(data, encoding="utf-8")
    report = synced(store, folder)
    assert not [problem for problem in report.failed if "report this problem" in problem]
    assert places(store, "kumquat") == [(name(1), 0)]


def _hostile_chat(folder: Path) -> Path:
    """Write sessions with edge times, one of them with a valid time, and return their folder."""
    folder.mkdir()
    for number, stamp in enumerate(("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00", "2026-03-01T00:00Z"), 1):
        rows = [
            json.loads(line) for line in chat(name(number), ["the quince question", "the quince answer"]).splitlines()
        ]
        for row in rows:
            row["timestamp"] = stamp
            row["message"]["usage"] = {"input_tokens": 1 << 64, "output_tokens": 3}
        (folder / f"{name(number)}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_every_command_shows_a_session_with_times_at_the_edge_of_the_calendar(tmp_path: Path) -> None:
    files = _hostile_chat(tmp_path / "files")
    source = ["--no-discover", "--source", str(files)]
    assert "3 sessions" in run("search", "quince", *source).output
    for command in ("sync", "sessions"):
        assert run(command, *source).exit_code == 0
    for number in (1, 2, 3):
        for command in ("show", "recall", "changelog", "files"):
            question = ["quince"] if command == "recall" else []
            assert run(command, name(number), *question, *source).exit_code in (0, 1), command  # 1: it has no files


@pytest.mark.usefixtures("zone")
def test_a_time_without_a_local_date_is_shown_in_its_own_zone() -> None:
    """An archive of an earlier version may hold such a time."""
    for edge in (datetime.min, datetime.max):
        assert format_local_time(edge.replace(tzinfo=UTC)).startswith(("1-", "0001-", "9999-"))


def test_times_and_counts_out_of_range_are_missing() -> None:
    assert parse_time("0001-01-01T00:00:00+14:00") is None
    assert parse_time("9999-12-31T23:59:59-01:00") is None
    assert parse_time("9999-12-31T23:59:59") is None
    assert parse_time("9000-12-31T23:59:59-01:00") is not None
    assert parse_span_time(10**400) is None
    assert parse_span_time([10**400, 0]) is None
    assert count_at({"n": MAX_COUNT}, "n") == MAX_COUNT
    assert count_at({"n": MAX_COUNT + 1}, "n") == 0
    assert text_at({"id": "a\ud83d"}, "id") == "a\ufffd"


def _session(path: Path, **facts: Any) -> Session:
    return Session("pi", "an-id", str(path), (History((Message("user", (Text("a damson"),)),)),), **facts)


@pytest.mark.parametrize(
    "facts",
    [
        {"compactions": 1 << 70},
        {"started": datetime.min},
        {"agent": "\ud83d"},
        {"segments": (History((Message("user", (Text("x"),), usage=Usage(1 << 70)),)),)},
        {"id": 3},
    ],
    ids=["a number", "a time", "text", "a message", "a wrong type"],
)
def test_a_reader_that_returns_an_impossible_value_fails_alone(
    store: SessionStore, tmp_path: Path, facts: dict[str, Any]
) -> None:
    def read(path: Path, **options: Any) -> list[Session]:
        if path.name != "b.jsonl":
            return list(read_all(path, **options))
        return [_session(path), th.model.Session(**{**_fields(_session(path)), **facts})]

    folder = tmp_path / "files"
    folder.mkdir()
    for file in ("a", "b", "c"):
        (folder / f"{file}.jsonl").write_bytes(chat(name(ord(file)), [f"a damson of {file}", "yes"]))
    report = synced(store, folder, IngestOptions(read=read))
    assert report.new == 2
    assert len(report.failed) == 1
    assert "b.jsonl" in report.failed[0]
    assert places(store, "damson") == [(name(ord("a")), 0), (name(ord("c")), 0)]
    os.utime(folder / "b.jsonl", (0, 0))
    assert synced(store, folder).new == 1, "a reader that can read the file reads it when it changes"
    assert len(places(store, "damson")) == 3


def _fields(session: Session) -> dict[str, Any]:
    return {field: getattr(session, field) for field in session.__struct_fields__}


def test_a_reader_that_raises_fails_alone(store: SessionStore, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(chat(name(number), ["a medlar", "yes"]))

    def read(path: Path, **options: Any) -> list[Session]:
        if path == files[1]:
            raise KeyError("unforeseen")
        return list(read_all(path, **options))

    report = sync_sources(store, [(None, file) for file in files], options=IngestOptions(read=read))
    assert (report.new, len(report.failed)) == (2, 1)
    assert "KeyError" in report.failed[0]
    assert len(places(store, "medlar")) == 2
