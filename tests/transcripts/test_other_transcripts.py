"""Layouts of Codex, pi and mini-swe-agent that their fixtures do not have."""

import json
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from fixture_files import FIXTURES, own_fixture
from thresher.dialects.table import DIALECTS
from thresher.transcripts.source import import_zstd
from thresher.transcripts.table import TRANSCRIPT_FORMATS


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def read(path: Path) -> th.Session:
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def test_a_compressed_rollout_reads_like_a_plain_one(tmp_path: Path) -> None:
    plain = FIXTURES / "codex.jsonl"
    packed = tmp_path / "rollout.jsonl.zst"
    packed.write_bytes(import_zstd().compress(plain.read_bytes()))
    assert [m.parts for m in read(packed).messages()] == [m.parts for m in read(plain).messages()]


def test_a_rollout_of_2025_has_bare_items(tmp_path: Path) -> None:
    head = {"id": "abc", "timestamp": "2025-08-06T18:02:11Z", "instructions": "Be kind.", "git": {"branch": "main"}}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}
    shell = {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c", "output": '{"output":"x","metadata":{"exit_code":2}}'}
    session = read(write(tmp_path / "r.jsonl", head, {"record_type": "state"}, item, shell, output))
    assert (session.id, session.git_branch, len(session.history)) == ("abc", "main", 4)
    assert next(session.history[3].results).is_error


def test_an_encrypted_compaction_starts_a_segment_too(tmp_path: Path) -> None:
    meta = {"type": "session_meta", "payload": {"id": "x", "cwd": "/w"}}
    replaced = [{"type": "message", "role": "user", "content": "Hi"}, {"type": "compaction", "encrypted_content": "g"}]
    rows = [meta, {"type": "response_item", "payload": replaced[0]}]
    rows.append({"type": "compacted", "payload": {"message": "", "replacement_history": replaced}})
    session = read(write(tmp_path / "r.jsonl", *rows))
    assert (session.compactions, len(session.segments), len(list(session.messages()))) == (1, 2, 2)


def test_a_sub_agents_session_names_its_parent(tmp_path: Path) -> None:
    meta = {"id": "child", "cwd": "/w", "parent_thread_id": "parent", "source": {"subagent": "review"}}
    assert read(write(tmp_path / "r.jsonl", {"type": "session_meta", "payload": meta})).parent == "parent"


def test_the_first_version_of_pi_is_a_list(tmp_path: Path) -> None:
    def said(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "timestamp": "2026-01-01T00:00:00Z", "message": {"role": role, "content": text}}

    head = {"type": "session", "id": "s", "cwd": "/w", "timestamp": "2026-01-01T00:00:00Z"}
    compaction = {"type": "compaction", "summary": "One was said.", "firstKeptEntryIndex": 2, "tokensBefore": 9}
    rows = [head, said("user", "One"), said("user", "Two"), compaction, said("user", "Three")]
    session = read(write(tmp_path / "s.jsonl", *rows))
    assert [[m.text for m in segment] for segment in session.segments] == [
        ["One", "Two"],
        ["One was said.", "Two", "Three"],
    ]
    assert [m.text for m in session.messages()] == ["One", "Two", "One was said.", "Three"]


def test_a_trajectory_without_messages_is_a_clear_error(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", {"info": {}})
    with pytest.raises(th.ThresherError, match="no list of `messages`"):
        th.read(path, format="mini-swe-agent")


def test_many_conversations_in_one_file_are_a_list(tmp_path: Path) -> None:
    one = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    sessions = th.read_all(write(tmp_path / "many.jsonl", one, one))
    assert [session.id for session in sessions] == ["many-1", "many-2"]


def test_one_session_is_read_from_a_file_of_several_by_its_id(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": said}]} for said in ("Hi", "Bye")]
    path = write(tmp_path / "many.jsonl", *rows)
    assert [message.text for message in th.read(path, session="many-2").messages()] == ["Bye"]
    with pytest.raises(th.ReadError, match=r"2 sessions.*read_all.*many-1, many-2"):
        th.read(path)
    with pytest.raises(th.ReadError, match=r"not contain exactly one session `many-9`.*many-1, many-2"):
        th.read(path, session="many-9")


def test_one_message_per_line_is_one_conversation(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    assert len(read(write(tmp_path / "chat.jsonl", *rows)).history) == 2


@pytest.mark.parametrize("name", TRANSCRIPT_FORMATS)
def test_every_transcript_converts_to_every_dialect(name: str) -> None:
    history = th.read_all(own_fixture(name))[0].history
    for target in DIALECTS:
        again = th.parse(th.emit(history, target), target)
        assert [call.name for m in again for call in m.calls] == [call.name for m in history for call in m.calls]
