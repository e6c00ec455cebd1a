"""An embedding model on a server: only if configured, redacted, below the spending cap, resumable."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name

from model_server import Deed, ModelServer, sends
from thresher.errors import OptionError
from thresher.memory import Memory
from thresher.memory.meaning import has_meaning_extra
from thresher.memory.model_endpoints import MeaningSettings, Spending, SpendingCapError, load_model_settings

if not has_meaning_extra():
    pytest.skip("needs the extra `meaning`", allow_module_level=True)

from thresher.memory.meaning.building import BuildReport
from thresher.memory.meaning.meaning_index import MeaningIndex

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = "sk-very-secret-0123456789"


def embeds(tokens: int = 0) -> Deed:
    """Answer with vectors of letter counts, in reversed order, and with this usage."""

    def deed(handler: Any) -> None:
        texts: Sequence[str] = handler.server.owner.asked[-1].body["input"]
        rows = [
            {"index": at, "embedding": [text.lower().count(letter) + 0.01 for letter in "abcdefghij"]}
            for at, text in enumerate(texts)
        ]
        usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if tokens else {}
        handler.reply(200, json.dumps({"data": rows[::-1], **usage}).encode())

    return deed


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(1, 5):
        said = [f"please repair the cage of bird{number} with {SECRET}", f"the cage of bird{number} is repaired"]
        (folder / f"{number}.jsonl").write_bytes(chat(name(number), said))
    return folder


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that configures an endpoint for the next memory."""

    def set_options(**options: object) -> None:
        monkeypatch.setenv("THRESHER_MEANING_ENABLED", "true")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for option, value in options.items():
            monkeypatch.setenv(f"THRESHER_MEANING_{option.upper()}", str(value))

    return set_options


def _open(files: Path, tmp_path: Path) -> Memory:
    memory = Memory(home=tmp_path / "home", sources=[files], discover=False)
    memory.sync(vectors=False)
    return memory


def _build(memory: Memory) -> BuildReport:
    """Build the vectors of the endpoint alone."""
    (report,) = memory.build_vectors()
    return report


@pytest.fixture(autouse=True)
def only_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeaningIndex, "_encoders", lambda self: [self._endpoint])


