"""Transcripts of current agents are read correctly: each agent does a small task with a scripted model.

A reduced copy of each transcript is a fixture (`tests/fixtures/<format>.client.*`); `THRESHER_UPDATE_GOLDEN=1` writes
it again. A run must be read like its fixture, so a change of an agent's format fails here.
"""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from real_clients import CODEX, NEEDS_CLIENTS, THRESHER, behind_proxy, installed, own_environment, ran
from scripted_model import Call, ModelRequest, ScriptedModel, Story, Turn

import thresher as th
from fixture_files import FIXTURES, ready
from thresher.model import Thinking
from thresher.transcripts.sqlite_source import open_read_only

pytestmark = NEEDS_CLIENTS
PROMPT = "How hot is the kiln? Write it down."
NOTE = "The kiln stands at 1240 degrees."


class Agent(NamedTuple):
    """An agent: its settings, its command line, and its tools that read and write a file."""

    command: tuple[str, ...]
    environment: Callable[[str], dict[str, str]]
    settings: tuple[str, Callable[[str], str]]
    """Path and text of a settings file in its home."""
    read: Callable[[Path], Call]
    write: Callable[[Path], Call]


AGENTS = {
    "claude-code": Agent(
        ("claude", "-p", PROMPT, "--allowedTools", "Read,Write"),
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        (".claude/settings.json", lambda _: "{}"),
        lambda folder: Call("Read", {"file_path": str(folder / "notes.txt")}),
        lambda folder: Call("Write", {"file_path": str(folder / "heat.txt"), "content": "1240\n"}),
    ),
    "codex": Agent(
        ("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT),
        lambda _: {"SCRIPTED_KEY": "dummy"},
        (".codex/config.toml", lambda url: CODEX.format(url=url)),
        lambda _: Call("exec_command", {"cmd": "cat notes.txt"}),
        lambda _: Call("exec_command", {"cmd": "echo 1240 > heat.txt"}),
    ),
    "gemini-cli": Agent(
        ("gemini", "--skip-trust", "--yolo", "--model", "gemini-2.5-pro", "-p", PROMPT),
        lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy"},
        (
            ".gemini/settings.json",
            lambda _: json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                    "general": {"disableAutoUpdate": True},
                }
            ),
        ),
        lambda _: Call("read_file", {"file_path": "notes.txt"}),
        lambda _: Call("write_file", {"file_path": "heat.txt", "content": "1240\n"}),
    ),
    "opencode": Agent(
        ("opencode", "run", PROMPT),
        lambda _: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        (
            ".config/opencode/opencode.json",
            lambda url: json.dumps(
                {
                    "provider": {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "dummy"}}},
                    "model": "anthropic/claude-sonnet-4-5",
                    "permission": {"edit": "allow"},
                }
            ),
        ),
        lambda folder: Call("read", {"filePath": str(folder / "notes.txt")}),
        lambda folder: Call("write", {"filePath": str(folder / "heat.txt"), "content": "1240\n"}),
    ),
}


class Done(NamedTuple):
    """The files of an agent after a run."""

    place: Path
    folder: Path
    home: Path
    sessions: list[th.Session]

    @property
    def session(self) -> th.Session:
        return self.sessions[0]


def run(name: str, place: Path, story: Story, settings: dict[str, Any] | None = None) -> Done:
    """Run an agent; `settings` are added to its JSON settings."""
    agent, folder, home = AGENTS[name], place / "kiln", place / "home"
    folder.mkdir()
    (folder / "notes.txt").write_text(f"{NOTE}\n")
    # A request without tools asks for a title or the like.
    model = ScriptedModel(lambda request: story(request) if request.tools else Turn("The kiln"))
    try:
        environment = own_environment(home, **agent.environment(model.url), **behind_proxy(model.url))
        file, text = agent.settings
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        settings_text = text(model.url)
        (home / file).write_text(json.dumps(json.loads(settings_text) | settings) if settings else settings_text)
        program, *words = agent.command
        ran([installed(program), *words], environment, folder)
    finally:
        model.close()
    (found,) = th.discover(environment={}, home=home)
    assert found.format == name
    return Done(place, folder, home, th.read_all(found.path))


@pytest.mark.parametrize("name", AGENTS)
def test_a_transcript_is_read_correctly(name: str, tmp_path: Path) -> None:
    agent = AGENTS[name]

    def story(request: ModelRequest) -> Turn:
        match len(request.results):
            case 0:
                call = agent.read(tmp_path / "kiln")
                return Turn("I read the notes.", (call,), thinking="The notes come first.")
            case 1:
                return Turn("I write it down.", (agent.write(tmp_path / "kiln"),))
        return Turn(NOTE)

    done = run(name, tmp_path, story)
    assert (done.folder / "heat.txt").read_text() == "1240\n"
    session, messages = done.session, list(done.session.messages())
    assert session.problems == ()
    assert session.project == str(done.folder)
    assert (bool(session.id), bool(session.started), session.compactions, session.branches) == (True, True, 0, ())
    prompts = [message for message in messages if message.author == "human"]
    assert [message.text.strip('"') for message in prompts] == [PROMPT]
    answers = [message for message in messages if message.author == "model"]
    assert [message.text for message in answers if message.text] == ["I read the notes.", "I write it down.", NOTE]
    assert [message.usage.output for message in answers if message.usage] == [5, 5, 5]
    assert all(message.time for message in messages)
    assert "The notes come first." in " ".join(
        part.text for message in answers for part in message.parts if isinstance(part, Thinking)
    )
    read, written = (call for message in answers for call in message.calls)
    for call, expected in ((read, agent.read(done.folder)), (written, agent.write(done.folder))):
        assert (call.name, json.loads(call.arguments)) == (expected.name, expected.arguments)
    results = {result.call_id: result for message in messages for result in message.results}
    assert set(results) == {read.id, written.id}
    assert NOTE in results[read.id].text
    assert not any(result.is_error for result in results.values())
    assert all(message.source and message.source.line for message in messages)
    _compare(name, done)


