"""Real agents behind `thresher run`: long sessions end as they do without it, and the model refuses nothing.

The model is strict: it checks the rules of the real APIs and bills by prefix. Its story follows the id of the last call
that it made, so it goes on in the same way if Thresher has replaced old results.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from real_clients import CODEX, NEEDS_CLIENTS, THRESHER, behind_proxy, installed, own_environment, started
from scripted_model import Call, ModelRequest, ScriptedModel, Turn

pytestmark = NEEDS_CLIENTS
STEPS = 44
"""Tool calls of the main session."""
LINES = 220
BUDGET = 30_000
SUB_AGENT_STEP = 20
PROMPT = "Read all parts of the log, and write down the last temperature."
SUB_PROMPT = "SUBAGENT: read the first part and report."
LAST_WORDS = "The last temperature is 1244."
LAST_QUESTION = "What did you find?"
COMPACTION = "create a detailed summary"
"""Words of the request in which Claude Code asks for a summary."""
PATIENCE = 400


class Client(NamedTuple):
    """An agent: how it is called and configured, and its tools."""

    words: tuple[str, ...]
    variables: Callable[[str], dict[str, str]]
    settings: Callable[[str], dict[str, str]]
    """Files of its home, by their paths."""
    read: Callable[[Path], Call]
    write: Callable[[Path, str], Call]
    resume: tuple[str, ...] = ()
    """Words that continue the last session, instead of `words`."""
    sub_agent: Callable[[str], Call] | None = None


def no_variables(_url: str) -> dict[str, str]:
    return {}


GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True},
    "model": {"maxSessionTurns": 200},
}
CLIENTS = {
    "claude": Client(
        ("-p", "--model", "claude-sonnet-4-5", "--allowedTools=Read,Write,Agent"),
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        lambda _: {},
        lambda file: Call("Read", {"file_path": str(file)}),
        lambda file, text: Call("Write", {"file_path": str(file), "content": text}),
        ("-p", "--continue", "--model", "claude-sonnet-4-5", "--allowedTools=Read,Write,Agent"),
        lambda prompt: Call(
            "Agent", {"description": "Read a part", "prompt": prompt, "subagent_type": "general-purpose"}
        ),
    ),
    "codex": Client(
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
        lambda _: {"SCRIPTED_KEY": "dummy"},
        lambda url: {".codex/config.toml": CODEX.format(url=url)},
        lambda file: Call("exec_command", {"cmd": f"cat {file.name}", "max_output_tokens": 20_000}),
        lambda file, text: Call("exec_command", {"cmd": f"echo '{text}' > {file.name}"}),
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "resume", "--last"),
    ),
    "gemini": Client(
        ("--skip-trust", "--yolo", "--model", "gemini-2.5-pro", "-p"),
        lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy"},
        lambda _: {".gemini/settings.json": json.dumps(GEMINI)},
        lambda file: Call("read_file", {"file_path": file.name}),
        lambda file, text: Call("write_file", {"file_path": file.name, "content": text}),
        ("--skip-trust", "--yolo", "--model", "gemini-2.5-pro", "--resume", "latest", "-p"),
    ),
    "opencode": Client(
        ("run",),
        lambda _: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        lambda url: {
            ".config/opencode/opencode.json": json.dumps(
                {
                    "provider": {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "dummy"}}},
                    "model": "anthropic/claude-sonnet-4-5",
                    "permission": {"edit": "allow"},
                }
            )
        },
        lambda file: Call("read", {"filePath": str(file)}),
        lambda file, text: Call("write", {"filePath": str(file), "content": text}),
        ("run", "--continue"),
        lambda prompt: Call("task", {"description": "Read a part", "prompt": prompt, "subagent_type": "general"}),
    ),
    "pi": Client(
        ("-p", "--provider", "anthropic", "--model", "claude-sonnet-4-5"),
        lambda _: {"ANTHROPIC_API_KEY": "dummy", "PI_OFFLINE": "1"},
        lambda url: {".pi/agent/models.json": json.dumps({"providers": {"anthropic": {"baseUrl": url}}})},
        lambda file: Call("read", {"path": str(file)}),
        lambda file, text: Call("write", {"path": str(file), "content": text}),
        ("-p", "--continue", "--provider", "anthropic", "--model", "claude-sonnet-4-5"),
    ),
}


class Played(NamedTuple):
    """The end of a session."""

    written: str
    output: str
    model: ScriptedModel
    report: dict[str, Any]


class Session:
    """A session of an agent with a strict model, directly or behind `thresher run`."""

    def __init__(self, name: str, place: Path, *, is_behind: bool) -> None:
        self.client, self.name, self.is_behind = CLIENTS[name], name, is_behind
        self.home, self.folder, self.report = place / "home", place / "project", place / "report.json"
        self.folder.mkdir(parents=True)
        for step in range(STEPS):
            lines = [f"part {step} line {line}: the kiln has {1200 + step} degrees" for line in range(LINES)]
            (self.folder / f"part_{step}.txt").write_text("\n".join(lines) + "\n")
        self.reached, self.go_on = Event(), Event()
        self.step = self.pause_at = -1
        self.model = ScriptedModel(self._tell, strict=True)
        for file, text in self.client.settings(self.model.url).items():
            (self.home / file).parent.mkdir(parents=True, exist_ok=True)
            (self.home / file).write_text(text)

    def _tell(self, request: ModelRequest) -> Turn:
        """Return the next turn: the one after the last call in the request."""
        if not request.tools:
            return Turn("The kiln")
        is_sub = request.has_prompt(SUB_PROMPT) and not request.has_prompt(PROMPT)
        step = _next_step(request, "sub" if is_sub else "main")
        if request.prompts and COMPACTION in request.prompts[-1]:
            return Turn("<summary>I read the log of a kiln.</summary>")
        if request.has_prompt(LAST_QUESTION):
            return Turn(LAST_WORDS)
        if is_sub:
            if step < 3:
                return Turn("", (self._call("sub", step, self.client.read(self.folder / "part_0.txt")),))
            return Turn("The first temperature is 1200.")
        # After a compaction, the calls are gone and the session goes on.
        step = self.step = step or self.step + 1
        if step == self.pause_at:
            self.reached.set()
            self.go_on.wait(PATIENCE)
        if step < STEPS:
            call = self.client.read(self.folder / f"part_{step}.txt")
            if step == SUB_AGENT_STEP and self.client.sub_agent:
                call = self.client.sub_agent(SUB_PROMPT)
            return Turn(f"I read part {step}.", (self._call("main", step, call),), thinking=f"Part {step} is next.")
        if step == STEPS:
            return Turn("I write.", (self._call("main", step, self.client.write(self.folder / "last.txt", "1244")),))
        return Turn(LAST_WORDS)

    def _call(self, kind: str, step: int, call: Call) -> Call:
        return call._replace(id=f"call_{kind}_{step}")

    def command(self, words: tuple[str, ...], prompt: str) -> list[str]:
        """Return the command line of the agent."""
        before = [str(THRESHER), "run", "--budget", str(BUDGET), "--report", str(self.report)] if self.is_behind else []
        return [*before, self.name, *words, prompt]

    @property
    def environment(self) -> dict[str, str]:
        found = own_environment(self.home, **self.client.variables(self.model.url), **behind_proxy(self.model.url))
        return {**found, "PATH": f"{Path(installed(self.name)).parent}:{found['PATH']}"}

    def play(self, prompt: str = PROMPT, *, resume: bool = False) -> Played:
        """Play the session to its end."""
        command = self.command(self.client.resume if resume else self.client.words, prompt)
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.model.refusals}"
        last = self.folder / "last.txt"
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        return Played(last.read_text().strip() if last.exists() else "", done.stdout, self.model, report)


def _next_step(request: ModelRequest, kind: str) -> int:
    """Return the number after the last call of a kind. An agent without ids repeats the last file's name."""
    steps = [int(match[1]) for result in request.results if (match := re.match(rf"call_{kind}_(\d+)", result.call_id))]
    return max(steps, default=-1) + 1


