"""What all tests share: how hard properties are tried, and where the shared recordings lie."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from thresher.samples import write_samples

sys.path.insert(0, str(Path(__file__).parent))  # so that tests in sub-folders can import `strategies`

# A busy machine, not a slow strategy, is what `too_slow` finds when the tests run in many processes.
_CALM = [HealthCheck.too_slow]
# The same examples every time, so that a change is what makes a test fail; `thorough` looks for new ones.
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
"""What may lead to the sessions and settings of whoever runs this."""
OURS = ("THRESHER_TEST_PROFILE", "THRESHER_UPDATE_GOLDEN")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the sessions of whoever runs it, writes to their data, or is ruled by their settings."""
    for name in [*os.environ]:
        if name.startswith(AGENTS) and name not in OURS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user-home"))
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher-home"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the sample sessions."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher"))
    write_samples(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the repository."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no recordings in {folder}: put the shared data folder there to run this test")
    return folder
