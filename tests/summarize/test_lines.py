"""One-line descriptions of chains, and lists of a file's edits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sessions import agent, call, history, only_chain, step

from strategies import histories
from thresher.summarize import describe_chain, format_edit_list

PATCH = """*** Begin Patch
*** Update File: src/a.py
@@
 kept
-old
+new
+newer
*** Add File: src/b.py
+one
*** End Patch"""
EDIT = {"file_path": "src/a.py", "old_string": "a\nb\nc", "new_string": "a\nB\nBB\nc"}
DIFF = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\ny = 3\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "expected"),
    [
        ("Edit", EDIT, "done", "Edited src/a.py (+2 −1 lines)"),
        ("replace", {**EDIT, "instruction": "fix the parser"}, "ok", "Edited src/a.py (+2 −1 lines): fix the parser"),
        ("edit", {"path": "a", "edits": [{"oldText": "x", "newText": "y"}] * 2}, "ok", "Edited a (+2 −2 lines)"),
        ("replace_in_file", {"path": "a", "diff": DIFF}, "ok", "Edited a (+2 −1 lines)"),
        ("apply_patch", PATCH, "ok", "Edited src/a.py and 1 other file (+2 −1 lines)"),
        ("apply_patch", {"input": PATCH}, "ok", "Edited src/a.py and 1 other file (+2 −1 lines)"),
        ("shell", {"command": ["apply_patch", PATCH]}, "ok", "Edited src/a.py and 1 other file (+2 −1 lines)"),
        ("Write", {"file_path": "a", "content": "1\n2\n"}, "ok", "Wrote a (2 lines)"),
        ("delete_file", {"path": "a"}, "ok", "Deleted a"),
        ("Read", {"file_path": "src/a.py"}, "1\n2\n3\n", "Read src/a.py (3 lines)"),
        ("bash", {"command": "sed -n '1,9p' src/a.py"}, "1\n2", "Read src/a.py (2 lines)"),
        ("Grep", {"pattern": "def x", "path": "src"}, "a\nb", 'Searched for "def x" in src (2 lines)'),
        ("list_directory", {"path": "src"}, "a\nb", "Listed src (2 lines)"),
        ("Bash", {"command": "pytest -q"}, "1 passed", "Ran: pytest -q → ok"),
        ("Bash", {"command": "# all\ncd /a/b && make\nmake test"}, "", "Ran: make → ok"),
        ("exec_command", {"cmd": "git push"}, "Process exited with code 0\nOutput:\nx", "Ran: git push → ok"),
        ("WebSearch", {"query": "sqlite wal"}, "…", "Searched the web: sqlite wal"),
        ("web_search_call", {"action": {"type": "search", "query": "wal"}}, "…", "Searched the web: wal"),
        ("WebFetch", {"url": "https://a.example/b", "prompt": "x"}, "…", "Fetched https://a.example/b"),
        ("Task", {"description": "look around", "prompt": "…"}, "…", 'Asked sub-agent "look around"'),
        ("AskUserQuestion", {"questions": [{"question": "Which?"}]}, "first", 'Asked the user: "Which?" → first'),
        ("update_plan", {"explanation": "split it", "plan": []}, "ok", "Updated the plan: split it"),
        ("mcp__db__query", {"sql": "select 1"}, "1", 'Called mcp__db__query: "sql": "select 1"'),
    ],
)  # fmt: skip
def test_a_chain_in_one_line(name: str, arguments: Any, answer: str, expected: str) -> None:
    assert describe_chain(*only_chain(name, arguments, answer)) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "expected"),
    [
        ("Bash", {"command": "make"}, "Exit code 2\nno rule", "Ran: make → failed (exit 2)"),
        ("Bash", {"command": "make"}, "timed out", "Ran: make → failed: timed out"),
        ("Bash", {"command": "make"}, "", "Ran: make → failed"),
        ("Read", {"path": "a"}, "No such file", "Read a → failed: No such file"),
        ("Edit", EDIT, "<tool_use_error>Read.</tool_use_error>", "Edited src/a.py (+2 −1 lines) → failed: Read."),
    ],
)  # fmt: skip
def test_a_failure_is_stated(name: str, arguments: Any, answer: str, expected: str) -> None:
    assert describe_chain(*only_chain(name, arguments, answer, failed=True)) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "Exit code: 3\nWall time: 0.1 seconds\nOutput:\nx",
        "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nx",
        '{"output": "x", "metadata": {"exit_code": 3}}',
        "<returncode>3</returncode>\n<output>\nx</output>",
        "x\n\nCommand exited with code 3",
        "x\n[The command completed with exit code 3.]",
    ],
)
def test_exit_codes_of_all_agents_are_parsed(answer: str) -> None:
    assert describe_chain(*only_chain("bash", {"command": "make"}, answer)) == "Ran: make → failed (exit 3)"
    assert describe_chain(*only_chain("bash", {"command": "cat a"}, answer.replace("3", "0", 1))).startswith(
        "Read a (1 line)"
    )


def test_exit_codes_inside_the_output_are_ignored() -> None:
    said = "the last run: Process exited with code 3"
    assert describe_chain(*only_chain("bash", {"command": "make"}, said)) == "Ran: make → ok"


def test_a_call_without_a_result_has_no_ending() -> None:
    assert describe_chain(*only_chain("Bash", {"command": "make"}, None)) == "Ran: make"


def test_a_long_path_stays_complete_and_its_intent_is_clipped() -> None:
    path = "/".join(["folder"] * 18) + "/a.py"
    line = describe_chain(*only_chain("replace", {"file_path": path, "instruction": "why " * 50}, "ok"))
    assert line.startswith(f"Edited {path}: why")
    assert line.endswith("…")
    assert len(line) <= 160


def test_a_path_over_the_limit_keeps_its_end() -> None:
    line = describe_chain(*only_chain("Read", {"path": "folder/" * 50 + "a.py"}, "x", failed=True))
    assert line.startswith("Read …")
    assert line.endswith("folder/a.py → failed: x")
    assert len(line) == 160


@given(histories)
def test_one_line_is_one_short_line(of: Any) -> None:
    for chain in of.chains:
        line = describe_chain(of, chain)
        assert 0 < len(line) <= 160
        assert line.splitlines() == [line]
        assert line == describe_chain(of, chain)


# --- edits of one file ---------------------------------------------------------------------------------------


def edit(id: str, old: str, new: str, **more: str) -> list[Any]:
    return step(id, "replace", {"file_path": "config.py", "old_string": old, "new_string": new, **more}, "ok")


def test_the_edits_of_a_file_as_one_text() -> None:
    told = history(
        agent("hm"),
        edit("1", "a = 1", "a = 2", instruction="raise the limit"),
        agent("hm"),
        edit("2", "x\n", "x\n\n# why\nb = 3\n"),
        step("3", "Edit", {"file_path": "config.py", "old_string": "y", "new_string": "z"}, "no match", failed=True),
        edit("4", "gone", ""),
    )
    assert format_edit_list(told, told.chains) == (
        "[Edits to config.py: 3 changes, 1 failed, turns 1-4: raise the limit (+1 −1); `# why` (+3 −0); `gone` (+0 −1)]"
    )


def test_too_many_edits_keep_the_latest() -> None:
    told = history(*(edit(str(n), f"a{n}", f"b{n}") for n in range(12)))
    assert format_edit_list(told, told.chains, limit=120) == (
        "[Edits to config.py: 12 changes, turns 1-12: … 8 earlier; "
        "`b8` (+1 −1); `b9` (+1 −1); `b10` (+1 −1); `b11` (+1 −1)]"
    )


def test_no_edits_give_an_empty_text() -> None:
    assert format_edit_list(history(agent("hm")), []) == ""


@given(histories, st.integers(0, 200))
def test_an_edit_list_stays_within_its_limit(of: Any, limit: int) -> None:
    assert len(format_edit_list(of, of.chains, limit=limit)) <= limit


def test_an_invalid_call_is_described() -> None:
    told = history(agent(call("1", "Edit", '{"file_path": "a')))
    assert describe_chain(told, told.chains[0]) == "Edited a file"
