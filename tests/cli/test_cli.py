"""The commands, as a person and as a program would use them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.cli import COMMAND_MODULES, cli
from thresher.cli.common import JSON_SCHEMA
from thresher.errors import ThresherError
from thresher.samples import write_samples

ROOT = Path(__file__).parents[2]
COLUMNS = {"agent", "messages", "calls", "results", "unpaired", "subagents", "compactions", "tokens", "problems"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, with the sample sessions on it."""
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "PI_CODING_AGENT_DIR",
        "XDG_CONFIG_HOME",
        "MSWEA_GLOBAL_CONFIG_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher"))
    write_samples(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def data(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize("verb", COMMAND_MODULES)
def test_every_command_has_help_with_an_example_and_a_docs_entry(verb: str) -> None:
    help_text = run(verb, "--help").output
    assert f"thresher {verb}" in help_text.split("Examples:")[1]
    assert f"## thresher {verb}\n" in (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def test_without_a_verb_it_says_what_is_on_the_machine(home: Path) -> None:
    value = data()
    assert {agent["agent"]: agent["sessions"] for agent in value["agents"]} == {"claude-code": 2, "codex": 1, "pi": 1}
    assert value["home"] == str(home / "thresher")
    assert "thresher sessions" in run().output


def test_an_empty_machine_is_told_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert "thresher demo" in run().output
    assert "thresher demo" in run("sessions").output


def test_sessions_lists_what_is_found(home: Path) -> None:
    rows = data("sessions", "--source", str(home / "runs"))["sessions"]
    assert sorted(row["agent"] for row in rows) == ["claude-code", "claude-code", "codex", "mini-swe-agent", "pi"]
    assert all(row.keys() >= COLUMNS for row in rows)
    assert "claude-code" in run("sessions").output


def test_sessions_reads_named_places_and_lists_a_sub_agent_with_its_parent(home: Path) -> None:
    rows = data("sessions", str(home / ".claude"))["sessions"]
    assert sorted((row["subagents"], row["compactions"], row["unpaired"]) for row in rows) == [(0, 0, 1), (1, 1, 0)]
    assert data("sessions", "--no-discover", "--source", str(home / ".codex"))["sessions"][0]["agent"] == "codex"


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_listed(home: Path) -> None:
    strange = home / "shopping.txt"
    strange.write_text("milk")
    result = run("sessions", str(strange), str(home / ".codex"), "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["sessions"]) == 1
    assert "shopping.txt" in result.stderr


def test_problems_are_shown_on_request(home: Path) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    file.write_bytes(file.read_bytes() + b'{"torn":')
    assert "--problems" in run("sessions", str(file)).output
    assert "torn" in run("sessions", str(file), "--problems").output


def test_show_reads_well_and_folds_long_outputs(home: Path) -> None:
    session = next(row for row in data("sessions", str(home / ".claude"))["sessions"] if row["compactions"])
    output = run("show", session["id"][:8]).output
    for expected in ("you ", "model ", "▸ Edit", "✗ Bash", "more lines", "compacted", "taken back", "sub-agent"):
        assert expected in output
    assert len(run("show", session["file"], "--full").output) > len(output)


def test_show_gives_a_sub_agent_and_data(home: Path) -> None:
    session = next(row for row in data("sessions", str(home / ".claude"))["sessions"] if row["subagents"])
    value = data("show", session["id"])
    child = value["children"][0]["id"]
    assert data("show", session["id"], "--child", child)["id"] == child
    assert len(value["segments"]) == 2
    assert {part["kind"] for message in value["segments"][0] for part in message["parts"]} >= {"Thinking", "ToolCall"}


def test_terminal_codes_in_a_transcript_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"role": "user", "content": "\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\u009b5n"}]))
    output = run("show", str(path)).output
    assert "\x1b" not in output
    assert "\x9b" not in output
    assert "[bold]red[/bold]" in output


def test_an_unknown_session_is_a_clear_error(home: Path) -> None:
    result = run("show", "nothing-like-it", "--source", str(home))
    assert result.exit_code == 1
    assert "thresher sessions" in str(result.exception)


