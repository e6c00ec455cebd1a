"""The examples run offline, send only legal requests, cost little, and leave no files elsewhere."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from oracle import violations

EXAMPLES = Path(__file__).parents[1] / "examples"
LOOPS = {"anthropic_loop.py": "anthropic", "openai_loop.py": "openai-chat"}
WATCHED = """
import json, os, runpy, sys
written = []
def watch(event, given):
    if event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not isinstance(given[0], int):
        written.append(os.fsdecode(given[0]))
    elif event in ("sqlite3.connect", "os.mkdir", "os.rename", "os.link", "os.symlink"):
        written.extend(os.fsdecode(path) for path in given[:2] if isinstance(path, (str, bytes)))
script, report = sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
sys.addaudithook(watch)
try:
    runpy.run_path(script, run_name="__main__")
finally:
    text = json.dumps(written)
    open(report, "w").write(text)
"""
"""Script that runs another one and reports every path that it opens for writing, creates or renames."""


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_model = _load("fake_model")


class Run(NamedTuple):
    """Output and files of an example run."""

    code: int
    out: str
    err: str
    written: list[Path]


def run(script: str, folder: Path, **variables: str) -> Run:
    """Run an example with only these variables of Thresher."""
    places = {name: folder / name.lower() for name in ("THRESHER_HOME", "TMPDIR", "HOME", "WORK")}
    for place in places.values():
        place.mkdir(exist_ok=True)
    ours = ("THRESHER_", "CLAUDIST_", "ANTHROPIC_", "OPENAI_", "PYTHON", "XDG_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours) and "proxy" not in key.lower()}
    settings = {**kept, **{name: str(place) for name, place in places.items()}, "PYTHONDONTWRITEBYTECODE": "1"}
    settings |= {"PYTHONIOENCODING": "utf-8", **variables}
    report = folder / "written.json"
    command = [sys.executable, "-c", WATCHED, str(EXAMPLES / script), str(report)]
    done = subprocess.run(
        command, cwd=places["WORK"], env=settings, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    written = [path for path in map(_path, json.loads(report.read_text())) if path is not None]
    return Run(done.returncode, done.stdout, done.stderr, [places["WORK"] / path for path in written])


def _path(name: str) -> Path | None:
    """Return the path of a file; a database may be a URI or in memory."""
    return None if name == ":memory:" else Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # the model sets this variable; this restores it
    model = fake_model.FakeModel()
    yield model
    model.close()


def served(model: Any) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": model.url, "OPENAI_BASE_URL": f"{model.url}/v1"}


def right_answer(folder: Path) -> int:
    """Return the answer to the question of the examples, computed from all files."""
    project = folder / "project"
    project.mkdir()
    fake_model.make_project(project)
    texts = {path.stem: path.read_text() for path in project.glob("*.py")}
    imported = {name for text in texts.values() for name in re.findall(r"^import (\w+)$", text, re.MULTILINE)}
    found = [re.search(r"CAPACITY = (\d+)", texts[name]) for name in imported]
    assert 0 < len(imported) < len(texts)
    return sum(int(one[1]) for one in found if one)


@pytest.mark.parametrize("script", [*LOOPS, "async_fit.py"])
def test_an_example_is_short(script: str) -> None:
    assert len((EXAMPLES / script).read_text().splitlines()) < 80


@pytest.mark.parametrize("script", LOOPS)
def test_an_example_runs_offline_and_reports_its_result(script: str, tmp_path: Path) -> None:
    done = run(script, tmp_path)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert sum("; now " in line for line in lines) >= 3
    assert f"The modules that others import have a capacity of {right_answer(tmp_path)}." in lines
    figures = re.search(r"^sent ([\d,]+) tokens instead of ([\d,]+); (\d+)%", done.out, re.MULTILINE)
    assert figures is not None
    sent, full, cached = (int(number.replace(",", "")) for number in figures.groups())
    assert sent < 0.75 * full
    assert cached >= 60
    assert re.search(r"^removed [1-9]\d* parts, and restored all; the longest: '.+", done.out, re.MULTILINE)
    assert outside(done, tmp_path) == []


def test_the_async_example_reports_what_was_repaired_and_removed(tmp_path: Path) -> None:
    done = run("async_fit.py", tmp_path)
    assert (done.code, done.err) == (0, "")
    sizes = re.findall(r"^6 messages, [\d,]+ → ([\d,]+) tokens$", done.out, re.MULTILINE)
    assert [3_000 < int(size.replace(",", "")) <= 4_000 for size in sizes] == [True] * 3
    assert done.out.count("; repaired: added a result marked as interrupted") == 3
    assert all(path.is_relative_to(tmp_path / "thresher_home") for path in done.written)


def outside(done: Run, folder: Path) -> list[Path]:
    """Return the files written outside the expected folders, or left in a temporary folder."""
    home, temporary = folder / "thresher_home", folder / "tmpdir"
    assert any(path.is_relative_to(home) for path in done.written)
    assert any(path.is_relative_to(temporary) for path in done.written)
    elsewhere = [path for path in done.written if not (path.is_relative_to(home) or path.is_relative_to(temporary))]
    return [*elsewhere, *temporary.iterdir(), *(folder / "home").iterdir(), *(folder / "work").iterdir()]


@pytest.mark.parametrize(("script", "dialect"), LOOPS.items())
def test_the_configured_endpoint_gets_legal_requests_and_mostly_cache_hits(
    script: str, dialect: str, tmp_path: Path, model: Any
) -> None:
    done = run(script, tmp_path, **served(model))
    assert done.code == 0, done.err
    assert 40 <= len(model.requests) <= 80
    assert model.rejections == []
    assert [flaw for body in model.requests for flaw in violations(body, dialect)] == []
    assert sum(usage[0] for usage in model.usages) > 0.6 * sum(map(sum, model.usages))
    read = fake_model.anthropic_steps if dialect == "anthropic" else fake_model.chat_steps
    newest = [step for body in model.requests for step in read(body)[-1:]]
    restored = [step.results[key] for step in newest for key, call in step.calls.items() if call.name == "restore"]
    assert restored
    assert [text for text in restored if text.startswith("failed")] == []


@pytest.mark.parametrize("script", LOOPS)
def test_a_rejected_request_stops_an_example_with_the_reason(script: str, tmp_path: Path, model: Any) -> None:
    done = run(script, tmp_path, **{name: f"{url}/nowhere" for name, url in served(model).items()})
    assert done.code == 1
    assert "400" in done.err
    assert "no such path" in done.err


CALL = {"type": "tool_use", "id": "a", "name": "list_files", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "README.md"}
MADE = {"id": "a", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
USER = {"role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "I begin."}],
        [{"role": "user", "content": " "}],
        [{"role": "user", "content": []}],
        [USER, {"role": "assistant", "content": [CALL]}],
        [USER, {"role": "assistant", "content": [CALL]}, USER],
        [USER, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": [RESULT]}],
        [USER, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT, RESULT]}],
        [
            USER,
            {"role": "assistant", "content": [CALL]},
            {"role": "user", "content": [{"type": "text", "text": "b"}, RESULT]},
        ],
        [USER, *({"role": role, "content": [part]} for role, part in [("assistant", CALL), ("user", RESULT)] * 2)],
        [USER, {"role": "system", "content": "Be brief."}],
        [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5}],
    ],
)
def test_the_model_rejects_the_same_requests_as_anthropic(messages: list[Any]) -> None:
    with pytest.raises(fake_model.RejectedRequest):
        fake_model.anthropic_steps({"model": "m", "max_tokens": 9, "messages": messages})


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": ""}],
        [{"role": "nobody", "content": "Go on."}],
        [USER, {"role": "assistant", "content": None}],
        [USER, {"role": "assistant", "tool_calls": [MADE]}],
        [USER, {"role": "assistant", "tool_calls": [MADE]}, USER],
        [USER, {"role": "tool", "tool_call_id": "a", "content": "README.md"}],
        [USER, {"role": "assistant", "tool_calls": [MADE]}, {"role": "tool", "tool_call_id": "b", "content": "x"}],
        [
            USER,
            *([{"role": "assistant", "tool_calls": [MADE]}, {"role": "tool", "tool_call_id": "a", "content": "x"}] * 2),
        ],
    ],
)
def test_the_model_rejects_the_same_requests_as_openai(messages: list[Any]) -> None:
    with pytest.raises(fake_model.RejectedRequest):
        fake_model.chat_steps({"model": "m", "messages": messages})


def test_the_cache_serves_a_known_prefix_up_to_the_first_change() -> None:
    cache = fake_model.Cache()
    blocks = [{"text": str(number) * 4_000} for number in range(4)]
    assert cache.usage(blocks, marked=False)[0] == 0
    total = sum(cache.usage(blocks, marked=False))
    assert cache.usage(blocks, marked=False)[0] == total
    read, written, rest = cache.usage([*blocks[:2], {"text": "other" * 800}], marked=False)
    assert 2_000 <= read < 2_100
    assert (written, rest) == (sum(cache.usage([*blocks[:2], {"text": "other" * 800}], marked=False)) - read, 0)


def test_anthropic_s_cache_ends_at_a_breakpoint() -> None:
    cache = fake_model.Cache()
    mark = {"cache_control": {"type": "ephemeral"}}
    blocks = [{"text": "a" * 8_000, **mark}, {"text": "b" * 8_000}]
    read, written, rest = cache.usage(blocks, marked=True)
    assert (read, written > 2_000, rest > 2_000) == (0, True, True)
    assert cache.usage(blocks, marked=True) == (written, 0, rest)
    assert cache.usage([{"text": "a" * 8_000}], marked=True)[0] == 0
