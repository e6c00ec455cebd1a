"""Real agents with Thresher's plug-ins: long sessions end as they do without, and the model refuses nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from real_clients import NEEDS_CLIENTS, THRESHER, ran, started
from scripted_model import Api, ModelRequest, ScriptedModel
from test_client_run import BUDGET, CLIENTS, COMPACTION, LAST_QUESTION, LAST_WORDS, PATIENCE, PROMPT, Session

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
    settings = one.folder / "thresher.toml"
    settings.write_text(f"budget = {BUDGET}\n")


def count_tokens(model: ScriptedModel) -> int:
    return sum(usage.total for usage in model.billing.usages)


def size(request: ModelRequest) -> int:
    return len(json.dumps(request.body["messages"]))


def count_summaries(model: ScriptedModel) -> int:
    """Return how often the agent asked the model for a summary."""
    return sum(any(COMPACTION in prompt for prompt in request.prompts[-1:]) for request in model.requests)


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
    assert count_tokens(found.model) < count_tokens(expected.model)
    assert any("thresher restore" in json.dumps(request.body) for request in found.model.requests)


def test_claude_code_compacts_without_a_summary(tmp_path: Path) -> None:
    with session("claude", tmp_path, is_installed=True) as one:
        before = len(one.play().model.requests)
        longest = max(map(size, one.model.requests))
        one.play("/compact", resume=True)
        assert len(one.model.requests) == before
        done = one.play(LAST_QUESTION, resume=True)
        assert (LAST_WORDS in done.output, done.model.refusals, count_summaries(done.model)) == (True, [], 0)
        assert size(done.model.requests[-1]) < longest / 2
        assert "thresher restore" in json.dumps(done.model.requests[-1].body)


def test_claude_code_compacts_in_the_middle_of_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = CLIENTS["claude"]
    window = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "80000"}
    monkeypatch.setitem(CLIENTS, "claude", client._replace(variables=lambda url: client.variables(url) | window))
    with session("claude", tmp_path, is_installed=True) as one:
        done = one.play()
    assert (done.written, done.model.refusals, count_summaries(done.model)) == ("1244", [], 0)
    assert LAST_WORDS in done.output
    assert "thresher restore" in json.dumps(done.model.requests[-1].body)


@pytest.mark.parametrize("name", ["pi", "opencode", "claude"])
def test_a_session_goes_on_if_thresher_is_missing(name: str, tmp_path: Path) -> None:
    with session(name, tmp_path, is_installed=True) as one:
        for file in one.home.rglob("*.js"):
            if f'"{THRESHER}"' in (text := file.read_text()):
                file.write_text(text.replace(f'"{THRESHER}"', '"/missing/thresher"'))
        done = one.play()
        assert (done.written, done.model.refusals) == ("1244", [])
        assert "thresher restore" not in json.dumps(done.model.requests[-1].body)
        if name == "claude":
            one.play("/compact", resume=True)
            assert count_summaries(done.model) == 1


@pytest.mark.parametrize("name", ["pi"])
def test_a_refused_edit_is_the_last_one_of_its_session(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(name, tmp_path, is_installed=True) as one:
        answer = one.model.answer

        def refuse_edits(api: Api, body: dict[str, Any]) -> Any:
            if "thresher restore" in json.dumps(body):
                one.model.refusals.append("messages.3: Invalid `signature` in `thinking` block")
                return one.model.refusals[-1]
            return answer(api, body)

        monkeypatch.setattr(one.model, "answer", refuse_edits)
        command = one.command(one.client.words, PROMPT)
        with started(command, one.environment, one.folder) as process:
            process.communicate(timeout=PATIENCE)
        done = one.play("Go on.", resume=True)
        assert (done.written, len(done.model.refusals)) == ("1244", 1)
