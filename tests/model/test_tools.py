"""The meaning of tool calls of different agents."""

import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from thresher.model.parts import ToolCall
from thresher.model.tool_calls import ToolCallDetails, describe_tool_call, list_touched_files
from thresher.model.tool_catalog import TOOL_GROUPS, TOOLS_BY_NAME

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def use(name: str, arguments: Any = "{}") -> ToolCallDetails:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return describe_tool_call(ToolCall(id="call", name=name, arguments=text))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Read", {"file_path": "/a.py", "limit": 5}, ToolCallDetails("file_read", "read", "/a.py", "", "")),
        ("read", {"filePath": "/a.py"}, ToolCallDetails("file_read", "read", "/a.py", "", "")),
        (
            "read_files",
            {"files": [{"path": "/a"}, {"path": "/b"}]},
            ToolCallDetails("file_read", "read", "/a", "", ""),
        ),
        ("read_many_files", {"paths": ["a.py", "b.py"]}, ToolCallDetails("file_read", "read", "a.py", "", "")),
        ("Edit", {"file_path": "/a", "old_string": "x"}, ToolCallDetails("file_edit", "edit", "/a", "", "")),
        ("edit", {"path": "a", "oldText": "x"}, ToolCallDetails("file_edit", "edit", "a", "", "")),
        ("write_to_file", {"path": "a", "content": "x"}, ToolCallDetails("file_edit", "write", "a", "", "")),
        ("delete_file", {"target_file": "a"}, ToolCallDetails("file_edit", "delete", "a", "", "")),
        ("replace", {"file_path": "a", "instruction": "Fix"}, ToolCallDetails("file_edit", "edit", "a", "", "Fix")),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, ToolCallDetails("file_edit", "edit", "n.ipynb", "", "")),
        ("Grep", {"pattern": "x", "path": "src"}, ToolCallDetails("file_read", "search", "src", "", "")),
        ("list_directory", {"dir_path": "src"}, ToolCallDetails("file_read", "list", "src", "", "")),
        ("WebFetch", {"url": "u", "prompt": "Find the date"}, ToolCallDetails("web", "", "", "", "Find the date")),
        ("Agent", {"description": "Look", "prompt": "…"}, ToolCallDetails("subagent", "", "", "", "Look")),
        ("spawn_agent", {"message": "Review it.\nAll of it."}, ToolCallDetails("subagent", "", "", "", "Review it.")),
        ("TaskOutput", {"task_id": "1"}, ToolCallDetails("execution", "", "", "", "")),
        ("update_plan", {"explanation": "Next", "plan": []}, ToolCallDetails("plan", "", "", "", "Next")),
        ("ask_user", {"question": "Which?"}, ToolCallDetails("question", "", "", "", "Which?")),
        ("LSP", {"operation": "hover", "filePath": "/a.go"}, ToolCallDetails("analysis", "", "/a.go", "", "")),
    ],
)
def test_a_call_names_its_target_in_every_agent(
    name: str, arguments: dict[str, Any], expected: ToolCallDetails
) -> None:
    assert use(name, arguments) == expected


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("mcp__linear-server__create_issue", "mcp"),
        ("mcp_weather-server_get_weather", "mcp"),
        ("weather_extension__get_weather", "mcp"),
        ("github-mcp-server-list_issues", "mcp"),
        ("_create_pull_request", "mcp"),
        ("mcp__ide__executeCode", "execution"),
        ("developer__shell", "execution"),
        ("cancel_reservation", "other"),
        ("", "other"),
    ],
)
def test_a_name_alone_determines_the_category(name: str, category: str) -> None:
    assert use(name).category == category


