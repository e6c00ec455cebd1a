"""Failures without an error flag: exit codes, error objects and error messages, in every dialect."""

import json
from typing import Any

import pytest
from tool_chains import Did, body, closed, results, told

import thresher as th
from thresher.policies.base import is_failed_call
from thresher.policies.mask import MaskOldResults
from thresher.policies.superseded import RemoveSuperseded
from thresher.policies.tools import EditToolCalls

EDIT = ("edit_file", {"path": "a.py", "old_str": "a", "new_str": "b"})
BASH, READ, OWN = ("Bash", {"command": "make"}), ("Read", {"file_path": "a.json"}), ("get_weather", {"city": "Oslo"})
LONG = "a line of output\n" * 100
FAILED: list[tuple[tuple[str, dict[str, str]], str]] = [
    (BASH, "Exit code 2\nmake: *** no rule"),
    (BASH, f"Exit code: 1\nWall time: 0.2 seconds\nOutput:\n{LONG}"),
    (BASH, f"Chunk ID: 1a2b\nWall time: 0.05 seconds\nProcess exited with code 127\nOutput:\n{LONG}"),
    (BASH, f"{LONG}[The command completed with exit code 1.]\n[Current working directory: /work]"),
    (BASH, f"{LONG}<shellId: 6 completed with exit code 1>"),
    (BASH, f"exitcode: 1 (execution failed)\nCode output: {LONG}"),
    (BASH, json.dumps({"output": LONG, "metadata": {"exit_code": 1, "duration_seconds": 0.1}})),
    (BASH, json.dumps({"stdout": LONG, "stderr": "", "exit_code": 3})),
    (BASH, "bash: nvm: command not found"),
    (BASH, "fatal: not a git repository"),
    (BASH, "ls: cannot access 'runtests.py': No such file or directory\n(Open file: /work/a.py)\nbash-$"),
    (BASH, "cat: /etc/shadow: Permission denied"),
    (BASH, "failed in sandbox None with execution error: command timed out"),
    (OWN, '{"error": "unknown city"}'),
    (OWN, json.dumps({"error": {"code": 404, "message": LONG}})),
    (OWN, '{"status": "error", "error_message": "no such city"}'),
    (OWN, '{"status": "failed", "message": "offline"}'),
    (OWN, "MCP error -32602: Input validation error: Invalid arguments for tool get_weather"),
    (OWN, "Invalid `city` parameter: oslo. The name must be capitalized."),
    (OWN, "Observation:\nError fetching the page: 403 Client Error"),
    (OWN, '{"success": false, "reason": "offline"}'),
    (OWN, '{"isError": true, "content": []}'),
    (OWN, '{"result": {"error": "unknown city"}}'),
    (OWN, "Error: 429 Too Many Requests"),
    (OWN, "ValueError: unknown city"),
    (OWN, f"Traceback (most recent call last):\n{LONG}"),
    (OWN, "Tool execution failed: timeout"),
    (READ, "<tool_use_error>File does not exist.</tool_use_error>"),
    (READ, '{"error": "ENOENT", "path": "a.json"}'),
    (READ, "ENOENT: no such file or directory"),
    (READ, "File does not exist."),
    (EDIT, "String to replace not found in file."),
    (EDIT, "apply_patch verification failed: Failed to find expected lines in a.py"),
    (EDIT, "Ran into [Errno 2] No such file or directory: 'a.py' while trying to write to a.py"),
]
SUCCEEDED: list[tuple[tuple[str, dict[str, str]], str]] = [
    (BASH, "Exit code: 0\nOutput:\nError: 0 of them"),
    (BASH, json.dumps({"output": "Error: none", "metadata": {"exit_code": 0}})),
    (BASH, f"3 passed\n{LONG}"),
    (BASH, ""),
    (BASH, f"{LONG}<shellId: 6 completed with exit code 0>"),
    (BASH, "exitcode: 0 (execution succeeded)\nCode output: Permission denied was logged"),
    (BASH, "ls: lists files; it says No such file or directory for a missing one."),
    (OWN, '{"error": null, "temperature": 3}'),
    (OWN, '{"errors": [], "ok": true}'),
    (OWN, '{"success": true, "exit_code": 0, "status": "done"}'),
    (OWN, f"Error rates by city:\n{LONG}"),
    (OWN, '{"report": {"error": "shown as data"}, "of": 3}'),
    (OWN, "The command said: Error: 3"),
    (READ, f"Traceback (most recent call last):\n{LONG}"),
    (READ, json.dumps({"error": LONG, "notes": "a fixture"})),
]
IDS = [f"{name}:{text[:24]!r}" for (name, _), text in FAILED]


