"""Precedence of a window's thresholds: the argument, the environment, `thresher.toml`."""

from pathlib import Path
from typing import Any

import pytest

from thresher.errors import OptionError
from thresher.store import InMemoryContentStore
from thresher.window import Thresholds, Window


def sent(**options: Any) -> list[int]:
    """Return the number of characters of each request of a loop."""
    window = Window(budget=3_000, store=InMemoryContentStore(), counter="estimate", format="anthropic", **options)
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Find the fault."}]
    found = []
    for n in range(24):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"run {n}"}}
        text = " ".join(f"word{n}x{k}" for k in range(40))
        rows.append({"role": "assistant", "content": [call]})
        rows.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": text}]})
        found.append(len(str(window.fit(list(rows), at=float(n)))))
    return found


def test_a_window_takes_its_thresholds_from_the_settings_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain, deep, deeper = (
        sent(),
        sent(thresholds=Thresholds(low_water=0.1)),
        sent(thresholds=Thresholds(low_water=0.1, high_water=0.5)),
    )
    assert plain != deep != deeper != plain
    (tmp_path / "thresher.toml").write_text("[thresholds]\nlow_water = 0.1\n")
    assert sent() == deep
    monkeypatch.setenv("THRESHER_THRESHOLDS_HIGH_WATER", "0.5")
    assert sent() == deeper
    assert sent(thresholds=Thresholds()) == plain


def test_invalid_thresholds_in_the_settings_are_rejected_by_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_THRESHOLDS_LOW_WATER", "1.5")
    with pytest.raises(OptionError, match="low"):
        Window()
    monkeypatch.setenv("THRESHER_THRESHOLDS_LOW_WATER", "")
    monkeypatch.setenv("THRESHER_THRESHOLDS_HASTE", "1")
    with pytest.raises(OptionError, match="THRESHER_THRESHOLDS_HASTE"):
        Window()
