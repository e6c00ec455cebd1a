"""`thresher install`, as a person and as a program would use it, in a home of its own."""

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.cli import cli, install
from thresher.cli.install import find_mcp_server_command, write_config_change
from thresher.errors import ThresherError
from thresher.serve.config_edits import SERVER_NAME
from thresher.serve.mcp_clients import MCP_CLIENTS, McpClientError, plan_config_change

OTHER = {"other": {"command": "npx"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with nothing in it; the tests stand in a project of theirs."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "THRESHER_HOME"):
        monkeypatch.delenv(name, raising=False)
    user = tmp_path / "user"
    for name, folder in (("HOME", user), ("USERPROFILE", user), ("APPDATA", user / "data")):
        monkeypatch.setenv(name, str(folder))
    (user / "project").mkdir(parents=True)
    monkeypatch.chdir(user / "project")
    return user


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["install", *arguments])
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def data(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(file: str | Path) -> Any:
    text = Path(file).read_text(encoding="utf-8")
    return tomllib.loads(text) if str(file).endswith(".toml") else json.loads(text)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def some_settings(file: str) -> None:
    """A file as a user has it, with another server in it."""
    key = {"config.toml": "mcp_servers"}.get(Path(file).name, "")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(f'[{key}.other]\ncommand = "npx"\n' if key else '{\n  "theme": "dark"\n}\n', encoding="utf-8")


@pytest.mark.parametrize("scope", [[], ["--project"]])
@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_without_being_asked_it_only_shows(home: Path, client: str, scope: list[str]) -> None:
    result = run(client, *scope)
    assert result.exit_code == 0
    assert "(not there yet)" in result.stdout
    assert f"install {client}{' --project .' if scope else ''} --write" in result.stdout
    assert data(client, *scope) | {"check": ""} == {
        "client": client,
        "file": data(client, *scope)["file"],
        "key": MCP_CLIENTS[client].servers_key,
        "entry": data(client, *scope)["entry"],
        "check": "",
        "schema": 1,
        "current_entry": None,
        "change_needed": True,
        "changed": False,
        "backup": None,
        "problem": None,
    }
    assert files(home) == {}


@pytest.mark.parametrize("scope", [[], ["--project"]])
@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_it_writes_one_file_once_and_takes_the_entry_out_again(home: Path, client: str, scope: list[str]) -> None:
    file = data(client, *scope)["file"]
    some_settings(file)
    before = files(home)
    written = data(client, *scope, "--write")
    assert (written["changed"], written["backup"]) == (True, f"{file}.before-thresher")
    assert said(file)[MCP_CLIENTS[client].servers_key][SERVER_NAME] == written["entry"]
    assert Path(written["backup"]).read_bytes() == next(iter(before.values()))
    once = files(home)
    assert len(once) == 2
    again = run(client, *scope, "--write")
    assert "is there already" in again.stdout
    assert files(home) == once
    removed = data(client, *scope, "--remove")
    assert (removed["changed"], removed["backup"]) == (True, f"{file}.before-thresher-2")
    assert {name: content for name, content in files(home).items() if "before-thresher" not in name} == before
    assert "is not there" in run(client, *scope, "--remove").stdout


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_a_missing_file_is_made_with_its_folder_for_the_user_alone(home: Path, client: str) -> None:
    result = run(client, "--write")
    assert "as it was before" not in result.stdout
    assert MCP_CLIENTS[client].check_command in result.stdout
    assert f"install {client} --remove" in result.stdout
    (name,) = files(home)
    if os.name == "posix":
        assert (home / name).stat().st_mode & 0o777 == 0o600


def test_a_project_elsewhere_is_named(home: Path) -> None:
    folder = home / "other project"
    folder.mkdir()
    result = run("claude-code", "--project", str(folder), "--write")
    assert said(folder / ".mcp.json")["mcpServers"][SERVER_NAME]["type"] == "stdio"
    assert "approve the server when asked" in result.stdout
    assert "this machine's" in result.stdout
    assert f"--project '{folder}' --remove" in result.stdout


@pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")
def test_mode_and_link_stay(home: Path) -> None:
    real, link = home / "dotfiles" / "mcp.json", home / ".cursor" / "mcp.json"
    for folder in (real.parent, link.parent):
        folder.mkdir()
    real.write_text("{}", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)
    assert data("cursor", "--write")["backup"] == str(real.resolve()) + ".before-thresher"
    assert link.is_symlink()
    assert SERVER_NAME in said(real)["mcpServers"]
    assert [file.stat().st_mode & 0o777 for file in sorted(real.parent.iterdir())] == [0o640, 0o640]


def test_older_copies_are_never_written_over(home: Path) -> None:
    (home / ".claude.json").write_text("{}", encoding="utf-8")
    for name in ("", "-2"):
        (home / f".claude.json.before-thresher{name}").write_text("older", encoding="utf-8")
    assert data("claude-code", "--write")["backup"].endswith(".before-thresher-3")
    assert (home / ".claude.json.before-thresher").read_text(encoding="utf-8") == "older"


def test_an_entry_with_other_values_is_shown_and_replaced(home: Path) -> None:
    (home / ".claude.json").write_text(
        json.dumps({"mcpServers": {SERVER_NAME: {"command": "/old"}} | OTHER}), encoding="utf-8"
    )
    shown = run("claude-code").stdout
    assert "with other values now" in shown
    assert "/old" in shown
    assert data("claude-code", "--write")["current_entry"] == {"command": "/old"}
    assert said(home / ".claude.json")["mcpServers"] == OTHER | {SERVER_NAME: data("claude-code")["entry"]}


@pytest.mark.parametrize("options", [[], ["--write"], ["--remove"]])
@pytest.mark.parametrize(
    "text", ['{"servers": {"thresher": {"command": "/old"}}, // mine\n}', '{"servers": ', '{"servers": []}', "[1]"]
)
def test_a_file_that_is_left_alone_is_left_to_the_user(home: Path, text: str, options: list[str]) -> None:
    file = home / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    result = run("vscode", "--project", *options)
    assert result.exit_code == 1
    assert f"`{file}`" in result.stderr
    assert "by hand" in result.stdout
    assert ('"command":' in result.stdout) == ("--remove" not in options)
    told = run("vscode", "--project", *options, "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["problem"] in told.stderr
    assert files(home) == {"project/.vscode/mcp.json": text.encode()}


def test_what_cannot_be_read_or_written_is_a_sentence(home: Path) -> None:
    (home / ".claude.json").mkdir()
    assert "it is a folder" in str(run("claude-code", "--write").exception)
    (home / ".cursor").write_text("a file", encoding="utf-8")
    assert "cannot read" in str(run("cursor", "--write").exception)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_is_a_sentence(home: Path) -> None:
    (home / ".cursor").mkdir(mode=0o500)
    assert "see who may write there" in str(run("cursor", "--write").exception)


def test_a_file_that_changes_meanwhile_is_not_written_over(home: Path) -> None:
    file = home / "mcp.json"
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})
    file.write_text('{"from": "Cursor"}', encoding="utf-8")
    with pytest.raises(McpClientError, match="by another program"):
        write_config_change(change)
    assert files(home) == {"mcp.json": b'{"from": "Cursor"}'}


@pytest.mark.usefixtures("home")
def test_wrong_use_is_told() -> None:
    for arguments in (["emacs"], ["cursor", "--write", "--remove"], ["cursor", "--project", "nowhere"], []):
        assert run(*arguments).exit_code == 2


@pytest.mark.usefixtures("home")
def test_the_data_directory_goes_with_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "env" not in data("codex")["entry"]
    monkeypatch.setenv("THRESHER_HOME", "~/data")
    assert data("codex")["entry"]["env"] == {"THRESHER_HOME": str(Path("~/data").expanduser())}


def test_the_server_is_this_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "thresher.exe"
    own.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(own)])
    monkeypatch.setenv("PATH", "")
    assert find_mcp_server_command() == (str(own), "mcp")
    monkeypatch.setattr(sys, "argv", [str(Path(install.__file__).with_name("__main__.py"))])
    assert find_mcp_server_command() == (sys.executable, "-m", "thresher.cli", "mcp")