def anthropic(name: str, arguments: dict[str, str], text: str) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": name, "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": text}]},
    ]


def openai_chat(name: str, arguments: dict[str, str], text: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": text},
    ]


def openai_responses(name: str, arguments: dict[str, str], text: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments)},
        {"type": "function_call_output", "call_id": "c", "output": text},
    ]


def gemini(name: str, arguments: dict[str, str], text: str) -> list[dict[str, Any]]:
    try:
        response = json.loads(text)
    except ValueError:
        response = {"result": text}
    return [
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": name, "args": arguments}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": name, "response": response}}]},
    ]


DIALECTS = {"anthropic": anthropic, "openai-chat": openai_chat, "openai-responses": openai_responses, "gemini": gemini}


def say(dialect: str, role: str, text: str) -> dict[str, Any]:
    if dialect == "gemini":
        return {"role": role.replace("assistant", "model"), "parts": [{"text": text}]}
    return {"role": role, "content": text}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("call", "text"), FAILED, ids=IDS)
def test_a_failed_call_is_removed_in_every_dialect(dialect: str, call: tuple[str, dict[str, str]], text: str) -> None:
    first, *last = (say(dialect, *spoken) for spoken in (("user", "go"), ("assistant", "No."), ("user", "Then?")))
    messages = [first, *DIALECTS[dialect](*call, text), *last]
    fitted = th.fit(messages, policy="none", exclude_failed_tools=True, dialect=dialect)
    assert fitted == [first, *last]


@pytest.mark.parametrize(("call", "text"), FAILED, ids=IDS)
def test_a_failure_without_a_flag_is_recognized(call: tuple[str, dict[str, str]], text: str) -> None:
    assert is_failed_call(told(Did(*call, text)).links[0])


@pytest.mark.parametrize(("call", "text"), SUCCEEDED, ids=[f"{name}:{text[:24]!r}" for (name, _), text in SUCCEEDED])
def test_a_success_that_mentions_an_error_is_no_failure(call: tuple[str, dict[str, str]], text: str) -> None:
    assert not is_failed_call(told(Did(*call, text)).links[0])


@pytest.mark.parametrize("limit", [300, 500])
@pytest.mark.parametrize(("call", "text"), FAILED, ids=IDS)
def test_a_truncated_failure_is_still_recognized(call: tuple[str, dict[str, str]], text: str, limit: int) -> None:
    policy = EditToolCalls(failed=True, action="truncate", limit=limit)
    _, smaller = closed(told(Did(*call, text)), policy)
    assert is_failed_call(smaller.links[0])
    assert len(results(smaller)[0]) <= limit


@pytest.mark.parametrize(("call", "text"), FAILED, ids=IDS)
def test_the_placeholder_of_a_failure_says_so(call: tuple[str, dict[str, str]], text: str) -> None:
    plan, smaller = closed(told(Did(*call, text)), MaskOldResults(keep=0))
    assert is_failed_call(smaller.links[0])
    assert results(smaller)[0].count(" · failed · ") == len(plan.edits)


def test_a_failure_is_removed_when_a_later_call_succeeded() -> None:
    history = told(Did(*BASH, "Exit code 2\nmake: *** no rule"), Did(*BASH, f"Exit code 0\n{body('built')}"))
    _, smaller = closed(history, RemoveSuperseded())
    assert [text[:11] for text in results(smaller)] == ["Exit code 0"]