def test_texts_reach_the_server_redacted_and_in_batches(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(embeds()) as server:
        configure(url=server.url, model="some-model", batch=4)
        memory = _open(files, tmp_path)
        assert _build(memory)[1:4] == (4, 0, 8)
        assert [len(asked.body["input"]) for asked in server.asked] == [4, 4]
        sent = json.dumps([asked.body for asked in server.asked])
        assert SECRET[:12] not in sent
        assert "redacted" in sent
        assert {asked.path for asked in server.asked} == {"/v1/embeddings"}
        assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
        found = memory.search(f"cage of bird2 {SECRET}", sync=False)
        assert SECRET[:12] not in json.dumps(server.asked[-1].body)
        assert len(server.asked[-1].body["input"]) == 1
        assert not any("did not answer" in note for note in found.notes)


def test_a_working_directory_cannot_configure_an_endpoint(
    files: Path, tmp_path: Path, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ModelServer(embeds()) as server:
        (tmp_path / "thresher.toml").write_text(f'[meaning]\nurl = "{server.url}"\nmodel = "some-model"\n')
        configure()
        memory = _open(files, tmp_path)
        assert memory.meaning is not None
        assert not memory.meaning._settings.is_configured
        memory.search("cage of bird2", sync=False)
        assert not server.asked


def test_the_settings_of_the_data_folder_configure_an_endpoint(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(embeds()) as server:
        (tmp_path / "home").mkdir()
        settings = f'[meaning]\nurl = "{server.url}"\nmodel = "some-model"\nbatch = 8\n'
        (tmp_path / "home" / "thresher.toml").write_text(settings)
        configure()
        assert _build(_open(files, tmp_path)).missing == 0
        assert len(server.asked) == 1


def test_the_spending_cap_holds_over_several_runs_and_a_higher_one_resumes(
    files: Path, tmp_path: Path, configure: Any
) -> None:
    with ModelServer(embeds(tokens=400_000)) as server:
        configure(url=server.url, model="some-model", batch=4, price=1.0, max_cost=0.4)
        report = _build(_open(files, tmp_path))
        assert (report.blocks, report.missing) == (2, 2)
        assert "spending cap of $0.40" in report.stopped
        assert "$0.40 spent" in report.stopped
        assert _build(_open(files, tmp_path)).blocks == 0
        assert len(server.asked) == 1
        configure(max_cost=2)
        memory = _open(files, tmp_path)
        assert _build(memory)[1:3] == (2, 0)
        assert len(server.asked) == 2
        assert memory.meaning is not None
        assert memory.meaning.status()[0].spent == pytest.approx(0.8)


def test_a_failure_keeps_what_is_done(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(embeds(), sends(400, {"error": {"message": f"no more for {KEY}"}}), embeds()) as server:
        configure(url=server.url, model="some-model", batch=4)
        memory = _open(files, tmp_path)
        report = _build(memory)
        assert (report.blocks, report.missing) == (2, 2)
        assert "no more for" in report.stopped
        assert KEY not in report.stopped
        assert _build(memory).missing == 0
        assert len(server.asked) == 3


def test_a_server_that_asks_to_wait_is_asked_again_later(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(sends(429, {}, Retry_After="0"), embeds()) as server:
        configure(url=server.url, model="some-model")
        assert _build(_open(files, tmp_path)).missing == 0
        assert len(server.asked) == 2
    with ModelServer(sends(429, {}, Retry_After="3600")) as server:
        configure(url=server.url, model="another-model")
        report = _build(_open(files, tmp_path))
        assert (report.blocks, len(server.asked)) == (0, 1)
        assert "status 429" in report.stopped


@pytest.mark.parametrize(
    "answer",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}] * 8},
        {"data": [{"index": at, "embedding": ["x"]} for at in range(8)]},
        {"data": [{"index": at, "embedding": [1.0] * (1 + at % 2)} for at in range(8)]},
    ],
)
def test_an_unusable_answer_stops_the_build(files: Path, tmp_path: Path, configure: Any, answer: Any) -> None:
    with ModelServer(sends(200, answer)) as server:
        configure(url=server.url, model="some-model")
        assert "did not return 8 vectors" in _build(_open(files, tmp_path)).stopped


def test_a_search_survives_a_server_that_is_gone(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(embeds()) as server:
        configure(url=server.url, model="some-model")
        memory = _open(files, tmp_path)
        _build(memory)
    found = memory.search("cage of bird2", sync=False)
    assert found.sessions[0].id == name(2)
    assert any("did not answer" in note for note in found.notes)


def test_vectors_of_each_model_are_stored_apart(files: Path, tmp_path: Path, configure: Any) -> None:
    with ModelServer(embeds()) as server:
        for model in ("one", "two"):
            configure(url=server.url, model=model)
            assert _build(_open(files, tmp_path)).blocks == 4
    assert len([*(tmp_path / "home" / "memory" / "meaning").glob("*.sqlite3")]) == 2


def test_a_price_must_be_known_except_on_this_machine(tmp_path: Path) -> None:
    local = MeaningSettings(url="http://localhost:11434/v1", model="nomic")
    assert Spending(local, tmp_path / "ledger").price == 0
    remote = MeaningSettings(url="https://models.example/v1", model="nomic")
    with pytest.raises(OptionError, match="price of `nomic` is unknown"):
        Spending(remote, tmp_path / "ledger")
    paid = Spending(MeaningSettings(url=remote.url, model="nomic", price=2.0, max_cost=1), tmp_path / "ledger")
    paid.require(paid.cost(500_000))
    paid.add(paid.cost(500_000))
    with pytest.raises(SpendingCapError):
        paid.require(paid.cost(1))
    (tmp_path / "ledger").write_text("{")
    with pytest.raises(OptionError, match="unreadable"):
        paid.require(paid.cost(1))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("[meaning]\nurls = 5", "unknown option"),
        ("[meaning]\nurl = 'http://localhost:1'", "lacks a `model`"),
        ("[meaning]\nprice = 'nan'", "must be 0 or more"),
        ("[meaning]\nmax_cost = -1", "must be 0 or more"),
        ("[meaning]\nbatch = 'many'", "batch"),
        ("meaning = 3", "must be a table"),
        ("[meaning", "cannot read"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, table: str, problem: str) -> None:
    (tmp_path / "thresher.toml").write_text(table)
    with pytest.raises(OptionError, match=problem):
        load_model_settings(MeaningSettings, "meaning", home=tmp_path, environment={})
