"""Real agents with their Thresher plug-ins: long sessions end as they do without them, and the model refuses nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_clients import NEEDS_CLIENTS, THRESHER, ran
from test_client_run import BUDGET, LAST_WORDS, Session

pytestmark = NEEDS_CLIENTS


@contextmanager
def session(name: str, place: Path, *, is_installed: bool) -> Iterator[Session]:
    """Open a session without a proxy, with the plug-in or without."""
    one = Session(name, place, is_behind=False)
    try:
        if is_installed:
            install(one)
        yield one
    finally:
        one.go_on.set()
        one.model.close()


AGENTS = {"claude": "claude-code", "opencode": "opencode", "pi": "pi"}


def install(one: Session) -> None:
    ran([str(THRESHER), "install", AGENTS[one.name], "--with", "plugin", "--write"], one.environment, one.folder)
    settings = one.home / "thresher" / "thresher.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"budget = {BUDGET}\n")


@pytest.mark.parametrize("name", ["pi", "opencode"])
def test_a_long_session_ends_as_without_thresher(name: str, tmp_path: Path) -> None:
    with session(name, tmp_path / "without", is_installed=False) as one:
        expected = one.play()
    with session(name, tmp_path / "with", is_installed=True) as one:
        found = one.play()
    assert (found.written, expected.written) == ("1244", "1244")
    assert LAST_WORDS in found.output
    assert (found.model.refusals, expected.model.refusals) == ([], [])
    assert len(found.model.requests) == len(expected.model.requests)
    billed, without = (sum(usage.total for usage in played.model.billing.usages) for played in (found, expected))
    assert billed < without
    assert any("thresher restore" in json.dumps(request.body) for request in found.model.requests)
