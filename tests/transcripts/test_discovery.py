"""Discovery of sessions on three systems and with the agents' settings."""

import sys
from pathlib import Path

import pytest

import thresher as th
from thresher.samples import write_samples
from thresher.transcripts import DiscoveredFile, TranscriptFormat, files_below
from thresher.transcripts.table import transcript_formats


def test_sessions_are_found_in_the_agents_own_folders(tmp_path: Path) -> None:
    write_samples(tmp_path)
    found = th.discover(environment={}, home=tmp_path)
    assert sorted(file.format for file in found) == ["claude-code", "claude-code", "codex", "pi"]
    assert all(th.sniff(file.path) == file.format for file in found)


def test_settings_of_the_agents_are_respected(tmp_path: Path) -> None:
    write_samples(tmp_path / "moved")
    environment = {
        "CLAUDE_CONFIG_DIR": str(tmp_path / "moved" / ".claude"),
        "CODEX_HOME": str(tmp_path / "moved" / ".codex"),
        "PI_CODING_AGENT_DIR": str(tmp_path / "moved" / ".pi" / "agent"),
        "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path / "moved" / "runs"),
    }
    found = th.discover(environment=environment, home=tmp_path / "empty")
    assert {file.format for file in found} == {"claude-code", "codex", "pi", "mini-swe-agent"}
    assert th.discover(environment={}, home=tmp_path / "empty") == []
    assert {file.format for file in th.discover(environment=environment, home=tmp_path, formats=["pi"])} == {"pi"}


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_agent_has_a_home_on_every_system(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for one in transcript_formats():
        assert all(home.folder.is_relative_to(tmp_path) for home in one.homes({}, tmp_path))


def test_a_cycle_of_links_ends(tmp_path: Path) -> None:
    write_samples(tmp_path)
    folder = tmp_path / ".claude" / "projects" / "-home-sam-shop"
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (tmp_path / ".codex" / "sessions" / "loop").symlink_to(tmp_path / ".codex", target_is_directory=True)
    assert len(th.discover(environment={}, home=tmp_path)) == 4


def test_a_sub_agents_file_is_not_a_session(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-w"
    folder.mkdir(parents=True)
    (folder / "agent-a1.jsonl").write_text("{}\n")
    assert th.discover(environment={}, home=tmp_path) == []


NEWER = {
    "another ending": (
        ".gemini/tmp/shop/chats",
        ["session-1.json", "session-1.jsonl", "session-2.json"],
        {"session-1.jsonl", "session-2.json"},
    ),
    "a database beside it": (".local/share/goose/sessions", ["20250101_1.jsonl", "sessions.db"], {"sessions.db"}),
    "a database above it": (
        ".local/share/opencode",
        ["opencode.db", "storage/session/p/ses_1.json", "project/p/storage/session/info/ses_2.json"],
        {"opencode.db"},
    ),
}


@pytest.mark.parametrize(("folder", "names", "kept"), NEWER.values(), ids=list(NEWER))
def test_a_superseded_file_is_not_discovered(tmp_path: Path, folder: str, names: list[str], kept: set[str]) -> None:
    for name in names:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert {file.path.name for file in th.discover(environment={}, home=tmp_path)} == kept


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("found", [*transcript_formats()], ids=lambda found: found.name)
def test_a_file_in_any_home_of_an_agent_is_found(
    found: TranscriptFormat, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for home in found.homes({}, tmp_path):
        path = home.folder / home.pattern.replace("**/", "some/where/").replace("*", "x").replace("?", "x")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        assert th.discover(environment={}, home=tmp_path, formats=[found.name]) == [DiscoveredFile(found.name, path)]
        path.unlink()


def test_data_of_thresher_is_not_listed(tmp_path: Path) -> None:
    for name in ("session.jsonl", ".thresher/memory/archive.sqlite3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert list(files_below(tmp_path)) == [str(tmp_path / "session.jsonl")]
