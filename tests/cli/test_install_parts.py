"""`thresher install --with plugin` and `--with proxy`, in an empty home folder."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from command_line import run, run_json
from thresher.serve.plugins.plugin_files import PLUGINS
from thresher.serve.proxy_clients import PROXY_CLIENTS, PROXY_URL

FILES = {
    "claude-code": {
        ".claude/skills/thresher/.claude-plugin/plugin.json",
        ".claude/skills/thresher/hooks/hooks.json",
        ".claude/skills/thresher/hooks/register.js",
    },
    "opencode": {".config/opencode/plugin/thresher.js", ".config/opencode/plugin/thresher/fit_process.js"},
    "pi": {".pi/agent/extensions/thresher/index.js", ".pi/agent/extensions/thresher/fit_process.js"},
}
PROXY_FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": (".claude/settings.json", {"env": {"ANTHROPIC_BASE_URL": PROXY_URL}}),
    "codex": (".codex/config.toml", {"openai_base_url": f"{PROXY_URL}/v1"}),
    "opencode": (
        ".config/opencode/opencode.json",
        {"provider": {"anthropic": {"options": {"baseURL": f"{PROXY_URL}/v1"}}}},
    ),
    "pi": (".pi/agent/models.json", {"providers": {"anthropic": {"baseUrl": PROXY_URL}}}),
}
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME", "THRESHER_HOME")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; the current folder is a project in it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    user = tmp_path / "user"
    (user / "project").mkdir(parents=True)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(user))
    monkeypatch.chdir(user / "project")
    return user


def paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def install(*arguments: str) -> Any:
    return run_json("install", *arguments)


def read(file: Path) -> Any:
    text = file.read_text("utf-8")
    return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("client", PLUGINS)
def test_a_plug_in_is_shown_written_once_and_removed(home: Path, client: str) -> None:
    shown = run("install", client, "--with", "plugin")
    assert f"install {client} --with plugin --write" in shown.stdout
    assert paths(home) == set()
    written = install(client, "--with", "plugin", "--write")
    assert (written["changed"], written["backups"]) == (True, [])
    assert paths(home) == FILES[client]
    assert {str(Path(file).relative_to(home)) for file in written["files"]} == FILES[client]
    again = install(client, "--with", "plugin", "--write")
    assert (again["change_needed"], again["changed"]) == (False, False)
    assert install(client, "--with", "plugin", "--remove")["changed"]
    assert paths(home) == set()
    assert not list(home.rglob("thresher"))
    assert "is not in" in run("install", client, "--with", "plugin", "--remove").stdout


@pytest.mark.parametrize("client", PLUGINS)
def test_a_plug_in_has_the_full_command_and_the_folder_of_the_data(
    home: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(home / "data"))
    written = install(client, "--with", "plugin", "--write")
    scripts = [Path(file).read_text("utf-8") for file in written["files"] if file.endswith(".js")]
    lines = [line for script in scripts for line in script.splitlines()]
    assert f"const COMMAND = {json.dumps(written['command'])};" in lines
    assert f"const VARIABLES = {json.dumps({'THRESHER_HOME': str(home / 'data')})};" in lines
    assert written["command"][-2:] == ["fit", "--hook"]
    assert Path(written["command"][0]).is_absolute()


@pytest.mark.parametrize("client", PLUGINS)
def test_a_plug_in_of_a_project_is_in_its_folder(home: Path, client: str) -> None:
    install(client, "--with", "plugin", "--project", "--write")
    assert all(path.startswith("project/.") for path in paths(home))
    install(client, "--with", "plugin", "--project", "--remove")
    assert paths(home) == set()


def test_a_file_that_the_user_changed_is_kept(home: Path) -> None:
    install("pi", "--with", "plugin", "--write")
    file = home / ".pi/agent/extensions/thresher/index.js"
    file.write_text("// mine\n", "utf-8")
    (other := file.with_name("other.js")).write_text("// also mine\n", "utf-8")
    again = install("pi", "--with", "plugin", "--write")
    assert again["backups"] == [f"{file}.before-thresher"]
    file.write_text("// changed again\n", "utf-8")
    removed = install("pi", "--with", "plugin", "--remove")
    assert removed["backups"] == [f"{file}.before-thresher-2"]
    assert [Path(f"{file}.before-thresher{end}").read_text("utf-8") for end in ("", "-2")] == [
        "// mine\n",
        "// changed again\n",
    ]
    assert other.exists()


def test_a_plug_in_of_another_installation_is_removed(home: Path) -> None:
    install("pi", "--with", "plugin", "--write")
    file = home / ".pi/agent/extensions/thresher/fit_process.js"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    moved = [
        'const COMMAND = ["/old/thresher", "fit", "--hook"];\n' if "const COMMAND" in line else line for line in lines
    ]
    file.write_text("".join(moved), "utf-8")
    assert install("pi", "--with", "plugin", "--remove")["backups"] == []
    assert paths(home) == set()


@pytest.mark.parametrize("client", ["codex", "gemini-cli", "cursor", "vscode"])
def test_an_agent_without_a_plug_in_is_refused(home: Path, client: str) -> None:
    result = run("install", client, "--with", "plugin", "--write")
    assert result.exit_code == 2
    assert "Agents with one: claude-code, opencode, pi" in result.stderr
    assert paths(home) == set()


def test_pi_has_no_mcp_client(home: Path) -> None:
    result = run("install", "pi", "--write")
    assert (result.exit_code, paths(home)) == (2, set())
    assert "Agents with one: claude-code" in result.stderr


@pytest.mark.parametrize("client", PROXY_FILES)
@pytest.mark.parametrize("has_settings", [False, True])
def test_a_base_url_is_shown_written_once_and_removed(home: Path, client: str, has_settings: bool) -> None:
    name, expected = PROXY_FILES[client]
    file = home / name
    other = '# mine\nmodel = "x"\n\n[tui]\nsound = 1\n' if file.suffix == ".toml" else '{\n  "theme": "dark"\n}\n'
    if has_settings:
        file.parent.mkdir(parents=True)
        file.write_text(other, "utf-8")
    before = paths(home)
    shown = run("install", client, "--with", "proxy")
    assert PROXY_URL in shown.stdout
    assert f"install {client} --with proxy --write" in shown.stdout
    assert paths(home) == before
    written = install(client, "--with", "proxy", "--write")
    assert (written["changed"], written["backup"]) == (True, f"{file}.before-thresher" if has_settings else None)
    added: dict[str, Any] = {"model": "x", "tui": {"sound": 1}} if file.suffix == ".toml" else {"theme": "dark"}
    assert read(file) == ({**added, **expected} if has_settings else expected)
    assert not install(client, "--with", "proxy", "--write")["change_needed"]
    assert install(client, "--with", "proxy", "--remove")["changed"]
    if has_settings:
        assert file.read_text("utf-8") == other
    else:
        assert read(file) == {}
    assert "does not point" in run("install", client, "--with", "proxy", "--remove").stdout


@pytest.mark.parametrize("client", PROXY_FILES)
def test_the_base_url_of_a_gateway_is_never_replaced(home: Path, client: str) -> None:
    name, settings = PROXY_FILES[client]
    file = home / name
    file.parent.mkdir(parents=True)
    text = json.dumps(settings).replace(PROXY_URL, "https://gateway.example")
    file.write_text('openai_base_url = "https://gateway.example/v1"\n' if file.suffix == ".toml" else text, "utf-8")
    before = file.read_bytes()
    result = run("install", client, "--with", "proxy", "--write")
    assert result.exit_code == 1
    assert "thresher proxy --upstream https://gateway.example" in result.stderr
    assert not install(client, "--with", "proxy", "--remove")["changed"]
    assert file.read_bytes() == before


def test_only_the_providers_of_the_file_get_the_base_url(home: Path) -> None:
    file = home / ".config/opencode/opencode.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"provider": {"openai": {"options": {"apiKey": "k"}}}}', "utf-8")
    install("opencode", "--with", "proxy", "--write")
    assert read(file) == {"provider": {"openai": {"options": {"apiKey": "k", "baseURL": f"{PROXY_URL}/v1"}}}}
    install("opencode", "--with", "proxy", "--remove")
    assert read(file) == {"provider": {"openai": {"options": {"apiKey": "k"}}}}


@pytest.mark.parametrize("content", ['{\n  // mine\n  "theme": "dark"\n}', "[1]", "{"])
def test_a_file_that_cannot_be_edited_safely_is_left_to_the_user(home: Path, content: str) -> None:
    file = home / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text(content, "utf-8")
    result = run("install", "claude-code", "--with", "proxy", "--write")
    assert result.exit_code == 1
    assert "ANTHROPIC_BASE_URL" in result.stdout
    assert (file.read_text("utf-8"), paths(home)) == (content, {".claude/settings.json"})


def test_an_agent_without_a_file_says_what_to_set(home: Path) -> None:
    result = run("install", "gemini-cli", "--with", "proxy", "--write")
    assert (result.exit_code, paths(home)) == (1, set())
    assert f"GOOGLE_GEMINI_BASE_URL={PROXY_URL}" in result.stdout
    assert run("install", "codex", "--with", "proxy", "--project").exit_code == 1
    refused = run("install", "cursor", "--with", "proxy")
    assert refused.exit_code == 2
    assert f"Agents with one: {', '.join(PROXY_CLIENTS)}" in refused.stderr
