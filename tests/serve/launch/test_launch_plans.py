"""How each agent is sent through the proxy, from its settings, its login and its arguments."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from thresher.serve.launch.agent import LaunchContext, LaunchError, parse_json_settings, read_variable_file
from thresher.serve.launch.launcher import add_variables, build_command, find_routes
from thresher.serve.launch.table import AGENTS, describe_command

PROXY = "http://127.0.0.1:8788"
OWN = "https://models.example.org"


class Planned(NamedTuple):
    """A planned run: where requests go, and what the agent gets."""

    routes: dict[str, str]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    notes: tuple[str, ...]


def plan(
    agent: str,
    place: Path,
    *arguments: str,
    files: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Planned:
    """Plan a run of an agent with files in its home; a path that starts with `project/` is in the project."""
    home, folder = place / "home", place / "home" / "project"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files or {}).items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    row = AGENTS.get(agent) or describe_command(agent)
    launch = row.plan(LaunchContext(arguments, environment or {}, home, folder))
    command = build_command(launch, PROXY, place)
    return Planned(find_routes(launch), command.arguments, command.variables, launch.notes)


def through(name: str, path: str = "") -> str:
    """Return the address of an upstream in the proxy."""
    return f"{PROXY}/thresher/to/{name}{path}"


# --- Claude Code ---------------------------------------------------------------------------------------------


def test_claude_code_gets_a_variable(tmp_path: Path) -> None:
    planned = plan("claude", tmp_path, "-p", "hi")
    assert planned.routes == {"anthropic": "https://api.anthropic.com"}
    assert planned.arguments == ("-p", "hi")
    assert planned.variables == {"ANTHROPIC_BASE_URL": through("anthropic"), "ENABLE_TOOL_SEARCH": "true"}


def test_a_base_url_of_the_user_becomes_the_upstream(tmp_path: Path) -> None:
    planned = plan("claude", tmp_path, environment={"ANTHROPIC_BASE_URL": f"{OWN}/llm/"})
    assert planned.routes == {"anthropic": OWN}
    assert planned.variables == {"ANTHROPIC_BASE_URL": through("anthropic", "/llm")}


@pytest.mark.parametrize(
    "file", [".claude/settings.json", "project/.claude/settings.json", "project/.claude/settings.local.json"]
)
def test_claude_codes_settings_win_over_variables(tmp_path: Path, file: str) -> None:
    settings = {"env": {"ANTHROPIC_BASE_URL": OWN}}
    planned = plan("claude", tmp_path, "-p", "hi", files={file: settings})
    assert planned.routes == {"anthropic": OWN}
    option, text, *rest = planned.arguments
    assert (option, rest) == ("--settings", ["-p", "hi"])
    assert json.loads(text) == {"env": {"ANTHROPIC_BASE_URL": through("anthropic")}}


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_settings_in_the_call_of_claude_code_stay(tmp_path: Path, *, is_file: bool, joined: bool) -> None:
    settings = {"model": "opus", "env": {"ANTHROPIC_BASE_URL": OWN, "X": "1"}}
    value = "mine.json" if is_file else json.dumps(settings)
    given = (f"--settings={value}",) if joined else ("--settings", value)
    planned = plan("claude", tmp_path, *given, "-c", files={"project/mine.json": settings})
    option, text, *rest = planned.arguments
    assert (option, rest) == ("--settings", ["-c"])
    assert json.loads(text) == {"model": "opus", "env": {"ANTHROPIC_BASE_URL": through("anthropic"), "X": "1"}}


def test_claude_code_on_another_cloud_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="Amazon Bedrock"):
        plan("claude", tmp_path, environment={"CLAUDE_CODE_USE_BEDROCK": "1"})
    with pytest.raises(LaunchError, match="Vertex"):
        plan("claude", tmp_path, files={".claude/settings.json": {"env": {"CLAUDE_CODE_USE_VERTEX": 1}}})
    assert plan("claude", tmp_path / "off", environment={"CLAUDE_CODE_USE_BEDROCK": "0"}).routes


# --- Codex ---------------------------------------------------------------------------------------------------

CHATGPT = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": {"access_token": "x"}}


@pytest.mark.parametrize(
    ("login", "environment", "upstream", "path"),
    [
        ({"OPENAI_API_KEY": "sk-x"}, {}, "https://api.openai.com", "/v1"),
        ({}, {"CODEX_API_KEY": "sk-x"}, "https://api.openai.com", "/v1"),
        (CHATGPT, {}, "https://chatgpt.com", "/backend-api/codex"),
        (CHATGPT, {"CODEX_API_KEY": "sk-x"}, "https://api.openai.com", "/v1"),
        ({}, {}, "https://api.openai.com", "/v1"),
    ],
)
def test_codexs_login_chooses_the_upstream(
    tmp_path: Path, login: dict[str, object], environment: dict[str, str], upstream: str, path: str
) -> None:
    planned = plan("codex", tmp_path, "exec", "hi", files={".codex/auth.json": login}, environment=environment)
    assert planned.routes == {"openai": upstream}
    assert planned.arguments == ("-c", f'openai_base_url="{through("openai", path)}"', "exec", "hi")


CODEX = f"""
model_provider = "own"
[model_providers.own]
base_url = "{OWN}/v1"
[model_providers.other]
base_url = "https://other.example.org/v2"
[profiles.work]
model_provider = "other"
"""


@pytest.mark.parametrize(
    ("arguments", "provider", "upstream", "path", "kept"),
    [
        ((), "own", OWN, "/v1", ()),
        (("--profile", "work"), "other", "https://other.example.org", "/v2", ("--profile", "work")),
        (
            ("-c", "model_provider=other"),
            "other",
            "https://other.example.org",
            "/v2",
            ("-c", "model_provider=other"),
        ),
        (("-c", "model_providers.own.base_url='http://[::1]:1/x'"), "own", "http://[::1]:1", "/x", ()),
    ],
)
def test_codexs_own_providers(
    tmp_path: Path, arguments: tuple[str, ...], provider: str, upstream: str, path: str, kept: tuple[str, ...]
) -> None:
    planned = plan("codex", tmp_path, *arguments, files={".codex/config.toml": CODEX})
    assert planned.routes == {"openai": upstream}
    assert planned.arguments == ("-c", f'model_providers.{provider}.base_url="{through("openai", path)}"', *kept)


def test_codex_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="--oss"):
        plan("codex", tmp_path, "--oss")
    with pytest.raises(LaunchError, match="`nowhere` has no base_url"):
        plan("codex", tmp_path, "-c", "model_provider=nowhere")


# --- Gemini CLI ----------------------------------------------------------------------------------------------


def test_gemini_cli_gets_a_variable(tmp_path: Path) -> None:
    planned = plan(
        "gemini", tmp_path, files={"project/.gemini/.env": f'export GOOGLE_GEMINI_BASE_URL="{OWN}" # ours\n'}
    )
    assert planned.routes == {"gemini": OWN}
    assert planned.variables == {"GOOGLE_GEMINI_BASE_URL": through("gemini")}


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"security": {"auth": {"selectedType": "oauth-personal"}}}, {}),
        ({"security": {"auth": {"selectedType": "vertex-ai"}}}, {}),
        ({}, {"GOOGLE_GENAI_USE_VERTEXAI": "true"}),
    ],
)
def test_a_google_login_of_gemini_cli_is_refused(
    tmp_path: Path, settings: dict[str, object], environment: dict[str, str]
) -> None:
    with pytest.raises(LaunchError, match="GEMINI_API_KEY"):
        plan("gemini", tmp_path, files={".gemini/settings.json": settings}, environment=environment)


# --- opencode, pi, Cline -------------------------------------------------------------------------------------


def test_opencode_gets_settings_for_all_its_providers(tmp_path: Path) -> None:
    config = '{ "provider": { "own": { "options": { "baseURL": "https://models.example.org/v1", } } } } // mine'
    planned = plan(
        "opencode",
        tmp_path,
        files={
            ".config/opencode/opencode.jsonc": config,
            ".local/share/opencode/auth.json": {"anthropic": {"type": "api"}, "openai": {"type": "oauth"}},
            ".cache/opencode/models.json": {"anthropic": {"env": ["ANTHROPIC_API_KEY"]}},
        },
        environment={"GROQ_API_KEY": "x", "OPENCODE_CONFIG_CONTENT": '{"model": "own/m"}'},
    )
    groq = "https://api.groq.com"
    assert planned.routes == {"own": OWN, "anthropic": "https://api.anthropic.com", "groq": groq}
    settings = json.loads(planned.variables["OPENCODE_CONFIG_CONTENT"])
    assert settings["model"] == "own/m"
    urls = {name: entry["options"]["baseURL"] for name, entry in settings["provider"].items()}
    assert urls == {
        "own": through("own", "/v1"),
        "anthropic": through("anthropic", "/v1"),
        "groq": through("groq", "/openai/v1"),
    }
    assert planned.notes == ("requests to openai do not go through the proxy: its login uses a fixed address",)


def test_opencode_without_a_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no provider yet"):
        plan("opencode", tmp_path)
    with pytest.raises(LaunchError, match="login for openai"):
        plan("opencode", tmp_path, files={".local/share/opencode/auth.json": {"openai": {"type": "oauth"}}})


def test_pi_gets_an_extension(tmp_path: Path) -> None:
    models = {"providers": {"anthropic": {"baseUrl": OWN}, "mine": {"baseUrl": f"{OWN}/v1"}}}
    planned = plan("pi", tmp_path, "-p", "hi", files={".pi/agent/models.json": models})
    assert (planned.routes["anthropic"], planned.routes["mine"]) == (OWN, OWN)
    option, file, *rest = planned.arguments
    assert (option, rest) == ("--extension", ["-p", "hi"])
    lines = Path(file).read_text().splitlines()
    assert f'  pi.registerProvider("mine", {{ baseUrl: "{through("mine", "/v1")}" }});' in lines
    assert f'  pi.registerProvider("openai", {{ baseUrl: "{through("openai", "/v1")}" }});' in lines


def test_cline_gets_a_copy_of_its_settings(tmp_path: Path) -> None:
    providers = {
        "openai-native": {"settings": {"apiKey": "sk-x", "model": "m"}, "tokenSource": "manual"},
        "cline": {"settings": {"auth": {"accessToken": "x"}}, "tokenSource": "oauth"},
    }
    file = ".cline/data/settings/providers.json"
    planned = plan("cline", tmp_path, files={file: {"version": 1, "providers": providers}})
    copy = Path(planned.variables["CLINE_PROVIDER_SETTINGS_PATH"])
    changed = json.loads(copy.read_text())
    assert changed["providers"]["openai-native"]["settings"]["baseUrl"] == through("openai-native", "/v1")
    assert (changed["version"], changed["providers"]["cline"]) == (1, providers["cline"])
    assert copy.stat().st_mode & 0o077 == 0
    assert "requests to cline do not go through the proxy" in planned.notes
    assert json.loads((tmp_path / "home" / file).read_text())["providers"] == providers


def test_cline_with_a_login_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cline auth"):
        plan("cline", tmp_path)


# --- agents that read variables ------------------------------------------------------------------------------


def test_aider_gets_arguments_because_its_env_files_win(tmp_path: Path) -> None:
    planned = plan("aider", tmp_path, "-m", "hi", files={"project/.env": f"OPENAI_API_BASE={OWN}/v1\n"})
    assert planned.routes["openai"] == OWN
    assert planned.arguments[-2:] == ("-m", "hi")
    assert ("--set-env", f"OPENAI_API_BASE={through('openai', '/v1')}") in zip(
        planned.arguments, planned.arguments[1:], strict=False
    )


def test_goose_gets_hosts(tmp_path: Path) -> None:
    planned = plan("goose", tmp_path, files={".config/goose/config.yaml": f"GOOSE_MODE: auto\nOPENAI_HOST: {OWN}\n"})
    assert planned.routes["openai"] == OWN
    assert planned.variables["OPENAI_HOST"] == through("openai")
    assert planned.variables["ANTHROPIC_HOST"] == through("anthropic")


def test_any_other_command_gets_the_usual_variables(tmp_path: Path) -> None:
    planned = plan("my-agent", tmp_path, "x")
    assert planned.arguments == ("x",)
    assert planned.variables == {
        "ANTHROPIC_BASE_URL": through("anthropic"),
        "OPENAI_BASE_URL": through("openai", "/v1"),
        "OPENAI_API_BASE": through("openai", "/v1"),
        "GOOGLE_GEMINI_BASE_URL": through("gemini"),
    }


# --- shared parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", [name for name in AGENTS if name not in ("opencode", "cline")])
def test_broken_settings_are_like_missing_ones(tmp_path: Path, agent: str) -> None:
    names = (".claude/settings.json", ".codex/config.toml", ".codex/auth.json", ".gemini/settings.json", ".env")
    broken = dict.fromkeys((*names, ".pi/agent/models.json", ".config/goose/config.yaml"), '[{"env": 3')
    assert plan(agent, tmp_path / "broken", files=broken).routes == plan(agent, tmp_path / "missing").routes


@pytest.mark.parametrize("url", ["ftp://x", "http://", "models.example.org", "https://user:secret@models.example.org"])
def test_an_unusable_base_url_is_refused_without_its_secret(tmp_path: Path, url: str) -> None:
    with pytest.raises(LaunchError) as caught:
        plan("claude", tmp_path, environment={"ANTHROPIC_BASE_URL": url})
    assert "secret" not in str(caught.value)


def test_requests_to_the_proxy_do_not_take_the_systems_proxy() -> None:
    assert add_variables({"A": "1"}, {"B": "2"}) == {"A": "1", "B": "2"}
    merged = add_variables({"https_proxy": "http://proxy:3128", "NO_PROXY": "x.org"}, {})
    assert merged["NO_PROXY"] == "x.org,127.0.0.1,localhost"
    assert merged["no_proxy"] == "127.0.0.1,localhost"


def test_comments_in_settings() -> None:
    assert parse_json_settings('{"a": "//x", /* no */ "b": [1, 2,],} // end') == {"a": "//x", "b": [1, 2]}


def test_variables_in_files(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# A=0\nA=1\nexport B='two'\nC: three # four\nD=has space\n  E=5\n")
    assert read_variable_file(tmp_path / ".env") == {"A": "1", "B": "two", "C": "three"}
