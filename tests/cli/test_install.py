"""`thresher install`, in a terminal and with `--json`, in an empty home folder."""

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from command_line import run, run_json
from thresher.cli import install as install_module
from thresher.cli.install import find_mcp_server_command
from thresher.serve.config_edits import SERVER_NAME
from thresher.serve.config_writing import LOCK_ATTEMPTS, write_config_change
from thresher.serve.mcp_clients import MCP_CLIENTS, McpClientError, plan_config_change
from thresher.serve.server_check import check_server_starts

OTHER = {"other": {"command": "npx"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; the current folder is a project in it. No test but those of the check starts the server."""
    monkeypatch.setattr(install_module, "check_server_starts", lambda *_: None)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "THRESHER_HOME"):
        monkeypatch.delenv(name, raising=False)
    user = tmp_path / "user"
    for name, folder in (("HOME", user), ("USERPROFILE", user), ("APPDATA", user / "data")):
        monkeypatch.setenv(name, str(folder))
    (user / "project").mkdir(parents=True)
    monkeypatch.chdir(user / "project")
    return user


def install(*arguments: str) -> Result:
    return run("install", *arguments)


def install_json(*arguments: str) -> Any:
    return run_json("install", *arguments)


def read_config(file: str | Path) -> Any:
    text = Path(file).read_text(encoding="utf-8")
    return tomllib.loads(text) if str(file).endswith(".toml") else json.loads(text)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def write_settings(file: str) -> None:
    """Write a configuration that has other settings and servers."""
    key = {"config.toml": "mcp_servers"}.get(Path(file).name, "")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(f'[{key}.other]\ncommand = "npx"\n' if key else '{\n  "theme": "dark"\n}\n', encoding="utf-8")


@pytest.mark.parametrize("scope", [[], ["--project"]])
@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_without_an_option_the_change_is_only_shown(home: Path, client: str, scope: list[str]) -> None:
    result = install(client, *scope)
    assert result.exit_code == 0
    assert "(does not exist yet)" in result.stdout
    assert f"install {client}{' --project .' if scope else ''} --write" in result.stdout
    assert install_json(client, *scope) | {"check": ""} == {
        "client": client,
        "file": install_json(client, *scope)["file"],
        "key": MCP_CLIENTS[client].servers_key,
        "entry": install_json(client, *scope)["entry"],
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
def test_the_entry_is_written_once_and_removed_again(home: Path, client: str, scope: list[str]) -> None:
    file = install_json(client, *scope)["file"]
    write_settings(file)
    before = files(home)
    written = install_json(client, *scope, "--write")
    assert (written["changed"], written["backup"]) == (True, f"{file}.before-thresher")
    assert read_config(file)[MCP_CLIENTS[client].servers_key][SERVER_NAME] == written["entry"]
    assert Path(written["backup"]).read_bytes() == next(iter(before.values()))
    once = files(home)
    assert len(once) == 2
    again = install(client, *scope, "--write")
    assert "is already in" in again.stdout
    assert files(home) == once
    removed = install_json(client, *scope, "--remove")
    assert (removed["changed"], removed["backup"]) == (True, f"{file}.before-thresher-2")
    assert {name: content for name, content in files(home).items() if "before-thresher" not in name} == before
    assert "is not in" in install(client, *scope, "--remove").stdout


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_a_missing_file_is_created_readable_only_by_the_user(home: Path, client: str) -> None:
    result = install(client, "--write")
    assert "backup" not in result.stdout
    assert MCP_CLIENTS[client].check_command in result.stdout
    assert f"install {client} --remove" in result.stdout
    (name,) = files(home)
    if os.name == "posix":
        assert (home / name).stat().st_mode & 0o777 == 0o600


def test_a_project_in_another_folder_is_configured(home: Path) -> None:
    folder = home / "other project"
    folder.mkdir()
    result = install("claude-code", "--project", str(folder), "--write")
    assert read_config(folder / ".mcp.json")["mcpServers"][SERVER_NAME]["type"] == "stdio"
    assert "approve the server when asked" in result.stdout
    assert "on this machine" in result.stdout
    assert f"--project '{folder}' --remove" in result.stdout


@pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")
def test_the_mode_of_a_file_and_a_symlink_are_preserved(home: Path) -> None:
    real, link = home / "dotfiles" / "mcp.json", home / ".cursor" / "mcp.json"
    for folder in (real.parent, link.parent):
        folder.mkdir()
    real.write_text("{}", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)
    assert install_json("cursor", "--write")["backup"] == str(real.resolve()) + ".before-thresher"
    assert link.is_symlink()
    assert SERVER_NAME in read_config(real)["mcpServers"]
    assert [file.stat().st_mode & 0o777 for file in sorted(real.parent.iterdir())] == [0o640, 0o640]


def test_older_backups_are_not_overwritten(home: Path) -> None:
    (home / ".claude.json").write_text("{}", encoding="utf-8")
    for name in ("", "-2"):
        (home / f".claude.json.before-thresher{name}").write_text("older", encoding="utf-8")
    assert install_json("claude-code", "--write")["backup"].endswith(".before-thresher-3")
    assert (home / ".claude.json.before-thresher").read_text(encoding="utf-8") == "older"


def test_an_entry_with_other_values_is_shown_and_replaced(home: Path) -> None:
    (home / ".claude.json").write_text(
        json.dumps({"mcpServers": {SERVER_NAME: {"command": "/old"}} | OTHER}), encoding="utf-8"
    )
    shown = install("claude-code").stdout
    assert "with other values" in shown
    assert "/old" in shown
    assert install_json("claude-code", "--write")["current_entry"] == {"command": "/old"}
    assert read_config(home / ".claude.json")["mcpServers"] == OTHER | {
        SERVER_NAME: install_json("claude-code")["entry"]
    }


@pytest.mark.parametrize("options", [[], ["--write"], ["--remove"]])
@pytest.mark.parametrize(
    "text", ['{"servers": {"thresher": {"command": "/old"}}, // mine\n}', '{"servers": ', '{"servers": []}', "[1]"]
)
def test_a_file_that_cannot_be_changed_safely_is_left_to_the_user(home: Path, text: str, options: list[str]) -> None:
    file = home / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    result = install("vscode", "--project", *options)
    assert result.exit_code == 1
    assert f"`{file}`" in result.stderr
    assert "by hand" in result.stdout
    assert ('"command":' in result.stdout) == ("--remove" not in options)
    as_json = install("vscode", "--project", *options, "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problem"] in as_json.stderr
    assert files(home) == {"project/.vscode/mcp.json": text.encode()}


def test_a_file_that_cannot_be_read_or_written_is_a_clear_error(home: Path) -> None:
    (home / ".claude.json").mkdir()
    assert "it is a folder" in str(install("claude-code", "--write").exception)
    (home / ".cursor").write_text("a file", encoding="utf-8")
    assert "cannot read" in str(install("cursor", "--write").exception)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_clear_error(home: Path) -> None:
    (home / ".cursor").mkdir(mode=0o500)
    assert "check its permissions" in str(install("cursor", "--write").exception)


def test_a_file_that_changes_meanwhile_is_not_overwritten(home: Path) -> None:
    file = home / "mcp.json"
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})
    file.write_text('{"from": "Cursor"}', encoding="utf-8")
    with pytest.raises(McpClientError, match="by another program"):
        write_config_change(change)
    assert files(home) == {"mcp.json": b'{"from": "Cursor"}'}


def test_a_client_that_writes_its_older_copy_over_the_change_is_reported(home: Path) -> None:
    file = home / "mcp.json"
    file.write_text("{}", encoding="utf-8")
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})

    def replace(new: Path, target: Path) -> None:
        new.replace(target)
        target.write_text('{"from": "Cursor"}', encoding="utf-8")

    with pytest.raises(McpClientError, match="may be lost"):
        write_config_change(change, replace=replace)
    assert files(home) == {"mcp.json": b'{"from": "Cursor"}', "mcp.json.before-thresher": b"{}"}


def test_a_locked_file_is_written_when_its_owner_releases_the_lock(home: Path) -> None:
    file, lock = home / "mcp.json", home / "mcp.json.lock"
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})
    waits: list[float] = []

    def release(seconds: float) -> None:
        assert not file.exists()
        waits.append(seconds)
        if len(waits) == 3:
            lock.rmdir()

    lock.mkdir()
    write_config_change(change, sleep=release)
    assert len(waits) == 3
    assert not lock.exists()
    assert file.read_bytes() == change.new_content


def test_a_file_that_stays_locked_is_not_written(home: Path) -> None:
    file, lock = home / "mcp.json", home / "mcp.json.lock"
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})
    waits: list[float] = []
    lock.mkdir()
    with pytest.raises(McpClientError, match="locked by another program"):
        write_config_change(change, sleep=waits.append)
    assert len(waits) == LOCK_ATTEMPTS
    assert lock.exists()
    os.utime(lock, times=(1_000_000_000, 1_000_000_000))  # its owner crashed
    write_config_change(change, sleep=waits.append)
    assert len(waits) == LOCK_ATTEMPTS
    assert list(files(home)) == ["mcp.json"]
    assert not lock.exists()


def test_the_lock_is_held_while_the_file_is_replaced(home: Path) -> None:
    file, lock = home / "mcp.json", home / "mcp.json.lock"
    change = plan_config_change(MCP_CLIENTS["cursor"], file, {"command": "x"})
    held: list[bool] = []

    def replace(new: Path, target: Path) -> None:
        held.append(lock.is_dir())
        new.replace(target)

    write_config_change(change, replace=replace)
    assert held == [True]


def test_every_first_installation_includes_what_install_starts() -> None:
    root = Path(__file__).parents[2]
    for page in ("README.md", "docs/tutorial.md", "docs/how-to/sub-agents.md"):
        lines = (root / page).read_text(encoding="utf-8").splitlines()
        installations = [line for line in lines if "pip install" in line]
        assert installations
        assert [line for line in installations if "mcp" not in line] == []
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert "--editable '.[mcp" in makefile
    assert "--editable .\n" not in makefile


def start_failure(command: tuple[str, ...]) -> str:
    with pytest.raises(McpClientError) as error:
        check_server_starts(command, {})
    return str(error.value)


def test_a_server_that_does_not_start_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    missing = tmp_path / "thresher"
    assert "No such file" in start_failure((str(missing), "mcp"))
    missing.write_text("not a program")
    assert str(missing) in start_failure((str(missing), "mcp"))
    assert "needs the extra" in start_failure((sys.executable, "-c", "raise SystemExit('thresher: needs the extra')"))
    assert "exit code 3" in start_failure((sys.executable, "-c", "raise SystemExit(3)"))
    code = "import os; raise SystemExit(os.environ.get('PYTHONPATH') or os.environ['THRESHER_HOME'] != 'x' or None)"
    check_server_starts((sys.executable, "-c", code), {"THRESHER_HOME": "x"})


def test_the_check_starts_the_real_server(tmp_path: Path) -> None:
    package = Path(install_module.__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(package)!r}); sys.argv[1:] = ['mcp']; "
    code += "from thresher.cli import main; main()"
    check_server_starts((sys.executable, "-c", code), {"THRESHER_HOME": str(tmp_path / "data")})
    without = code.replace("import sys;", "import sys; sys.modules['mcp'] = None;")
    assert "-m pip install 'mcp>=2.2'" in start_failure((sys.executable, "-c", without))


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
def test_nothing_is_written_if_the_server_does_not_start(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_module, "check_server_starts", check_server_starts)
    program = tmp_path / "thresher"
    program.write_text("#!/bin/sh\necho 'thresher: needs the extra' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    result = install("claude-code", "--write")
    assert "the MCP server does not start, so nothing was written: needs the extra" in str(result.exception)
    assert files(home) == {}
    assert install("claude-code").exit_code == 0
    assert install("claude-code", "--remove").exit_code == 0


@pytest.mark.usefixtures("home")
def test_wrong_use_exits_with_2() -> None:
    for arguments in (["emacs"], ["cursor", "--write", "--remove"], ["cursor", "--project", "nowhere"], []):
        assert install(*arguments).exit_code == 2


@pytest.mark.usefixtures("home")
def test_the_entry_contains_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "env" not in install_json("codex")["entry"]
    monkeypatch.setenv("THRESHER_HOME", "~/data")
    assert install_json("codex")["entry"]["env"] == {"THRESHER_HOME": str(Path("~/data").expanduser())}


def test_the_entry_starts_this_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "thresher.exe"
    own.touch(mode=0o755)
    module = Path(install_module.__file__).with_name("__main__.py")
    monkeypatch.setenv("PATH", "")
    for program, command in ((own, (str(own),)), (module, (sys.executable, "-m", "thresher.cli"))):
        monkeypatch.setattr(sys, "argv", [str(program)])
        assert find_mcp_server_command() == (*command, "mcp")
