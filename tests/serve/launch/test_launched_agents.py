"""`thresher run` with real processes: terminal, signals, exit code, environment and report."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from command_line import run

PATIENCE = 60
ASK = """
import json, os, sys, urllib.request
request = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", sys.argv[1].encode(), {"Content-Type": "application/json"}
)
print(urllib.request.urlopen(request).read().decode())
sys.exit(7)
"""


class Model(ThreadingHTTPServer):
    """A model's API that records bodies."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        answer = b'{"type": "message", "content": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def model() -> Iterator[Model]:
    with closing(Model()) as one:
        yield one


def command(*words: str) -> list[str]:
    """Return the command line of `thresher run`."""
    return [sys.executable, "-m", "thresher.cli", "run", *words]


def environment(model: Model | None = None, **more: str) -> dict[str, str]:
    urls = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_address[1]}/base"} if model else {}
    return {**os.environ, **urls, **more}


def test_requests_exit_code_and_report(model: Model, tmp_path: Path) -> None:
    body = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "ü"}]}, indent=3)
    report = tmp_path / "report.json"
    words = command("--report", str(report), "--", sys.executable, "-c", ASK, body)
    # The system's proxy does not exist: the agent's request must not take it.
    odd = environment(model, http_proxy="http://127.0.0.1:9")
    done = subprocess.run(words, env=odd, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == {"type": "message", "content": []}
    assert (model.paths, model.bodies) == (["/base/v1/messages"], [body.encode()])
    written = json.loads(report.read_text())
    assert (written["exit_code"], written["requests"], written["total"]["changed"]) == (7, 1, 0)
    assert "requests       1, 0 changed" in done.stderr


def test_a_run_can_diagnose_the_cache(model: Model, tmp_path: Path) -> None:
    rows = [{"role": role, "content": "ü"} for role in ("user", "assistant", "user")]
    body = json.dumps({"model": "claude-sonnet-4-5", "messages": rows})
    report = tmp_path / "report.json"
    words = command("--diagnose-cache", "--report", str(report), "--", sys.executable, "-c", ASK, body)
    done = subprocess.run(words, env=environment(model), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert json.loads(model.bodies[0]) == {**json.loads(body), "diagnostics": {"previous_message_id": None}}
    assert "cache misses   of Thresher: none; of others: none; 0 requests compared" in done.stderr
    assert json.loads(report.read_text())["diagnose_cache"] == {"on": True, "refused_by": []}


def test_the_agent_has_the_terminal_and_its_keys(model: Model) -> None:
    main, agent = pty.openpty()
    script = """
import os, signal, sys
assert all(os.isatty(number) for number in (0, 1, 2))
def on_key(number, frame):
    print("interrupted", flush=True)
signal.signal(signal.SIGINT, on_key)
print("ready", flush=True)
while True:
    if input() == "quit":
        sys.exit(3)
"""
    words = command("--", sys.executable, "-c", script)
    process = subprocess.Popen(words, env=environment(model), stdin=agent, stdout=agent, stderr=agent, process_group=0)
    os.close(agent)
    try:
        output = _read_until(main, "ready")
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: both processes receive it
        output += _read_until(main, "interrupted")
        os.write(main, b"quit\n")
        assert process.wait(PATIENCE) == 3
        assert "Traceback" not in output
    finally:
        process.kill()
        os.close(main)


def _read_until(descriptor: int, word: str) -> str:
    text = ""
    while word not in text:
        text += os.read(descriptor, 4096).decode()
    return text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_reaches_the_agent(number: signal.Signals, code: int) -> None:
    script = "print('ready', flush=True); import time; time.sleep(600)"
    with subprocess.Popen(
        command("--", sys.executable, "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE) == code


def test_warnings_of_the_proxy_wait_for_the_end() -> None:
    """A full-screen agent owns the terminal, so nothing may be printed while it runs."""
    script = """
import os, urllib.request, urllib.error
try:
    urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/v1/models")
except urllib.error.HTTPError as error:
    print(error.code, error.headers["X-Thresher-Error"])
os.close(2)
"""
    unreachable = {**os.environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    words = command("--", sys.executable, "-c", script)
    done = subprocess.run(words, env=unreachable, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "502 proxy\n")
    assert done.stderr.count("cannot be reached") == 1
    assert done.stderr.index("requests       1,") < done.stderr.index("cannot be reached")


# --- the command line ----------------------------------------------------------------------------------------


def test_an_agent_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = run("run", "claude")
    assert shown.exit_code == 1
    assert "`claude` is not installed" in str(shown.exception)


def test_an_unknown_agent_is_not_started() -> None:
    shown = run("run", "cluade", "-p", "hi")
    assert shown.exit_code == 2
    assert "Did you mean `claude`?" in shown.output
    assert "run -- cluade" in shown.output


def install(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a program that prints its arguments."""
    program = place / name
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (("claude", "--", "x"), "-- x"),
        (("claude", "-p", "--", "--report"), "-p -- --report"),
        (("--", "claude", "--", "-v"), "-- -v"),
        (("claude", "--help"), "--help"),
    ],
)
def test_arguments_of_the_agent_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], passed: str
) -> None:
    install(tmp_path, "claude", monkeypatch)
    shown = run("run", "--dry-run", *words)
    assert shown.exit_code == 0, shown.output
    assert f"claude {passed}\n" in shown.output
    # After `--` the agent's own module is not used: all the usual variables are set.
    assert ("OPENAI_BASE_URL" in shown.output) == (words[0] == "--")


def test_what_an_agent_does_not_offer_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "claude", monkeypatch)
    outputs = [run("run", "claude", "-p", "hi").output for _ in range(2)]
    assert ["Remote Control" in output for output in outputs] == [True, False]
    assert capfd.readouterr().out == "-p|hi|" * 2


def test_a_run_writes_no_file_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "codex", monkeypatch)
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text("model = 'x'\n")
    monkeypatch.setenv("HOME", str(home))
    assert run("run", "codex").exit_code == 0
    assert [path.relative_to(home) for path in home.rglob("*")] == [Path(".codex"), Path(".codex/config.toml")]
    assert (home / ".codex" / "config.toml").read_text() == "model = 'x'\n"
