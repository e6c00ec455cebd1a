"""The samples are deterministic, well formed, and contain the documented cases."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from make_samples.__main__ import ARCHIVE
from make_samples.archive import pack_samples
from thresher.samples import write_samples

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_samples(folder)
    return folder


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def claude_files(home: Path) -> list[Path]:
    return sorted((home / ".claude").rglob("*.jsonl"))


def long_session(home: Path) -> Path:
    project = home / ".claude" / "projects" / "-home-sam-shop"
    return max(project.glob("*.jsonl"), key=lambda path: path.stat().st_size)


def short_session(home: Path) -> Path:
    project = home / ".claude" / "projects" / "-home-sam-shop"
    return min(project.glob("*.jsonl"), key=lambda path: path.stat().st_size)


def blocks(rows: Rows, kind: str) -> list[dict[str, Any]]:
    contents = (row["message"]["content"] for row in rows if "message" in row)
    return [block for content in contents if isinstance(content, list) for block in content if block["type"] == kind]


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.rglob(pattern)
    return path


def test_the_same_bytes_every_time(home: Path, tmp_path: Path) -> None:
    again = write_samples(tmp_path)
    assert len(again) == len(set(again)) == 7
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(again)
    for path in again:
        assert path.read_bytes() == (home / path.relative_to(tmp_path)).read_bytes()


def test_the_generator_produces_exactly_the_shipped_archive() -> None:
    """Compares the unpacked content, because compressed bytes depend on the machine's zlib."""
    assert gzip.decompress(pack_samples()) == gzip.decompress(ARCHIVE.read_bytes())


def test_the_set_is_small_but_not_tiny(home: Path) -> None:
    assert 150_000 < sum(path.stat().st_size for path in home.rglob("*") if path.is_file()) < 350_000


def test_every_line_is_an_object(home: Path) -> None:
    for path in home.rglob("*.jsonl"):
        assert all(isinstance(row, dict) for row in rows_of(path)), path
        assert path.read_bytes().endswith(b"}\n")
    for path in home.rglob("*.json"):
        assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict)


def test_parents_come_first(home: Path) -> None:
    for path in claude_files(home):
        known: set[str | None] = {None}
        for row in rows_of(path):
            assert row.get("parentUuid") in known, path
            assert row.get("uuid") is None or row["uuid"] not in known, "an id is given once"
            known.add(row.get("uuid"))


def test_times_never_decrease(home: Path) -> None:
    for path in home.rglob("*.jsonl"):
        times = [row["timestamp"] for row in rows_of(path) if "timestamp" in row]
        assert times == sorted(times), path


def test_results_refer_to_their_own_calls(home: Path) -> None:
    for path in claude_files(home):
        rows = rows_of(path)
        lines = {block["id"]: row["uuid"] for row in rows for block in blocks([row], "tool_use")}
        for row in rows:
            for block in blocks([row], "tool_result"):
                assert row["parentUuid"] == lines[block["tool_use_id"]]


def test_one_answer_spans_several_lines(home: Path) -> None:
    answers: dict[tuple[str, str], list[int]] = {}
    for row in rows_of(long_session(home)):
        if row["type"] == "assistant":
            key = (row["message"]["id"], row["requestId"])
            answers.setdefault(key, []).append(row["message"]["usage"]["output_tokens"])
    assert max(map(len, answers.values())) >= 4
    for spent in answers.values():
        assert spent == sorted(spent)


def test_two_parallel_calls_leave_one_result_off_the_main_path(home: Path) -> None:
    rows = rows_of(long_session(home))
    parents = {row.get("parentUuid") for row in rows}
    results = [row for row in rows if blocks([row], "tool_result")]
    assert any(row["uuid"] not in parents for row in results)


def test_the_long_session_is_compacted_once(home: Path) -> None:
    rows = rows_of(long_session(home))
    (boundary,) = [row for row in rows if row.get("subtype") == "compact_boundary"]
    (summary,) = [row for row in rows if row.get("isCompactSummary")]
    assert boundary["parentUuid"] is None
    assert boundary["logicalParentUuid"] in {row.get("uuid") for row in rows}
    assert summary["parentUuid"] == boundary["uuid"]
    assert sum(row["type"] == "assistant" for row in rows[rows.index(summary) :]) > 3


def test_the_long_session_was_rewound(home: Path) -> None:
    rows = rows_of(long_session(home))
    asked = [row for row in rows if row["type"] == "user" and "toolUseResult" not in row]
    (count,) = [count for count in Counter(row["parentUuid"] for row in asked).values() if count > 1]
    assert count == 2


