"""The commands that read, fit and convert sessions, in a terminal and with `--json`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context, Option

from command_line import run, run_json
from thresher.cli import COMMAND_GROUPS, COMMANDS, cli
from thresher.cli.common import JSON_SCHEMA

ROOT = Path(__file__).parents[2]
COLUMNS = {"agent", "messages", "calls", "results", "unpaired", "subagents", "compactions", "tokens", "problems"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_in_its_help_and_a_section_in_the_docs(name: str) -> None:
    help_text = run(name, "--help").output
    assert f"thresher {name}" in help_text.split("Examples:")[1]
    assert f"## thresher {name}\n" in (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "summary"), COMMANDS.items())
def test_the_summary_in_the_command_list_is_the_first_line_of_the_docstring(name: str, summary: str) -> None:
    command = cli.get_command(Context(cli), name)
    assert command is not None
    assert (command.help or "").split("\n")[0] == summary
    assert len(summary) <= 55


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    command = cli.get_command(Context(cli), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, Option)]
    assert [option.name for option in options if not option.help] == []


def test_help_lists_the_commands_in_groups_with_complete_summaries() -> None:
    lines = run("--help").output.splitlines()
    for heading, commands in COMMAND_GROUPS.items():
        start = lines.index(f"{heading}:") + 1
        listed = [line.split(maxsplit=1) for line in lines[start : start + len(commands)]]
        assert listed == [[name, summary] for name, summary in commands.items()]


def test_without_a_command_an_overview_of_the_machine_is_printed(home: Path) -> None:
    value = run_json()
    assert {agent["agent"]: agent["sessions"] for agent in value["agents"]} == {"claude-code": 2, "codex": 1, "pi": 1}
    assert value["home"] == str(home / "thresher")
    assert "thresher sessions" in run().output
    assert "~/.claude/projects" in run().output


def test_without_sessions_the_overview_suggests_the_demo() -> None:
    assert "thresher demo" in run().output
    assert "thresher demo" in run("sessions").output


def test_sessions_lists_discovered_sessions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    rows = run_json("sessions", "--source", str(home / "runs"))["sessions"]
    assert sorted(row["agent"] for row in rows) == ["claude-code", "claude-code", "codex", "mini-swe-agent", "pi"]
    assert all(row.keys() >= COLUMNS for row in rows)
    assert "claude-code" in run("sessions").output


@pytest.mark.parametrize("options", [[], ["--json"], ["--problems"]])
def test_a_list_of_sessions_is_redacted(tmp_path: Path, options: list[str]) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    said = {"role": "user", "content": f"Please use {token} to deploy."}
    row = {"type": "user", "uuid": "1", "sessionId": f"s-{token}", "cwd": f"/work/{token}", "message": said}
    (tmp_path / "s.jsonl").write_text(f"{json.dumps(row)}\n{{broken {token}")
    assert token[:12] not in run("sessions", str(tmp_path), *options).output


def test_sessions_lists_the_sessions_of_a_folder_with_sub_agents_under_their_parents(home: Path) -> None:
    rows = run_json("sessions", str(home / ".claude"))["sessions"]
    assert sorted((row["subagents"], row["compactions"], row["unpaired"]) for row in rows) == [(0, 0, 1), (1, 1, 0)]
    assert run_json("sessions", "--no-discover", "--source", str(home / ".codex"))["sessions"][0]["agent"] == "codex"


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_listed(home: Path) -> None:
    shopping_list = home / "shopping.txt"
    shopping_list.write_text("milk")
    result = run("sessions", str(shopping_list), str(home / ".codex"), "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["sessions"]) == 1
    assert "shopping.txt" in result.stderr


def test_problems_are_shown_on_request(home: Path) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    file.write_bytes(file.read_bytes() + b'{"torn":')
    assert "--problems" in run("sessions", str(file)).output
    assert "torn" in run("sessions", str(file), "--problems").output


def test_show_prints_a_transcript_with_long_outputs_shortened(home: Path) -> None:
    session = next(row for row in run_json("sessions", str(home / ".claude"))["sessions"] if row["compactions"])
    output = run("show", session["id"][:8]).output
    for expected in ("you ", "model ", "▸ Edit", "✗ Bash", "more lines", "compacted", "rewound", "sub-agent"):
        assert expected in output
    assert len(run("show", session["file"], "--full").output) > len(output)


def test_show_prints_json_and_sub_agents(home: Path) -> None:
    session = next(row for row in run_json("sessions", str(home / ".claude"))["sessions"] if row["subagents"])
    value = run_json("show", session["id"])
    child = value["children"][0]["id"]
    assert run_json("show", session["id"], "--child", child)["id"] == child
    assert len(value["segments"]) == 2
    assert {part["kind"] for message in value["segments"][0] for part in message["parts"]} >= {"Thinking", "ToolCall"}


def test_terminal_codes_in_a_transcript_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"role": "user", "content": "\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\u009b5n"}]))
    output = run("show", str(path)).output
    assert "\x1b" not in output
    assert "\x9b" not in output
    assert "[bold]red[/bold]" in output


@pytest.mark.parametrize("command", ["show", "fit", "check", "files"])
def test_an_unknown_session_a_missing_file_and_a_folder_are_different_errors(command: str, tmp_path: Path) -> None:
    (tmp_path / "session.jsonl").write_text("{}")
    expected = {
        "nothing-like-it": "no session id starts with `nothing-like-it`",
        "sesion.jsonl": "the file `sesion.jsonl` does not exist.",
        str(tmp_path / "sesion.jsonl"): "does not exist. Did you mean `session.jsonl`?",
        str(tmp_path / "session"): "does not exist. Did you mean `session.jsonl`?",
        str(tmp_path / "no" / "session.jsonl"): "does not exist, and neither does its folder",
        str(tmp_path): "is a folder; `thresher sessions",
    }
    for reference, message in expected.items():
        result = run(command, reference, "--no-discover")
        assert result.exit_code == 1
        assert message in str(result.exception)


def test_a_wrong_option_suggests_the_right_one(tmp_path: Path) -> None:
    assert "Did you mean '--policy'?" in run("show", "--polciy", "smart", str(tmp_path)).stderr
    assert "Did you mean `anthropic`?" in run("fit", "--to", "anthropc", str(tmp_path)).stderr
    assert "Did you mean `claude-code`?" in run("install", "cluade-code").stderr
    assert "'x' is not a valid whole number." in run("sessions", "--limit", "x").stderr
    assert "0 is not in the range 1 or more." in run("sessions", "--limit", "0").stderr


def test_one_of_many_sessions_in_a_file_is_selected_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    rows = [
        {"messages": [{"role": "system", "content": "Hm."}, {"role": "user", "content": f"{n}"}]} for n in range(1, 13)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"--source {path}" in str(run("show", str(path)).exception)
    assert run_json("show", "many-1", "--source", str(path), "--no-discover")["id"] == "many-1"


def test_fit_with_only_a_budget_changes_nothing_that_fits(home: Path) -> None:
    file = a_session(home)
    assert run_json("fit", file)["edits"]
    assert run_json("fit", file, "--budget", "1M")["edits"] == []
    assert run_json("fit", file, "--budget", "1M", "--policy", "smart")["edits"]
    assert "█" * 40 in run("fit", file, "--budget", "1M").output


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_convert_writes_every_dialect_and_reports_losses(home: Path, target: str) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    before = file.read_bytes()
    value = run_json("convert", str(file), "--to", target, "--whole")
    assert value["dialect"] == target
    assert value["value"]
    if target != "openai-responses":
        assert any("thinking" in loss for loss in value["losses"])
    out = home / "out.json"
    assert run("convert", str(file), "--to", target, "-o", str(out)).exit_code == 0
    assert json.loads(out.read_text(encoding="utf-8"))
    assert file.read_bytes() == before


def test_convert_does_not_overwrite_its_input(home: Path) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    before = file.read_bytes()
    assert run("convert", str(file), "--to", "gemini", "-o", str(file)).exit_code == 1
    assert file.read_bytes() == before


def test_wrong_use_exits_with_2() -> None:
    assert run("convert", "x", "--to", "morse").exit_code == 2
    assert run("sessions", "/no/such/place").exit_code == 2


def test_the_demo_writes_sessions_to_the_data_folder_and_lists_them(home: Path) -> None:
    value = run_json("demo")
    assert value["folder"] == str(home / "thresher" / "demo")
    assert {row["agent"] for row in value["sessions"]} == {"claude-code", "codex", "pi", "mini-swe-agent"}
    output = run("demo", "--to", str(home / "elsewhere")).output
    assert " show " in output
    assert (home / "elsewhere" / ".codex").is_dir()


@pytest.mark.parametrize("command", [(), ("sessions",), ("sync",), ("files",), ("check",), ("fit",), ("show",)])
def test_every_json_output_has_a_schema_version(home: Path, command: tuple[str, ...]) -> None:
    session = () if command in [(), ("sessions",), ("sync",)] else (a_session(home),)
    assert json.loads(run(*command, *session, "--json").stdout)["schema"] == JSON_SCHEMA


def a_session(home: Path) -> str:
    return str(
        next(row["file"] for row in run_json("sessions", str(home / ".claude"))["sessions"] if row["compactions"])
    )


def test_fit_previews_its_edits_and_writes_nothing(home: Path) -> None:
    file = a_session(home)
    before = Path(file).read_bytes()
    value = run_json("fit", file, "--policy", "smart")
    assert value["tokens_after"] < value["tokens_before"]
    assert value["edits"][0].keys() >= {"kind", "target", "policy", "reason", "tokens_saved"}
    assert not (home / "thresher" / "store.sqlite3").exists()
    output = run("fit", file, "--explain").output
    assert "file read" in output
    assert f"{value['tokens_before']:,} → {value['tokens_after']:,}" in output
    assert Path(file).read_bytes() == before


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_fit_writes_every_dialect_and_the_result_is_legal(home: Path, target: str) -> None:
    out = home / "out.json"
    assert run("fit", a_session(home), "-b", "4k", "--to", target, "-o", str(out)).exit_code == 0
    result = run("check", str(out), "--dialect", target)
    assert (result.exit_code, result.output.strip()) == (0, f"legal for {target}")


def test_show_prints_the_edit_that_a_policy_makes_to_a_part(home: Path) -> None:
    output = run("show", a_session(home), "--policy", "smart").output
    assert "⤷ replaced: file read [tools], saves" in output


def test_fit_writes_text_for_a_person(home: Path) -> None:
    result = run("fit", a_session(home), "--to", "text")
    assert result.stdout.startswith("## User")
    assert "▸ Bash" in result.stdout


def test_fit_does_not_overwrite_its_input(home: Path) -> None:
    file = a_session(home)
    result = run("fit", file, "-o", file)
    assert result.exit_code == 1
    assert "choose another output file" in str(result.exception)


def test_a_budget_that_cannot_be_met_is_a_clear_error(home: Path) -> None:
    result = run("fit", a_session(home), "--budget", "3")
    assert result.exit_code == 1
    assert "Its smallest size is" in str(result.exception)


def test_an_output_that_cannot_be_written_is_a_clear_error(home: Path) -> None:
    for command in (["fit", a_session(home)], ["convert", a_session(home), "--to", "gemini"]):
        result = run(*command, "-o", str(home / "nowhere" / "x.json"))
        assert result.exit_code == 1
        assert "cannot write" in str(result.exception)


@pytest.mark.parametrize("wrong", [["-p", "modest"], ["-b", "much"], ["-m", "no-such-model"]])
def test_an_invalid_option_value_exits_with_2(home: Path, wrong: list[str]) -> None:
    command = [sys.executable, "-m", "thresher.cli", "fit", a_session(home)]
    process = subprocess.run([*command, *wrong], capture_output=True, check=False)
    assert (process.returncode, process.stdout) == (2, b"")
    assert process.stderr.startswith(b"thresher: ")


def test_fit_reads_options_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_EXCLUDE_TOOLS", "Bash")
    edits = run_json("fit", a_session(home), "--policy", "none")["edits"]
    assert {edit["policy"] for edit in edits} == {"tools"}


def test_check_exits_with_1_and_locates_each_violation(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    path.write_text(json.dumps([{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]))
    result = run("check", str(path))
    assert result.exit_code == 1
    assert "message 2, part 1" in result.output
    assert f"fit {path} --policy none" in result.output
    violations = json.loads(run("check", str(path), "--json").stdout)["violations"]
    assert violations[0]["rule"] == "unanswered-call"


def test_restore_prints_removed_text_byte_for_byte(home: Path) -> None:
    value = run_json("fit", a_session(home), "--to", "anthropic")
    placeholder = re.search(r"\[thresher (t1:[0-9a-f]{16}) · Read", json.dumps(value["value"], ensure_ascii=False))
    assert placeholder is not None
    text = run("restore", placeholder[1]).stdout
    shown = json.dumps(run_json("show", a_session(home)), ensure_ascii=False)
    assert json.dumps(text, ensure_ascii=False)[1:-1] in shown
    out = home / "restored.txt"
    run("restore", placeholder[1], "-o", str(out))
    assert out.read_text(encoding="utf-8") == text
    assert "nothing is stored" in str(run("restore", "t1:0123456789abcdef").exception)
