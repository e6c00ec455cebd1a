"""Context of a parent when it started a sub-agent: generated histories, and every spawn of recorded sessions."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher.errors import OptionError
from thresher.model import History, Message, Session, Text, Thinking, ToolCall, ToolResult
from thresher.serve.parent_context import find_parent_context
from thresher.store import NotStoredError
from thresher.transcripts import read_all


def _human(text: str) -> Message:
    return Message("user", (Text(text),), "human")


def _model(*parts: Text | Thinking | ToolCall) -> Message:
    return Message("assistant", parts, "model")


def _result(call: str, text: str) -> Message:
    return Message("tool", (ToolResult(call, (Text(text),)),), "tool")


READ = _model(Text("I read it."), ToolCall("r", "Read", '{"file_path": "a.py"}'))
SPAWN = _model(
    Thinking("who could help"), Text("Two helpers."), ToolCall("t1", "Task", "{}"), ToolCall("t2", "Agent", "{}")
)
BEFORE = (_human("Fix the till."), READ, _result("r", "x = 1"))
CHILD = Session("claude-code", "abc123", "/c", (History((_human("look"),)),), call_id="t1")


def _session(*messages: Message, children: tuple[Session, ...] = (CHILD,)) -> Session:
    return Session("claude-code", "one", "/a", (History(messages),), children=children)


def test_a_sub_agent_gets_the_context_before_its_call() -> None:
    context = find_parent_context(
        _session(*BEFORE, SPAWN, _result("t1", "found"), _result("t2", "no"), _model(Text("Done."))), agent="abc"
    )
    assert context.history.messages[:3] == BEFORE
    assert context.history[3].parts == SPAWN.parts[:2]
    assert len(context.history) == 4
    assert "abc123" in context.moment


def test_the_default_is_the_call_that_is_still_open() -> None:
    context = find_parent_context(_session(*BEFORE, SPAWN))
    assert context.history.messages[:3] == BEFORE
    assert context.history[3].parts == SPAWN.parts[:2]
    assert "sub-agents" in context.moment
    request = _model(ToolCall("m", "mcp__thresher__get_context", "{}"))
    assert find_parent_context(_session(*BEFORE, request)).history.messages == BEFORE
    assert find_parent_context(_session(*BEFORE)).history.messages == BEFORE


def test_upto_counts_human_messages_and_not_tool_results() -> None:
    session = _session(*BEFORE, _model(Text("Done.")), _human("And the receipt?"), _model(Text("Too.")))
    assert find_parent_context(session, upto=1).history.messages == ()
    assert len(find_parent_context(session, upto=2).history) == 4
    whole = find_parent_context(session, upto=3)
    assert len(whole.history) == 6
    assert "only 2" in whole.moment
    with pytest.raises(OptionError, match="must be 1 or more"):
        find_parent_context(session, upto=0)


def test_a_nested_sub_agent_has_the_nearer_parent() -> None:
    inner = Session("claude-code", "def456", "/d", (History((_human("deeper"),)),), call_id="t9")
    outer = Session(
        "claude-code", "abc123", "/c", (History((_human("look"), _model(ToolCall("t9", "Task", "{}")))),), call_id="t1",
        children=(inner,),
    )  # fmt: skip
    context = find_parent_context(_session(*BEFORE, SPAWN, children=(outer,)), agent="def")
    assert [message.text for message in context.history] == ["look"]


def test_an_old_transcript_without_the_call_id_is_matched_by_the_prompt() -> None:
    spawn = _model(ToolCall("t1", "Task", '{"prompt": "look into it", "description": "look"}'))
    child = Session("claude-code", "abc123", "/c", (History((_human("look into it"),)),))
    assert find_parent_context(_session(*BEFORE, spawn, children=(child,)), agent="abc").history.messages == BEFORE


def test_unknown_sub_agents_are_rejected() -> None:
    with pytest.raises(NotStoredError, match="its sub-agents: abc123"):
        find_parent_context(_session(*BEFORE, SPAWN), agent="zzz")
    with pytest.raises(NotStoredError, match="no session holds the call"):
        find_parent_context(_session(*BEFORE), agent="abc")
    twins = (CHILD, Session("claude-code", "abc999", "/e", call_id="t2"))
    with pytest.raises(OptionError, match="abc123, abc999"):
        find_parent_context(_session(*BEFORE, SPAWN, children=twins), agent="abc")


Row = dict[str, Any]


def _rows(path: Path) -> dict[int, Row]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {number: json.loads(text) for number, text in enumerate(file, 1) if text.startswith("{")}


def _blocks(row: Row, kind: str) -> list[Row]:
    content = row["message"].get("content") if isinstance(row.get("message"), dict) else None
    return [one for one in content if one.get("type") == kind] if isinstance(content, list) else []


def _answered(rows: Iterable[Row]) -> set[str]:
    return {block["tool_use_id"] for row in rows for block in _blocks(row, "tool_result")}


def _made_at_once(rows: dict[int, Row], at: int) -> set[str]:
    """Return the calls of the same answer, whose results the model had not seen even if the file has them earlier."""
    answer = rows[at]["message"]["id"]
    same = (row for row in rows.values() if isinstance(row.get("message"), dict) and row["message"].get("id") == answer)
    return {block["id"] for row in same for block in _blocks(row, "tool_use")}


def _shown(rows: dict[int, Row], at: int) -> Iterator[Row]:
    """Yield the ancestors of a record, up to the last compaction."""
    places = {row["uuid"]: line for line, row in rows.items() if "uuid" in row}
    parent = rows[at].get("parentUuid")
    while parent in places:
        row = rows[places.pop(parent)]
        yield row
        if row.get("isCompactSummary"):
            return
        parent = row.get("parentUuid")


def test_every_recorded_sub_agent_gets_the_context_of_its_parent(shared_data: Path) -> None:
    """Compare with the raw records: the chain of parents of the record with the call."""
    checked = 0
    for path in sorted((shared_data / "claude_code").glob("*.gz")):
        every = [(session, child) for session in read_all(path) for child in session.children if child.call_id]
        rows = _rows(path) if every else {}
        for session, child in every:
            context = find_parent_context(session, agent=child.id).history
            spot = next(n for n, row in rows.items() if child.call_id in {b["id"] for b in _blocks(row, "tool_use")})
            results = {part.call_id for message in context for part in message.results}
            before = [*_shown(rows, spot)]
            assert _answered(before) - _made_at_once(rows, spot) <= results, (path.name, child.id)
            later = _answered(row for line, row in rows.items() if line > spot)
            earlier = _answered(row for line, row in rows.items() if line < spot)
            assert not results & (later - earlier), (path.name, child.id)
            said = "\n".join(message.text for message in context)
            prompts = [row["message"]["content"] for row in before if isinstance(row.get("message"), dict)]
            assert all(text.strip() in said for text in prompts if isinstance(text, str)), (path.name, child.id)
            checked += 1
    assert checked > 50