def test_a_sub_agent_has_its_own_file(home: Path) -> None:
    session = long_session(home)
    folder = session.with_suffix("") / "subagents"
    rows = rows_of(only(folder, "agent-*.jsonl"))
    facts = json.loads(only(folder, "agent-*.meta.json").read_text(encoding="utf-8"))
    (call,) = [block for block in blocks(rows_of(session), "tool_use") if block["name"] == "Task"]
    (note,) = [
        row["toolUseResult"]
        for row in rows_of(session)
        if isinstance(row.get("toolUseResult"), dict) and "agentId" in row["toolUseResult"]
    ]
    assert facts["toolUseId"] == call["id"]
    assert {row["agentId"] for row in rows} == {note["agentId"]}
    assert all(row["isSidechain"] and row["sessionId"] == session.stem for row in rows)


def test_a_failing_run_is_fixed(home: Path) -> None:
    results = blocks(rows_of(long_session(home)), "tool_result")
    failed = [place for place, block in enumerate(results) if block.get("is_error")]
    passed = [place for place, block in enumerate(results) if "116 passed" in str(block["content"])]
    assert len(failed) == 3
    assert max(failed) < max(passed)
    assert max(len(str(results[place]["content"])) for place in failed) >= 12_000


def test_a_file_is_read_again_and_again(home: Path) -> None:
    calls = blocks(rows_of(long_session(home)), "tool_use")
    reads = Counter(block["input"]["file_path"] for block in calls if block["name"] == "Read")
    assert reads == {"/home/sam/shop/src/shop/prices.py": 3, "/home/sam/shop/src/shop/cart.py": 2}


def test_every_kind_of_record_is_present(home: Path) -> None:
    rows = rows_of(long_session(home))
    kinds = {row["type"] for row in rows}
    assert kinds >= {
        "user",
        "assistant",
        "system",
        "progress",
        "file-history-snapshot",
        "queue-operation",
        "ai-title",
    }
    assert {block["name"] for block in blocks(rows, "tool_use")} >= {
        "Read",
        "Edit",
        "Write",
        "Bash",
        "TodoWrite",
    }
    assert "<system-reminder>" in str(rows)


def test_the_short_session_was_interrupted(home: Path) -> None:
    rows = rows_of(short_session(home))
    asked = [block["id"] for block in blocks(rows, "tool_use")]
    answered = {block["tool_use_id"] for block in blocks(rows, "tool_result")}
    assert [call for call in asked if call not in answered] == asked[-1:]


def test_codex_matches_its_calls_and_compacts(home: Path) -> None:
    rows = rows_of(only(home / ".codex", "rollout-*.jsonl"))
    items = [row["payload"] for row in rows if row["type"] == "response_item"]
    calls = [item["call_id"] for item in items if item["type"] in ("function_call", "custom_tool_call")]
    results = [item["call_id"] for item in items if item["type"].endswith("_output")]
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(results)
    (compacted,) = [row["payload"] for row in rows if row["type"] == "compacted"]
    assert compacted["replacement_history"]
    events = {row["payload"]["type"] for row in rows if row["type"] == "event_msg"}
    assert events >= {"user_message", "agent_message", "token_count", "task_started", "task_complete"}


def test_pi_has_a_branch_and_a_failed_command(home: Path) -> None:
    header, *rows = rows_of(only(home / ".pi", "*.jsonl"))
    assert header["version"] == 3
    known: set[str | None] = {None}
    for row in rows:
        assert row["parentId"] in known
        known.add(row["id"])
    assert len(known) == len(rows) + 1
    assert max(Counter(row["parentId"] for row in rows).values()) == 2
    (compaction,) = [row for row in rows if row["type"] == "compaction"]
    assert compaction["firstKeptEntryId"] in known
    results = [row["message"] for row in rows if row.get("message", {}).get("role") == "toolResult"]
    assert any(result["isError"] and result["toolName"] == "bash" for result in results)


def test_mini_swe_agent_ends_with_its_patch(home: Path) -> None:
    document = json.loads(only(home, "*.traj.json").read_text(encoding="utf-8"))
    messages = document["messages"]
    assert document["trajectory_format"] == "mini-swe-agent-1.1"
    assert messages[-1]["role"] == "exit"
    assert messages[-1]["content"] == document["info"]["submission"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert calls[:-1] == results
    assert any("<returncode>1</returncode>" in message["content"] for message in messages)
