"""Configuration files of each client, and adding and removing the server entry."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.serve.config_edits import SERVER_NAME
from thresher.serve.mcp_clients import (
    MCP_CLIENTS,
    ConfigChange,
    ManualEditError,
    McpClientError,
    build_server_entry,
    find_client_config,
    format_server_entry,
    plan_config_change,
)

COMMAND = ("/opt/bin/thresher", "mcp")
HOMES = {"linux": {"HOME": "/home/ann"}, "darwin": {"HOME": "/home/ann"}, "win32": {"USERPROFILE": "/home/ann"}}
ELSEWHERE = {
    "CLAUDE_CONFIG_DIR": "/else/claude",
    "CODEX_HOME": "/else/codex",
    "GEMINI_CLI_HOME": "/else/gemini",
    "XDG_CONFIG_HOME": "/else/config",
    "APPDATA": "/else/data",
}
OWN = build_server_entry(MCP_CLIENTS["cursor"], COMMAND, {})
OTHER = {"command": "npx", "args": ["-y", "other"]}


def read(file: Path, content: bytes) -> Any:
    return tomllib.loads(content.decode()) if file.suffix == ".toml" else json.loads(content)


def change(
    folder: Path, text: str | bytes, entry: Mapping[str, Any] | None = OWN, client: str = "cursor"
) -> ConfigChange:
    """Return the planned change for a file with this text; the file itself stays unchanged."""
    content = text if isinstance(text, bytes) else text.encode()
    file = folder / ("config.toml" if client == "codex" else "mcp.json")
    file.write_bytes(content)
    try:
        return plan_config_change(MCP_CLIENTS[client], file, entry)
    finally:
        assert file.read_bytes() == content


def put(folder: Path, text: str | bytes, **options: Any) -> bytes:
    after = change(folder, text, **options).new_content
    assert after is not None
    return after


@pytest.mark.parametrize(
    ("client", "platform", "file"),
    [
        ("claude-code", "linux", "/home/ann/.claude.json"),
        ("claude-code", "win32", "/home/ann/.claude.json"),
        ("codex", "darwin", "/home/ann/.codex/config.toml"),
        ("gemini-cli", "win32", "/home/ann/.gemini/settings.json"),
        ("opencode", "linux", "/home/ann/.config/opencode/opencode.json"),
        ("opencode", "darwin", "/home/ann/.config/opencode/opencode.json"),
        ("opencode", "win32", "/home/ann/.config/opencode/opencode.json"),
        ("cursor", "darwin", "/home/ann/.cursor/mcp.json"),
        ("vscode", "linux", "/home/ann/.config/Code/User/mcp.json"),
        ("vscode", "darwin", "/home/ann/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "/home/ann/AppData/Roaming/Code/User/mcp.json"),
    ],
)
def test_the_users_file_is_in_the_folder_of_the_client(client: str, platform: str, file: str) -> None:
    found = find_client_config(MCP_CLIENTS[client], project=None, platform=platform, environment=HOMES[platform])
    assert found == Path(file).absolute()


@pytest.mark.parametrize(
    ("client", "platform", "file"),
    [
        ("claude-code", "linux", "/else/claude/.claude.json"),
        ("codex", "win32", "/else/codex/config.toml"),
        ("gemini-cli", "darwin", "/else/gemini/.gemini/settings.json"),
        ("opencode", "win32", "/else/config/opencode/opencode.json"),
        ("cursor", "linux", "/home/ann/.cursor/mcp.json"),
        ("vscode", "linux", "/else/config/Code/User/mcp.json"),
        ("vscode", "darwin", "/home/ann/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "/else/data/Code/User/mcp.json"),
    ],
)
def test_a_variable_moves_the_users_file(client: str, platform: str, file: str) -> None:
    environment = HOMES[platform] | ELSEWHERE
    found = find_client_config(MCP_CLIENTS[client], project=None, platform=platform, environment=environment)
    assert found == Path(file).absolute()


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude-code", ".mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini-cli", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
    ],
)
@pytest.mark.parametrize("platform", HOMES)
def test_a_project_file_is_in_the_project(tmp_path: Path, client: str, name: str, platform: str) -> None:
    found = find_client_config(MCP_CLIENTS[client], project=tmp_path, platform=platform, environment=ELSEWHERE)
    assert found == tmp_path / name


def test_an_existing_file_is_preferred_to_a_new_one(tmp_path: Path) -> None:
    def found() -> str:
        return find_client_config(MCP_CLIENTS["opencode"], project=tmp_path, platform="linux", environment={}).name

    (tmp_path / "opencode.jsonc").touch()
    assert found() == "opencode.jsonc"
    (tmp_path / "opencode.json").touch()
    assert found() == "opencode.json"


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude-code", {"mcpServers": {SERVER_NAME: {"type": "stdio", "command": COMMAND[0], "args": ["mcp"]}}}),
        ("codex", {"mcp_servers": {SERVER_NAME: {"command": COMMAND[0], "args": ["mcp"]}}}),
        ("gemini-cli", {"mcpServers": {SERVER_NAME: {"command": COMMAND[0], "args": ["mcp"]}}}),
        ("opencode", {"mcp": {SERVER_NAME: {"type": "local", "command": [*COMMAND], "enabled": True}}}),
        ("cursor", {"mcpServers": {SERVER_NAME: {"type": "stdio", "command": COMMAND[0], "args": ["mcp"]}}}),
        ("vscode", {"servers": {SERVER_NAME: {"type": "stdio", "command": COMMAND[0], "args": ["mcp"]}}}),
    ],
)
def test_every_client_has_its_own_entry_shape(client: str, text: dict[str, Any]) -> None:
    row, file = MCP_CLIENTS[client], Path(MCP_CLIENTS[client].user_files[0])
    assert read(file, format_server_entry(row, file, build_server_entry(row, COMMAND, {})).encode()) == text


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_variables_are_under_the_key_of_the_client(client: str) -> None:
    row, file = MCP_CLIENTS[client], Path(MCP_CLIENTS[client].user_files[0])
    entry = build_server_entry(row, COMMAND, {"THRESHER_HOME": 'C:\\data "é"'})
    key = "environment" if client == "opencode" else "env"
    values = read(file, format_server_entry(row, file, entry).encode())
    assert values[row.servers_key][SERVER_NAME][key] == {"THRESHER_HOME": 'C:\\data "é"'}


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_a_program_on_windows_is_quoted(tmp_path: Path, client: str) -> None:
    entry = build_server_entry(MCP_CLIENTS[client], (r"C:\Program Files\Ann's \"thresher\".exe", "mcp"), {})
    after = put(tmp_path, "", entry=entry, client=client)
    file = tmp_path / ("config.toml" if client == "codex" else "mcp.json")
    assert read(file, after)[MCP_CLIENTS[client].servers_key][SERVER_NAME] == entry


LAID_OUT = {
    "nothing": "{}",
    "nothing, with a line": "{}\n",
    "a line each": '{\n  "theme": "dark",\n  "list": [1, 2.50, 1e3],\n  "text": "\\u00e9 {"\n}\n',
    "tabs": '{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"other": {"command": "npx"}\n\t}\n}',
    "servers in the middle": '{\n    "mcpServers": {\n        "a": {},\n        "b": {}\n    },\n    "theme": 1\n}\n',
    "one line": '{"theme":"dark","mcpServers":{"other":{"command":"npx","args":[]}}}',
    "Windows": '{\r\n  "theme": "dark"\r\n}\r\n',
    "a mark first": "\ufeff" + '{\n  "theme": "dark"\n}\n',
    "odd": '{ "theme"\n:\n"dark" ,"b" : { }\n}',
}


@pytest.mark.parametrize("text", LAID_OUT.values(), ids=LAID_OUT)
def test_the_surrounding_text_stays_and_the_entry_can_be_removed(tmp_path: Path, text: str) -> None:
    after = put(tmp_path, text)
    values = json.loads(after.decode().removeprefix("\ufeff"))
    assert values["mcpServers"].pop(SERVER_NAME) == OWN
    before = json.loads(text.removeprefix("\ufeff"))
    assert values == {"mcpServers": {}} | before
    assert (b"\r\n" in after) == ("\r\n" in text)
    assert put(tmp_path, after, entry=None).decode() == text


def test_the_entry_has_the_layout_of_its_surroundings(tmp_path: Path) -> None:
    assert put(tmp_path, LAID_OUT["tabs"], entry={"command": "x"}).decode() == (
        '{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"other": {"command": "npx"},\n'
        '\t\t"thresher": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}'
    )


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(
    values=st.dictionaries(st.text(), VALUES),
    servers=st.none() | st.dictionaries(st.text(), VALUES, min_size=1),
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    ascii_only=st.booleans(),
)
def test_adding_and_removing_restores_any_file(
    tmp_path_factory: pytest.TempPathFactory,
    values: dict[str, Any],
    servers: dict[str, Any] | None,
    indent: int | str | None,
    ascii_only: bool,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    values = {name: value for name, value in values.items() if name != "mcpServers"}
    if servers:
        values["mcpServers"] = {name: value for name, value in servers.items() if name != SERVER_NAME} or {
            "other": OTHER
        }
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    after = put(folder, text)
    assert json.loads(after) == values | {"mcpServers": values.get("mcpServers", {}) | {SERVER_NAME: OWN}}
    assert change(folder, after).new_content is None
    assert put(folder, after, entry=None).decode() == text


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_gets_only_the_entry(tmp_path: Path, text: str) -> None:
    assert json.loads(put(tmp_path, text)) == {"mcpServers": {SERVER_NAME: OWN}}


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_an_existing_entry_is_not_added_again(tmp_path: Path, client: str) -> None:
    entry = build_server_entry(MCP_CLIENTS[client], COMMAND, {})
    planned_again = change(tmp_path, put(tmp_path, "", entry=entry, client=client), entry=entry, client=client)
    assert planned_again.new_content is None
    assert planned_again.current_entry == planned_again.new_entry == entry


@pytest.mark.parametrize("client", MCP_CLIENTS)
def test_a_missing_entry_is_not_removed(tmp_path: Path, client: str) -> None:
    assert change(tmp_path, "", entry=None, client=client).new_content is None
    missing = plan_config_change(MCP_CLIENTS[client], tmp_path / "none" / "config.json", None)
    assert (missing.old_content, missing.new_content) == (None, None)


def test_fields_that_the_user_added_to_the_entry_stay(tmp_path: Path) -> None:
    mine = {"command": "/old/thresher", "env": {"A": "1", "THRESHER_HOME": "/old"}, "timeout": 9}
    text = json.dumps({"mcpServers": {SERVER_NAME: mine, "other": OTHER}}, indent=2)
    entry = build_server_entry(MCP_CLIENTS["cursor"], COMMAND, {"THRESHER_HOME": "/new"})
    after = json.loads(put(tmp_path, text, entry=entry))
    assert after["mcpServers"][SERVER_NAME] == OWN | {"env": {"A": "1", "THRESHER_HOME": "/new"}, "timeout": 9}
    assert after["mcpServers"]["other"] == OTHER


COMMENTED = {
    "a comment": '{\n  // mine\n  "mcpServers": {}\n}',
    "a long one": '{"a": "http://x", /* "b" \n { */ "mcpServers": {}}',
    "a comma too many": '{"mcpServers": {"other": {"args": ["a",]},},}',
    "both": '{"mcpServers": {}, // the end\n}',
}


@pytest.mark.parametrize("text", COMMENTED.values(), ids=COMMENTED)
def test_a_file_with_comments_is_not_changed(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManualEditError, match="comments or trailing commas"):
        change(tmp_path, text)
    assert change(tmp_path, text, entry=None).new_content is None


def test_an_entry_among_comments_is_detected(tmp_path: Path) -> None:
    text = f'{{\n  // mine\n  "mcpServers": {{"{SERVER_NAME}": {json.dumps(OWN)},}}\n}}'
    assert change(tmp_path, text).new_content is None
    with pytest.raises(ManualEditError, match="comments or trailing commas"):
        change(tmp_path, text, entry=None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"mcpServers": ', "line 1 column 16"),
        ('{\n  // mine\n  "a" 1}', "line 3"),
        ("[" * 100_000, "cannot parse"),
        (b'{"a": "\xff"}', "utf-8"),
        ("[]", "is not a table of keys and values"),
        ("null", "is not a table of keys and values"),
        ('{"mcpServers": []}', "`mcpServers` in"),
        ('{"mcpServers": null}', "`mcpServers` in"),
        ('{"mcpServers": {"thresher": "x"}}', "`thresher` in"),
        ('{"mcpServers": {"thresher": {"url": "http://localhost"}}}', "without a command"),
    ],
)
def test_an_invalid_file_is_left_alone(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(ManualEditError, match=why):
        change(tmp_path, text)


def test_neither_of_two_entries_with_one_name_is_removed(tmp_path: Path) -> None:
    text = f'{{"mcpServers": {{"{SERVER_NAME}": {{"command": "a"}}, "{SERVER_NAME}": {{"command": "b"}}}}}}'
    with pytest.raises(ManualEditError, match="cannot be changed safely"):
        change(tmp_path, text, entry=None)


def test_a_folder_at_the_path_of_the_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(McpClientError, match="it is a folder"):
        plan_config_change(MCP_CLIENTS["cursor"], tmp_path / "mcp.json", OWN)


CODEX = build_server_entry(MCP_CLIENTS["codex"], COMMAND, {})
TOML = {
    "nothing": "",
    "settings": '# mine\nmodel = "x"   # the best\n',
    "other servers": '[mcp_servers.other]\ncommand = "npx"\n\n[profiles.a]\nmodel = "y"\n',
    "a table of servers": '[mcp_servers]\n\n[mcp_servers.other]\ncommand = "npx"\n',
    "Windows": 'model = "x"\r\n\r\n[tui]\r\ntheme = "dark"\r\n',
    "many lines": 'notes = """\n[mcp_servers.thresher]\n"""\n',
}


@pytest.mark.parametrize("text", TOML.values(), ids=TOML)
def test_a_table_is_appended_and_can_be_removed(tmp_path: Path, text: str) -> None:
    after = put(tmp_path, text, entry=CODEX, client="codex")
    assert after.decode().startswith(text)
    values = tomllib.loads(after.decode())
    assert values["mcp_servers"].pop(SERVER_NAME) == CODEX
    assert values == {"mcp_servers": {}} | tomllib.loads(text)
    if text != TOML["many lines"]:
        assert put(tmp_path, after, entry=None, client="codex").decode() == text


def test_text_that_looks_like_our_table_is_not_removed(tmp_path: Path) -> None:
    after = put(tmp_path, TOML["many lines"], entry=CODEX, client="codex")
    with pytest.raises(ManualEditError, match="cannot be changed safely"):
        change(tmp_path, after, entry=None, client="codex")


def test_a_file_without_a_final_newline_gets_one(tmp_path: Path) -> None:
    after = put(tmp_path, 'model = "x"', entry=CODEX, client="codex")
    assert after.decode().startswith('model = "x"\n\n[mcp_servers.thresher]\n')


def test_an_existing_table_is_changed_in_place(tmp_path: Path) -> None:
    text = (
        'model = "x"\n\n[ mcp_servers . "thresher" ]  # mine\ncommand = "/old"\nargs = ["mcp"] # why\nenabled = true\n'
        "\n# of b\n[mcp_servers.b]\ncommand = 'b'\n"
    )
    assert put(tmp_path, text, entry=CODEX, client="codex").decode() == text.replace("/old", COMMAND[0])


def test_a_table_is_removed_with_its_subtables_only(tmp_path: Path) -> None:
    text = (
        'model = "x"\n\n[mcp_servers.thresher]\ncommand = "a"\n\n[mcp_servers.thresher.env]\nA = "1"\n'
        "\n# of b\n[mcp_servers.b]\ncommand = 'b'\n"
    )
    left = "model = \"x\"\n\n# of b\n[mcp_servers.b]\ncommand = 'b'\n"
    assert put(tmp_path, text, entry=None, client="codex").decode() == left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model = ?", "line 1"),
        ("mcp_servers = 3", "`mcp_servers` in"),
        ("mcp_servers = { other = { command = 'npx' } }", "cannot be changed safely"),
        ("mcp_servers.thresher.command = 'old'", "cannot be changed safely"),
        ("[mcp_servers.thresher]\ncommand = 'old'\nargs = [\n  'mcp',\n  'x',\n]", "cannot be changed safely"),
        ("[mcp_servers.thresher]\nurl = 'http://localhost'", "without a command"),
    ],
)
def test_toml_without_a_safe_text_edit_is_left_alone(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ManualEditError, match=why):
        change(tmp_path, text, entry=CODEX, client="codex")