HELPERS = {
    "gemini-cli": Call("invoke_agent", {"agent_name": "generalist", "prompt": "Count the windows."}),
    "opencode": Call(
        "task", {"description": "Count windows", "prompt": "Count the windows.", "subagent_type": "general"}
    ),
}


@pytest.mark.parametrize("name", HELPERS)
def test_a_sub_agent_is_linked_to_the_call_that_started_it(name: str, tmp_path: Path) -> None:
    def story(request: ModelRequest) -> Turn:
        if request.has_prompt("Count the windows."):
            finished = Call("complete_task", {"result": {"response": "Seven."}})
            return Turn("Seven.", (finished,) if "complete_task" in request.tools else ())
        return Turn("They are seven.") if request.results else Turn("I have them counted.", (HELPERS[name],))

    parent, *others = run(name, tmp_path, story).sessions
    (child,) = parent.children or others
    (call,) = (call for message in parent.messages() for call in message.calls)
    assert (child.parent, child.call_id) == (parent.id, call.id)
    first = next(message for message in child.messages() if message.role == "user")
    assert (first.author, first.text) == ("model", "Count the windows.")
    assert "Seven." in [message.text for message in child.messages()]


SERVERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "gemini-cli": lambda home: {
        "mcpServers": {
            "thresher": {"command": str(THRESHER), "args": ["mcp"], "env": {"THRESHER_HOME": home}, "trust": True}
        }
    },
    "opencode": lambda home: {
        "mcp": {
            "thresher": {"type": "local", "command": [str(THRESHER), "mcp"], "environment": {"THRESHER_HOME": home}}
        }
    },
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_sub_agent_gets_the_context_of_its_parent(name: str, tmp_path: Path) -> None:
    learned: list[str] = []

    def story(request: ModelRequest) -> Turn:
        if not request.has_prompt("Count the windows."):
            return Turn("They are seven.") if request.results else Turn("The KESTREL house.", (HELPERS[name],))
        if not request.results:
            return Turn("I ask.", (Call(next(tool for tool in request.tools if "get_context" in tool), {}),))
        learned.append(request.results[-1].text)
        finished = Call("complete_task", {"result": {"response": "Seven."}})
        return Turn("Seven.", (finished,) if "complete_task" in request.tools else ())

    done = run(name, tmp_path, story, SERVERS[name](str(tmp_path / "thresher")))
    assert done.session.id in learned[0]
    assert PROMPT in learned[0]
    assert "The KESTREL house." in learned[0]
    assert "Count the windows." not in learned[0]


def _compare(name: str, done: Done) -> None:
    ends = ".sql" if Path(done.session.file).suffix == ".db" else ".jsonl"
    fixture = FIXTURES / f"{name}.client{ends}"
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        lines = _rows(done) if ends == ".sql" else _lines(done)
        fixture.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    kept = th.read(ready(fixture, done.place))
    assert isinstance(kept, th.Session)
    assert (outline(done.session), done.session.version) == (outline(kept), kept.version)
    assert set(done.session.records) == set(kept.records)


def outline(session: th.Session) -> list[tuple[str, str, list[str]]]:
    """Return the role and the kinds of parts of each message."""
    return [
        (message.role, message.author, [type(part).__name__ for part in message.parts])
        for message in session.messages()
    ]


# --- the reduced copy ------------------------------------------------------------------------------------------------

LONG = 80
"""Characters of a text that is not truncated: longer text belongs to the agent and is not stored here."""
_TAG = re.compile(r"<([\w-]+)>")
_DAY = re.compile(r"\b20\d\d-\d\d-\d\d(?=T)")


def _cut(value: Any, done: Done) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item, done) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, done) for item in value[:3]]
    if not isinstance(value, str):
        return value
    text = value.replace(str(done.folder), "/home/sam/kiln").replace(str(done.home), "/home/sam")
    if len(text) > LONG and NOTE not in text:
        tag = _TAG.match(text)
        text = f"<{tag[1]}>\n(cut)\n</{tag[1]}>" if tag else "(cut)"
    return _DAY.sub("2026-11-18", text)


def _lines(done: Done) -> Iterator[str]:
    for line in Path(done.session.file).read_text(encoding="utf-8").splitlines():
        yield json.dumps(_cut(json.loads(line), done), ensure_ascii=False, separators=(",", ":"))


def _rows(done: Done) -> Iterator[str]:
    """Yield the tables that Thresher reads, as SQL statements."""
    yield "-- What opencode wrote for one prompt."
    with open_read_only(Path(done.session.file)) as connection, closing(sqlite3.connect(":memory:")) as quoting:
        for table in ("session", "message", "part", "session_message"):
            yield f"CREATE TABLE {table} ({', '.join(_columns(connection, table))});"
            for row in connection.execute(f"SELECT * FROM {table}"):
                values = [_cell(quoting, value, done) for value in tuple(row)]
                yield f"INSERT INTO {table} VALUES ({', '.join(values)});"


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    found = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return [f"{row['name']} {row['type']}" for row in found]


def _cell(quoting: sqlite3.Connection, value: Any, done: Done) -> str:
    if isinstance(value, str) and value.startswith(("{", "[")):
        value = json.dumps(_cut(json.loads(value), done), ensure_ascii=False, separators=(",", ":"))
    elif isinstance(value, str):
        value = _cut(value, done)
    return str(quoting.execute("SELECT quote(?)", (value,)).fetchone()[0])