@contextmanager
def session(name: str, place: Path, *, is_behind: bool) -> Iterator[Session]:
    """Open a session and close its model."""
    one = Session(name, place, is_behind=is_behind)
    try:
        yield one
    finally:
        one.go_on.set()
        one.model.close()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_long_session_ends_as_without_thresher(name: str, tmp_path: Path) -> None:
    with session(name, tmp_path / "direct", is_behind=False) as direct:
        expected = direct.play()
    with session(name, tmp_path / "behind", is_behind=True) as behind:
        found = behind.play()
    assert (found.written, expected.written) == ("1244", "1244")
    assert LAST_WORDS in expected.output
    assert LAST_WORDS in found.output
    assert (found.model.refusals, expected.model.refusals) == ([], [])
    assert len(found.model.requests) == len(expected.model.requests)
    total = found.report["total"]
    recorded = sum(total["replans"].values()) + sum(total["fallbacks"].values())
    assert 0 < _count_breaks(found.model) - _count_breaks(expected.model) <= recorded
    billed, without = (sum(usage.total for usage in one.model.billing.usages) for one in (found, expected))
    assert total["tokens"]["sent"] == billed < without
    assert total["tokens"]["original"] == pytest.approx(without, rel=0.1)
    if total["cost"]["priced_requests"]:
        assert total["cost"]["with_thresher"] < total["cost"]["without_thresher"]


def _count_breaks(model: ScriptedModel) -> int:
    """Return how many requests of the main session change content that the one before had."""
    pairs = zip(model.requests, model.prefixes, strict=True)
    main = [pieces for request, pieces in pairs if request.tools and request.has_prompt(PROMPT)]
    return sum(new[: len(old) - 1] != old[:-1] for old, new in pairwise(main))


@pytest.mark.parametrize("name", CLIENTS)
def test_an_interrupted_session_goes_on(name: str, tmp_path: Path) -> None:
    with session(name, tmp_path, is_behind=True) as one:
        one.pause_at = 10
        command = one.command(one.client.words, PROMPT)
        with started(command, one.environment, one.folder) as process:
            assert one.reached.wait(PATIENCE)
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=PATIENCE)
        one.pause_at = -1
        one.go_on.set()
        done = one.play("Go on.", resume=True)
        assert (done.written, done.model.refusals) == ("1244", [])
        assert LAST_WORDS in done.output


def test_claude_code_compacts(tmp_path: Path) -> None:
    with session("claude", tmp_path, is_behind=True) as one:
        one.play()
        one.play("/compact", resume=True)
        done = one.play(LAST_QUESTION, resume=True)
        assert any(COMPACTION in request.prompts[-1] for request in done.model.requests)
        assert (LAST_WORDS in done.output, done.model.refusals) == (True, [])


def test_codex_compacts(tmp_path: Path) -> None:
    with session("codex", tmp_path, is_behind=True) as one:
        config = one.home / ".codex" / "config.toml"
        config.write_text(f"model_auto_compact_token_limit = {BUDGET * 2 // 3}\n{config.read_text()}")
        done = one.play()
        assert (done.written, done.model.refusals) == ("1244", [])
        assert any("CHECKPOINT COMPACTION" in request.prompts[-1] for request in done.model.requests)
