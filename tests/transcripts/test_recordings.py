"""Real recordings, compared with the counts in their index.

Some counts differ on purpose: calls of inline sub-agents belong to the sub-agent; a line with two records is read as
both; searches of Codex are items too; the index counts a compaction as boundary and summary, and a harness's own
trimming (`microcompact_boundary`) as one more.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.errors import UnknownFormatError
from thresher.render.session_row import SessionRow, make_session_row

KINDS = ("claude_code", "codex", "mini_swe", "opencode", "pi")
GLUED = {"claude_code/entire-025.jsonl.gz"}
SEARCHES = ("response_item:web_search_call", "response_item:tool_search_call", "response_item:tool_search_output")


def counted(folder: Path, kind: str) -> list[tuple[dict[str, Any], th.Session, SessionRow]]:
    rows = map(json.loads, (folder / "index.jsonl").read_text(encoding="utf-8").splitlines())
    wanted = [row for row in rows if row["file"].startswith(f"{kind}/")]
    sessions = [th.read(folder / row["file"]) for row in wanted]
    return [
        (row, one, make_session_row(one))
        for row, one in zip(wanted, sessions, strict=True)
        if isinstance(one, th.Session)
    ]


def records(kind: str, row: SessionRow) -> int:
    match kind:
        case "claude_code":
            return row.records.get("user", 0) + row.records.get("assistant", 0)
        case "codex":
            items = {name: n for name, n in row.records.items() if not name.startswith(("event_msg", "turn_context"))}
            others = ("session_meta", "compacted", "state", "head", *SEARCHES)
            return sum(n for name, n in items.items() if name not in others)
        case "opencode":
            return row.records["user"] + row.records["assistant"]
        case "pi":
            return row.records["message"]
        case _:
            return sum(row.records.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_counts_agree_with_the_index(kind: str, shared_data: Path) -> None:
    found = counted(shared_data, kind)
    assert found
    for expected, session, row in found:
        inline = [child for child in session.children if child.file == session.file]
        theirs = sum(1 for child in inline for message in child.messages() for _ in message.calls)
        doubled = 1 if expected["file"] in GLUED else 0
        assert records(kind, row) == expected["msgs"] + doubled, expected["file"]
        assert expected["calls"] in (row.calls, row.calls + theirs), expected["file"]
        assert row.subagents == expected["subagent_calls"], expected["file"]


def test_no_result_of_a_recording_is_lost(shared_data: Path) -> None:
    """In the raw records, every result has its call, except a few that are redacted."""
    rows = [row for kind in KINDS for _, _, row in counted(shared_data, kind)]
    assert sum(row.results for row in rows) > 19_000
    assert sum(row.unpaired for row in rows) < 150


FORMAT_OF = {
    "adk": "adk",
    "aider": "aider",
    "atif": "atif",
    "bfcl": "generic",
    "claude_code": "claude-code",
    "cline_roo": "cline",
    "codex": "codex",
    "copilot_cli": "copilot-cli",
    "gemini_cli": "gemini-cli",
    "goose": "goose",
    "mini_swe": "mini-swe-agent",
    "multi_agent": "generic",
    "opencode": "opencode",
    "openhands": "openhands",
    "pi": "pi",
    "smolagents": "generic",
    "swe_agent": "swe-agent",
    "trail_otel": "otel",
}
NO_CONVERSATION = ("bfcl/doc-", "goose/rec-003.")
"""Function definitions; an empty document."""
EMPTY = "obra-003.jsonl.gz"
"""A session with metadata only."""


@pytest.mark.parametrize("kind", FORMAT_OF)
def test_every_recording_is_detected_and_read(kind: str, shared_data: Path) -> None:
    for path in sorted((shared_data / kind).iterdir()):
        if str(path.relative_to(shared_data)).startswith(NO_CONVERSATION):
            with pytest.raises(UnknownFormatError):
                th.read_all(path)
            continue
        assert th.sniff(path) == FORMAT_OF[kind], path.name
        sessions = th.read_all(path)
        if path.name != EMPTY:
            assert any(len(session.history) for session in sessions), path.name
        assert {session.agent for session in sessions} == {FORMAT_OF[kind]}