@pytest.mark.parametrize(
    ("verb", "category", "operation"),
    [
        ("view", "file_read", "read"),
        ("create", "file_edit", "write"),
        ("write", "file_edit", "write"),
        ("str_replace", "file_edit", "edit"),
        ("insert", "file_edit", "edit"),
        ("something new", "file_edit", "edit"),
    ],
)
@pytest.mark.parametrize("name", ["str_replace_editor", "developer__text_editor"])
def test_the_subcommand_of_an_all_in_one_editor_determines_the_category(
    name: str, verb: str, category: str, operation: str
) -> None:
    assert use(name, {"command": verb, "path": "/a"}) == (category, operation, "/a", "", "")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": ["bash", "-lc", "ls -R"]}, "ls -R"),
        ({"command": ["/bin/zsh", "-l", "-c", "ls"]}, "ls"),
        ({"command": ["powershell.exe", "-NoProfile", "-Command", "dir"]}, "dir"),
        ({"command": ["echo", "two words"]}, "echo 'two words'"),
        ({"cmd": "ls", "workdir": "/x"}, "ls"),
        ({"commands": ["make", "make test"]}, "make\nmake test"),
        ({"action": {"type": "exec", "command": ["bash", "-lc", "ls"]}}, "ls"),
        ("find . -exec touch {}", "find . -exec touch {}"),
        ({"command": 5}, ""),
    ],
)
def test_a_command_is_found_in_every_form(arguments: Any, command: str) -> None:
    assert use("shell", arguments)[:4] == ("execution", "", "", command)


@pytest.mark.parametrize(
    "command",
    ["git status", "gh pr view 3", "cd x && git add .", "cd '/a b'; GIT_PAGER=cat git log", "  git"],
)
def test_git_belongs_to_the_project(command: str) -> None:
    assert use("Bash", {"command": command, "description": "d"}) == ("project", "", "", command, "d")


@pytest.mark.parametrize("command", ["gitleaks scan", "echo git", "npm test && git commit", "ghost"])
def test_names_that_resemble_git_do_not_match(command: str) -> None:
    assert use("Bash", {"command": command}).category == "execution"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("cat f.py", "f.py"),
        ("cat -n f.py 2>/dev/null", "f.py"),
        ("sed -n 1,20p f.py", "f.py"),
        ("sed -n '10,$p' \"a b.py\"", "a b.py"),
        ("head -n 20 f.py", "f.py"),
        ("tail -50 f.py", "f.py"),
        ("nl -ba src/f.py | sed -n '5,9p'", "src/f.py"),
        ("cat f.py | head -5", "f.py"),
        ("cd /testbed && cat f.py", "/testbed/f.py"),
        ("cd /testbed && cat /etc/hosts", "/etc/hosts"),
    ],
)
def test_a_command_that_only_shows_one_file_reads_it(command: str, path: str) -> None:
    assert use("bash", {"command": command}) == ("execution", "read", path, command, "")


def test_a_relative_path_resolves_against_the_working_directory_of_the_call() -> None:
    assert use("exec_command", {"cmd": "cat a.ts", "workdir": "/repo"}).path == "/repo/a.ts"


@pytest.mark.parametrize(
    "command",
    [
        "cat a b",
        "cat *.py",
        "cat f | grep x",
        "cat > f <<'EOF'\nx\nEOF",
        "cat f; rm f",
        "cat $(ls)",
        "sed -i s/a/b/ f",
        "sed s/a/b/ f",
        "sed -n '1,5w out' f",
        "head",
        "cat 'unclosed",
    ],
)
def test_a_command_that_does_more_reads_no_file(command: str) -> None:
    assert use("bash", {"command": command})[:3] == ("execution", "", "")


PATCH = "*** Begin Patch\n*** {} File: src/a b.py\n@@\n-x\n+y\n*** Update File: other\n*** End Patch"


@pytest.mark.parametrize(("verb", "operation"), [("Update", "edit"), ("Add", "write"), ("Delete", "delete")])
@pytest.mark.parametrize("key", ["", "input", "patchText"])
def test_a_patch_names_its_first_file(verb: str, operation: str, key: str) -> None:
    patch = PATCH.format(verb)
    assert use("apply_patch", {key: patch} if key else patch) == (
        "file_edit",
        operation,
        "src/a b.py",
        "",
        "",
    )


