"""Fixtures for all tests: hypothesis profiles, an isolated home, and the shared recordings."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from thresher.samples import write_samples

sys.path.insert(0, str(Path(__file__).parent))  # tests in subfolders import helper modules such as `strategies`

# `too_slow` measures the machine's load, not the strategy, when many test processes run.
_CALM = [HealthCheck.too_slow]
# Derandomized, so that only a code change can make a test fail; `thorough` searches for new examples.
settings.register_profile("default", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_CALM)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_CALM)
settings.load_profile(os.environ.get("THRESHER_TEST_PROFILE", "default"))

AGENTS = (
    "THRESHER_",
    "CLAUDIST_",
    "CLAUDE",
    "CODEX_",
    "XDG_",
    "PI_",
    "MSWEA_",
    "GEMINI_",
    "OPENCODE",
    "GOOSE_",
    "AIDER_",
    "COPILOT_",
    "CLINE_",
    "OPENHANDS_",
    "PWD",
    "APPDATA",
    "LOCALAPPDATA",
)
"""Environment variables that could lead to the developer's sessions and settings."""
OURS = ("THRESHER_TEST_PROFILE", "THRESHER_UPDATE_GOLDEN")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate every test from the developer's sessions, data and settings."""
    for name in [*os.environ]:
        if name.startswith(AGENTS) and name not in OURS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user-home"))
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher-home"))
    monkeypatch.setenv("THRESHER_MEANING_ENABLED", "false")  # its tests enable it; the others would load the models


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the sample sessions."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher"))
    write_samples(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real recordings next to the repository."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no recordings in {folder}: put the shared data folder there to run this test")
    return folder
