"""Annotations: priced before anything is sent, redacted, below the cap, resumable, and found by a search."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chats import chat, line, name

from command_line import run, run_json
from model_server import Deed, ModelServer, sends, shaped
from thresher.errors import OptionError
from thresher.memory import Memory

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = "sk-very-secret-0123456789"
LONG = "the stock list and the till disagree about the number of seeds, so both were compared. " * 20
LATER = datetime(2027, 1, 1, tzinfo=UTC)


def writes(text: str, read: int = 0, wrote: int = 0) -> Deed:
    """Answer with this line and, if given, with the number of tokens."""

    def deed(handler: Any) -> None:
        usage = {"usage": {"prompt_tokens": read, "completion_tokens": wrote}} if read else {}
        handler.reply(200, json.dumps(shaped(handler.path, text, "stop") | usage).encode())

    return deed


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three sessions, each with two pieces of work."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(1, 4):
        said = [
            f"first job{number}: use {SECRET}",
            LONG,
            f"and more of job{number}",
            LONG,
            f"now the second job{number}",
            "done",
        ]
        (folder / f"{number}.jsonl").write_bytes(chat(name(number), said))
    return folder


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_options(**options: object) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for option, value in options.items():
            monkeypatch.setenv(f"THRESHER_ANNOTATE_{option.upper()}", str(value))

    return set_options


def _open(files: Path, tmp_path: Path) -> Memory:
    memory = Memory(home=tmp_path / "home", sources=[files], discover=False)
    memory.sync()
    return memory


def test_without_a_model_nothing_is_sent(files: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="THRESHER_ANNOTATE_MODEL"):
        _open(files, tmp_path).annotator()


def test_lines_are_found_by_their_words_and_lead_to_the_piece(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(writes("A gardener could not count the sunflowers."), writes("plain")) as server:
        configure(url=server.url, model="some-model")
        memory = _open(files, tmp_path)
        assert not memory.search("sunflowers gardener").sessions
        annotator = memory.annotator()
        report = annotator.run(annotator.plan(LATER))
        assert (report.written, report.remaining, report.stopped) == (6, 0, "")
        sent = json.dumps([asked.body for asked in server.asked])
        assert SECRET[:12] not in sent
        assert "redacted" in sent
        (found,) = memory.search("sunflowers gardener").sessions
        assert [(hit.kind, hit.at) for hit in found.hits] == [("annotation", 0)]
        assert annotator.plan(LATER).pieces == 0
        assert annotator.plan(LATER).pending == []


def test_the_price_is_known_before_and_holds_the_cap(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(writes("one line", read=100_000, wrote=10_000)) as server:
        configure(url=server.url, model="some-model", price=1.0, output_price=10.0, max_cost=0.5)
        memory = _open(files, tmp_path)
        annotator = memory.annotator()
        plan = annotator.plan(LATER)
        assert plan.pieces == 6
        assert not server.asked
        assert 0 < plan.cost < 0.1
        assert plan.cost == pytest.approx((plan.tokens + 10 * 80 * 6) / 1_000_000)
        report = annotator.run(plan)
        assert (report.written, report.remaining) == (3, 3)
        assert report.spent == pytest.approx(0.6)
        assert "spending cap" in report.stopped
        assert len(server.asked) == 3
        configure(max_cost=5)
        second = _open(files, tmp_path).annotator()
        plan = second.plan(LATER)
        assert plan.pieces == 3
        assert plan.spent == pytest.approx(0.6)
        assert second.run(plan).remaining == 0
        assert len(server.asked) == 6


def test_a_failure_keeps_the_lines_that_are_paid_for(files: Path, tmp_path: Path, configure: Any) -> None:
    failure = sends(400, {"error": {"message": f"no credit left for {KEY}"}})
    with ModelServer(writes("the barn is red"), failure, writes("later")) as server:
        configure(url=server.url, model="some-model")
        memory = _open(files, tmp_path)
        annotator = memory.annotator()
        report = annotator.run(annotator.plan(LATER))
        assert (report.written, report.remaining) == (1, 5)
        assert "no credit left" in report.stopped
        assert KEY not in report.stopped
        assert memory.search("barn red").sessions
        assert annotator.run(annotator.plan(LATER)).remaining == 0
        assert len(server.asked) == 7


def test_only_new_work_is_sent_again(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(writes("one line")) as server:
        configure(url=server.url, model="some-model")
        annotator = _open(files, tmp_path).annotator()
        annotator.run(annotator.plan(LATER))
        with (files / "1.jsonl").open("ab") as file:
            file.write(line(name(1), 6, "user", "a third job for you") + line(name(1), 7, "user", "with more words"))
        memory = _open(files, tmp_path)
        assert annotator.plan(LATER).pieces == 1
        ended = next(session.ended for session in memory.store.find_sessions() if session.id == name(1))
        assert ended is not None
        assert annotator.plan(ended).pieces == 0, "the last piece of a session that may continue waits"


def test_lines_of_a_model_are_data(files: Path, tmp_path: Path, configure: Any) -> None:
    answer = f"first\x1b[31m row\nsecond row with {SECRET} " + "x" * 1000
    with ModelServer(writes(answer)) as server:
        configure(url=server.url, model="some-model")
        memory = _open(files, tmp_path)
        annotator = memory.annotator()
        annotator.run(annotator.plan(LATER))
        for session in memory.store.find_sessions():
            for one in memory.store.annotations.read(session.key):
                assert one.line.isprintable()
                assert SECRET[:12] not in one.line
                assert len(one.line) <= 300


def test_annotations_survive_a_rebuilt_index_and_are_forgotten(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(writes("a walrus sits on the fence")) as server:
        configure(url=server.url, model="some-model")
        memory = _open(files, tmp_path)
        annotator = memory.annotator()
        annotator.run(annotator.plan(LATER))
    memory.forget(ids=[name(2)])
    assert {hit.id for hit in memory.search("walrus fence").sessions} == {name(1), name(3)}
    memory.forget(ids=[name(1), name(3)])
    left = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and b"walrus" in path.read_bytes()]
    assert left == []


def test_the_command_asks_before_it_sends(files: Path, configure: Any) -> None:
    options = ("annotate", "--no-discover", "--source", str(files))
    with ModelServer(writes("one line")) as server:
        configure(url=server.url, model="some-model", price=2.0)
        plan = run_json(*options, "--dry-run")
        assert (plan["requests"], plan["written"], plan["remaining"]) == (6, 0, 6)
        assert plan["estimated_dollars"] > 0
        refused = run(*options)
        assert refused.exit_code != 0
        assert "6 requests to some-model" in str(refused.exception or refused.output)
        assert not server.asked
        assert run_json(*options, "--yes")["written"] == 6
        assert "0 lines written" in run(*options).stdout
