"""What can be done with one agent's sessions can be done with every agent's: each verb, on a file of each format."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import thresher as th
from fixture_files import FIXTURES, own_fixture, ready
from recordings import indexed
from thresher.cli import cli
from thresher.replay.strategies.registry import rates_for_price_list
from thresher.replay.sweep import run_sweep
from thresher.serve.mcp_tools import McpTools
from thresher.transcripts.table import transcript_formats

EVERY = [one.name for one in transcript_formats()]
TO_DO = [one.name for one in transcript_formats() if "edits" in one.holds]
RECORDED = {
    "aider": "aider",
    "atif": "atif",
    "claude-code": "claude_code",
    "cline": "cline_roo",
    "codex": "codex",
    "copilot-cli": "copilot_cli",
    "gemini-cli": "gemini_cli",
    "mini-swe-agent": "mini_swe",
    "opencode": "opencode",
    "openhands": "openhands",
    "otel": "trail_otel",
    "pi": "pi",
    "swe-agent": "swe_agent",
}
"""Formats whose recordings are long enough to be replayed, and where they are."""
CALLS = 15
"""Model calls of a session that `replay` measures."""


def told(*words: str) -> Any:
    done = CliRunner().invoke(cli, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    """The format's own fixture, where nothing else is."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    return ready(own_fixture(name), folder)


@pytest.mark.parametrize("name", EVERY)
def test_sessions_are_listed_and_shown(name: str, path: Path) -> None:
    rows = told("sessions", "--no-discover", "--source", str(path))["sessions"]
    assert {row["agent"] for row in rows} == {name}
    assert all(row["messages"] and row["tokens"] for row in rows)
    for row in rows:
        shown = told("show", row["id"], "--no-discover", "--source", str(path))
        assert (shown["agent"], shown["id"]) == (name, row["id"])
        done = CliRunner().invoke(cli, ["show", row["id"], "--no-discover", "--source", str(path), "--policy", "smart"])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini", None])
def test_a_session_is_fitted_and_what_comes_out_is_legal(
    name: str, path: Path, target: str | None, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    for session in th.read_all(path):
        assert session.agent == name
        asked = ["--to", target] if target else []
        place = ["--no-discover", "--source", str(path)]
        made = told("fit", session.id, *place, "--policy", "aggressive", "-b", "60k", "-o", str(out), *asked)
        assert made["tokens_after"] <= made["tokens_before"]
        checked = told("check", str(out), "--dialect", made["dialect"])
        assert not checked["violations"], checked


def words(session: th.Session) -> str:
    """What to ask for: a sentence of the session."""
    texts = (message.text for message in session.messages() if message.role == "user" and message.author == "human")
    said = next((text for text in texts if re.search(r"\w{4}", text)), session.title)
    return " ".join(re.findall(r"[^\W_]{3,}", said)[:12])


@pytest.mark.parametrize("name", EVERY)
def test_a_session_is_found_again(name: str, path: Path) -> None:
    asked = words(th.read_all(path)[0])
    (first, *_) = told("search", "--no-discover", "--source", str(path), "--subagents", *asked.split())["sessions"]
    assert (first["agent"], first["file"]) == (name, str(path))
    assert first["hits"][0]["line"] > 0


@pytest.mark.parametrize("name", EVERY)
def test_what_a_session_knew_is_handed_on(name: str, path: Path) -> None:
    session = th.read_all(path)[0]
    assert session.agent == name
    tools = McpTools(sources=[path], discover=False, project=session.project or "/", environment={})
    context = tools.get_context(session=session.id)
    said = next(message.text for message in session.history if message.text.strip() and message.role != "system")
    assert said.split()[0] in context


@pytest.mark.parametrize("name", TO_DO)
def test_a_session_is_sent_again(name: str, path: Path) -> None:
    results = run_sweep([path], [("smart", 20_000)], rates_for_price_list("anthropic"), minimum=1)
    assert results.failures == []
    assert {facts.agent for facts in results.sessions.values()} == {name}


@pytest.mark.parametrize(("name", "kind"), RECORDED.items(), ids=list(RECORDED))
def test_a_recorded_session_is_sent_again(name: str, kind: str, shared_data: Path) -> None:
    for row, sessions in indexed(shared_data, kind):
        if any(len(session.history.turns) >= CALLS for session in sessions):
            replayed = told("replay", str(shared_data / row["file"]), "--policy", "smart", "--budget", "20k")
            assert {one["name"] for one in replayed["strategies"]} >= {"full", "smart"}, name
            return
    pytest.skip(f"no recording of {name} has {CALLS} model calls")


def test_sub_agents_in_a_store_are_listed_on_request(tmp_path: Path) -> None:
    path = str(ready(FIXTURES / "opencode.store.sql", tmp_path))
    listed = [row["id"] for row in told("sessions", "--no-discover", "--source", path)["sessions"]]
    assert listed == ["ses_s3NEWER", "ses_s1MAIN"]
    every = [row["id"] for row in told("sessions", "--no-discover", "--source", path, "--subagents")["sessions"]]
    assert every == ["ses_s3NEWER", "ses_s2CHILD", "ses_s1MAIN"]
    assert told("show", "ses_s2C", "--no-discover", "--source", path)["id"] == "ses_s2CHILD"


def test_the_sessions_of_a_database_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    ready(FIXTURES / "opencode.store.sql", folder).rename(folder / "opencode.db")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (agent,) = told()["agents"]
    assert (agent["agent"], agent["sessions"]) == ("opencode", 3)
    (folder / "opencode.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert told()["agents"][0]["sessions"] == 1
