"""Each command, on a file of each transcript format."""

import re
from pathlib import Path

import pytest

import thresher as th
from command_line import run, run_json
from fixture_files import FIXTURES, own_fixture, ready
from recordings import indexed
from thresher.replay.strategies.registry import rates_for_price_list
from thresher.replay.sweep import run_sweep
from thresher.serve.mcp_tools import McpTools
from thresher.transcripts.table import transcript_formats

FORMATS = [format.name for format in transcript_formats()]
EDIT_FORMATS = [format.name for format in transcript_formats() if "edits" in format.holds]
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
"""Formats with recordings that are long enough for a replay, and the folders of those."""
MIN_CALLS = 15
"""Model calls that a session needs for `replay`."""


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    """A folder with only the fixture of the format."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    return ready(own_fixture(name), folder)


@pytest.mark.parametrize("name", FORMATS)
def test_sessions_are_listed_and_shown(name: str, path: Path) -> None:
    rows = run_json("sessions", "--no-discover", "--source", str(path))["sessions"]
    assert {row["agent"] for row in rows} == {name}
    assert all(row["messages"] and row["tokens"] for row in rows)
    for row in rows:
        shown = run_json("show", row["id"], "--no-discover", "--source", str(path))
        assert (shown["agent"], shown["id"]) == (name, row["id"])
        planned = run("show", row["id"], "--no-discover", "--source", str(path), "--policy", "smart")
        assert planned.exit_code == 0, planned.output


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini", None])
def test_a_fitted_session_is_legal(name: str, path: Path, target: str | None, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    for session in th.read_all(path):
        assert session.agent == name
        options = ["--no-discover", "--source", str(path), "-o", str(out), *(["--to", target] if target else [])]
        fitted = run_json("fit", session.id, "--policy", "aggressive", "-b", "60k", *options)
        assert fitted["tokens_after"] <= fitted["tokens_before"]
        checked = run_json("check", str(out), "--dialect", fitted["dialect"])
        assert not checked["violations"], checked


def make_query(session: th.Session) -> str:
    """Return words of the first human message."""
    texts = (message.text for message in session.messages() if message.role == "user" and message.author == "human")
    sentence = next((text for text in texts if re.search(r"\w{4}", text)), session.title)
    return " ".join(re.findall(r"[^\W_]{3,}", sentence)[:12])


@pytest.mark.parametrize("name", FORMATS)
def test_a_search_finds_the_session(name: str, path: Path) -> None:
    query = make_query(th.read_all(path)[0])
    (first, *_) = run_json("search", "--no-discover", "--source", str(path), "--subagents", *query.split())["sessions"]
    assert (first["agent"], first["file"]) == (name, str(path))
    assert first["hits"][0]["line"] > 0


@pytest.mark.parametrize("name", FORMATS)
def test_the_mcp_server_returns_the_context_of_a_session(name: str, path: Path) -> None:
    session = th.read_all(path)[0]
    assert session.agent == name
    tools = McpTools(sources=[path], discover=False, project=session.project or "/", environment={})
    context = tools.get_context(session=session.id)
    first_text = next(message.text for message in session.history if message.text.strip() and message.role != "system")
    assert first_text.split()[0] in context


@pytest.mark.parametrize("name", EDIT_FORMATS)
def test_a_session_is_replayed(name: str, path: Path) -> None:
    results = run_sweep([path], [("smart", 20_000)], rates_for_price_list("anthropic"), minimum=1)
    assert results.failures == []
    assert {facts.agent for facts in results.sessions.values()} == {name}


@pytest.mark.parametrize(("name", "kind"), RECORDED.items(), ids=list(RECORDED))
def test_a_recorded_session_is_replayed(name: str, kind: str, shared_data: Path) -> None:
    for row, sessions in indexed(shared_data, kind):
        if any(len(session.history.turns) >= MIN_CALLS for session in sessions):
            replayed = run_json("replay", str(shared_data / row["file"]), "--policy", "smart", "--budget", "20k")
            assert {one["name"] for one in replayed["strategies"]} >= {"full", "smart"}, name
            return
    pytest.skip(f"no recording of {name} has {MIN_CALLS} model calls")


def test_sub_agents_in_a_store_are_listed_on_request(tmp_path: Path) -> None:
    path = str(ready(FIXTURES / "opencode.store.sql", tmp_path))
    listed = [row["id"] for row in run_json("sessions", "--no-discover", "--source", path)["sessions"]]
    assert listed == ["ses_s3NEWER", "ses_s1MAIN"]
    all_ids = [row["id"] for row in run_json("sessions", "--no-discover", "--source", path, "--subagents")["sessions"]]
    assert all_ids == ["ses_s3NEWER", "ses_s1MAIN", "ses_s2CHILD"]
    assert run_json("show", "ses_s2C", "--no-discover", "--source", path)["id"] == "ses_s2CHILD"


def test_the_sessions_of_a_database_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    ready(FIXTURES / "opencode.store.sql", folder).rename(folder / "opencode.db")
    monkeypatch.setenv("HOME", str(tmp_path))
    (agent,) = run_json()["agents"]
    assert (agent["agent"], agent["sessions"]) == ("opencode", 3)
    (folder / "opencode.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert run_json()["agents"][0]["sessions"] == 1