def test_one_of_many_sessions_in_a_file_is_named_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    rows = [
        {"messages": [{"role": "system", "content": "Hm."}, {"role": "user", "content": f"{n}"}]} for n in range(1, 13)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"--source {path}" in str(run("show", str(path)).exception)
    assert data("show", "many-1", "--source", str(path), "--no-discover")["id"] == "many-1"


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_convert_writes_any_wire_format_and_says_what_is_lost(home: Path, target: str) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    before = file.read_bytes()
    value = data("convert", str(file), "--to", target, "--whole")
    assert value["dialect"] == target
    assert value["value"]
    if target != "openai-responses":
        assert any("thinking" in loss for loss in value["losses"])
    out = home / "out.json"
    assert run("convert", str(file), "--to", target, "-o", str(out)).exit_code == 0
    assert json.loads(out.read_text(encoding="utf-8"))
    assert file.read_bytes() == before


def test_convert_never_writes_to_the_file_it_reads(home: Path) -> None:
    file = next((home / ".codex").rglob("*.jsonl"))
    before = file.read_bytes()
    assert run("convert", str(file), "--to", "gemini", "-o", str(file)).exit_code == 1
    assert file.read_bytes() == before


def test_wrong_use_exits_with_2() -> None:
    assert run("convert", "x", "--to", "morse").exit_code == 2
    assert run("sessions", "/no/such/place").exit_code == 2


def test_the_demo_writes_to_the_data_directory_and_shows_what_it_made(home: Path) -> None:
    value = data("demo")
    assert value["folder"] == str(home / "thresher" / "demo")
    assert {row["agent"] for row in value["sessions"]} == {"claude-code", "codex", "pi", "mini-swe-agent"}
    output = run("demo", "--to", str(home / "elsewhere")).output
    assert " show " in output
    assert (home / "elsewhere" / ".codex").is_dir()


@pytest.mark.parametrize("command", [(), ("sessions",), ("sync",), ("files",), ("check",), ("fit",), ("show",)])
def test_every_output_says_which_version_its_keys_are(home: Path, command: tuple[str, ...]) -> None:
    session = () if command in [(), ("sessions",), ("sync",)] else (a_session(home),)
    assert json.loads(run(*command, *session, "--json").stdout)["schema"] == JSON_SCHEMA


def a_session(home: Path) -> str:
    return str(next(row["file"] for row in data("sessions", str(home / ".claude"))["sessions"] if row["compactions"]))


def test_fit_says_what_it_would_do_and_writes_nothing(home: Path) -> None:
    file = a_session(home)
    before = Path(file).read_bytes()
    value = data("fit", file, "--policy", "smart")
    assert value["tokens_after"] < value["tokens_before"]
    assert value["edits"][0].keys() >= {"kind", "target", "policy", "reason", "tokens_saved"}
    assert not (home / "thresher" / "store.sqlite3").exists()
    output = run("fit", file, "--explain").output
    assert "file read" in output
    assert f"{value['tokens_before']:,} → {value['tokens_after']:,}" in output
    assert Path(file).read_bytes() == before


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_fit_writes_any_wire_format_and_check_finds_it_legal(home: Path, target: str) -> None:
    out = home / "out.json"
    assert run("fit", a_session(home), "-b", "4k", "--to", target, "-o", str(out)).exit_code == 0
    result = run("check", str(out), "--dialect", target)
    assert (result.exit_code, result.output.strip()) == (0, f"legal for {target}")


def test_show_says_what_a_policy_would_make_of_each_part(home: Path) -> None:
    output = run("show", a_session(home), "--policy", "smart").output
    assert "⤷ replaced: file read [tools], saves" in output


def test_fit_writes_text_for_a_person(home: Path) -> None:
    result = run("fit", a_session(home), "--to", "text")
    assert result.stdout.startswith("## User")
    assert "▸ Bash" in result.stdout


def test_fit_never_writes_to_the_file_it_reads(home: Path) -> None:
    file = a_session(home)
    result = run("fit", file, "-o", file)
    assert result.exit_code == 1
    assert "name another one" in str(result.exception)


def test_a_budget_that_cannot_be_met_is_a_sentence(home: Path) -> None:
    result = run("fit", a_session(home), "--budget", "3")
    assert result.exit_code == 1
    assert "the smallest it can be is" in str(result.exception)


def test_a_place_that_cannot_be_written_is_a_sentence(home: Path) -> None:
    for verb in (["fit", a_session(home)], ["convert", a_session(home), "--to", "gemini"]):
        result = run(*verb, "-o", str(home / "nowhere" / "x.json"))
        assert result.exit_code == 1
        assert "cannot be written" in str(result.exception)


@pytest.mark.parametrize("wrong", [["-p", "modest"], ["-b", "much"], ["-m", "no-such-model"]])
def test_an_option_that_makes_no_sense_exits_with_2(home: Path, wrong: list[str]) -> None:
    verb = [sys.executable, "-m", "thresher.cli", "fit", a_session(home)]
    done = subprocess.run([*verb, *wrong], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"thresher: ")


def test_options_from_the_environment_reach_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_EXCLUDE_TOOLS", "Bash")
    edits = data("fit", a_session(home), "--policy", "none")["edits"]
    assert {edit["policy"] for edit in edits} == {"tools"}


def test_check_exits_with_1_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    path.write_text(json.dumps([{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]))
    result = run("check", str(path))
    assert result.exit_code == 1
    assert "message 2, part 1" in result.output
    assert f"fit {path} --policy none" in result.output
    violations = json.loads(run("check", str(path), "--json").stdout)["violations"]
    assert violations[0]["rule"] == "unanswered-call"


def test_restore_prints_what_was_left_out_byte_for_byte(home: Path) -> None:
    value = data("fit", a_session(home), "--to", "anthropic")
    pointer = re.search(r"\[thresher (t1:[0-9a-f]{16}) · Read", json.dumps(value["value"], ensure_ascii=False))
    assert pointer is not None
    text = run("restore", pointer[1]).stdout
    shown = json.dumps(data("show", a_session(home)), ensure_ascii=False)
    assert json.dumps(text, ensure_ascii=False)[1:-1] in shown
    out = home / "restored.txt"
    run("restore", pointer[1], "-o", str(out))
    assert out.read_text(encoding="utf-8") == text
    assert "nothing is stored" in str(run("restore", "t1:0123456789abcdef").exception)
