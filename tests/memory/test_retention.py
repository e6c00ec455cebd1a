from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chats import chat, name

from thresher.errors import OptionError
from thresher.memory import Memory


def _sessions(folder: Path, *days_ago: int) -> None:
    folder.mkdir()
    for number, days in enumerate(days_ago, 1):
        written = chat(name(number), ["what about the pelican today?", "the pelican is well and sends word"]).decode()
        then = datetime.now(UTC) - timedelta(days=days)
        (folder / f"{name(number)}.jsonl").write_text(written.replace("2026-03-01", f"{then:%Y-%m-%d}"))


def _left(memory: Memory) -> int:
    return len(memory.search("pelican", sync=False).sessions)


@pytest.mark.parametrize(("retention", "left"), [(None, 2), ("1 year", 1), ("3000d", 2), ("450d", 2)])
def test_sessions_beyond_the_retention_are_forgotten(tmp_path: Path, retention: str | None, left: int) -> None:
    _sessions(tmp_path / "files", 10, 480)
    memory = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False, retention=retention)
    assert memory.sync().forgotten == 2 - left
    assert _left(memory) == left
    assert memory.sync().messages == 0  # it does not return


def test_the_environment_sets_the_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sessions(tmp_path / "files", 10, 480)
    monkeypatch.setenv("THRESHER_RETENTION", "90d")
    memory = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False)
    assert memory.sync().forgotten == 1


def test_a_forgotten_session_that_continues_returns(tmp_path: Path) -> None:
    _sessions(tmp_path / "files", 10, 480)
    memory = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False, retention="90d")
    assert memory.sync().forgotten == 1
    goes_on = chat(name(2), ["is the pelican still well today?"], 2).decode()
    with (tmp_path / "files" / f"{name(2)}.jsonl").open("a") as file:
        file.write(goes_on.replace("2026-03-01", f"{datetime.now(UTC):%Y-%m-%d}"))
    assert memory.sync().forgotten == 0
    assert _left(memory) == 2


def test_a_retention_below_one_day_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="365d"):
        Memory(home=tmp_path, sources=[], discover=False, retention="1h").sync()


def test_before_selects_by_end_time(tmp_path: Path) -> None:
    _sessions(tmp_path / "files", 10, 480)
    memory = Memory(home=tmp_path / "home", sources=[tmp_path / "files"], discover=False)
    memory.sync()
    assert memory.forget(before=datetime.now(UTC) - timedelta(days=600), dry=True) == []
    assert len(memory.forget(before=datetime.now(UTC) - timedelta(days=100), dry=True)) == 1
    assert _left(memory) == 2