def test_a_patch_that_renames_a_file_moves_it() -> None:
    assert use("apply_patch", "*** Update File: a\n*** Move to: b\n@@").operation == "move"


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": f"cd x && apply_patch <<'EOF'\n{PATCH.format('Update')}\nEOF"},
        {"command": ["apply_patch", PATCH.format("Update")]},
    ],
)
def test_a_patch_run_through_a_shell_is_an_edit(arguments: dict[str, Any]) -> None:
    assert use("shell", arguments)[:2] == ("file_edit", "edit")


MANY = (
    "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@\n-x\n+*** Add File: no.py\n"
    "*** Add File: c d.py\r\n+y\n*** Delete File: e.py\n*** Update File: a.py\n*** End Patch"
)
NAMED = ("a.py", "b.py", "c d.py", "e.py")


@pytest.mark.parametrize(
    ("name", "arguments", "files"),
    [
        ("apply_patch", MANY, NAMED),
        ("apply_patch", {"input": MANY}, NAMED),
        ("shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{MANY}\nEOF"]}, NAMED),
        ("apply_patch", "nothing", ()),
        ("Write", {"file_path": "notes.md", "content": MANY}, ("notes.md",)),
        ("Bash", {"command": f"cat > x <<'EOF'\n{MANY}\nEOF"}, ()),
        ("Bash", {"command": "cat src/a.py"}, ("src/a.py",)),
    ],
)
def test_all_files_of_a_patch_are_touched(name: str, arguments: Any, files: tuple[str, ...]) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert list_touched_files(ToolCall("call", name, text)) == files


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"text"',
        '{"command": ["bash", 1, null]}',
        "[" * 5000,
        '{"x": "\\ud800"}',
        "\ud800",
    ],
)
@pytest.mark.parametrize("name", ["Bash", "Read", "apply_patch", "str_replace_editor", "Task", "nothing"])
def test_broken_arguments_never_raise(name: str, arguments: str) -> None:
    assert use(name, arguments).category in ("execution", "file_read", "file_edit", "subagent", "other")


def test_unhashable_and_mistyped_values_count_as_missing() -> None:
    assert use("str_replace_editor", {"command": {"a": 1}, "path": 3}) == ("file_edit", "edit", "", "", "")


def test_no_tool_is_in_two_rows() -> None:
    names = [name for _, row in TOOL_GROUPS for name in row.split()]
    assert sorted(names) == sorted(set(names))
    assert set(TOOLS_BY_NAME) == set(names)
    assert all(name == name.lower() for name in names)


def _records(folder: str) -> Iterator[Any]:
    for file in sorted((DATA / folder).glob("*.json*")):
        content = file.read_bytes()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode(errors="replace")
        for chunk in [text] if ".jsonl" not in file.name else text.split("\n"):
            with suppress(ValueError):  # real files contain incomplete lines
                yield json.loads(chunk)


def _calls(value: Any) -> Iterator[ToolCall]:
    """Yield every object in a record that looks like a call."""
    if isinstance(value, list):
        for item in value:
            yield from _calls(item)
    if not isinstance(value, dict):
        return
    arguments = value.get("input", value.get("arguments"))
    name = value.get("name")
    if isinstance(name, str) and isinstance(arguments, str | dict):
        yield ToolCall(id="", name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))
    for item in value.values():
        yield from _calls(item)


@pytest.mark.skipif(not DATA.is_dir(), reason="the real transcripts are not on this machine")
@pytest.mark.parametrize("folder", ["claude_code", "codex", "pi", "mini_swe"])
def test_nearly_all_calls_of_real_transcripts_are_known(folder: str) -> None:
    calls = [call for record in _records(folder) for call in _calls(record)]
    known = sum(describe_tool_call(call).category != "other" for call in calls)
    assert len(calls) > 500
    assert known / len(calls) >= 0.99
