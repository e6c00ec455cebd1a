"""Layouts of Claude Code files."""

import json
from pathlib import Path
from typing import Any

import thresher as th
from thresher.model import Session, Unknown, content_id
from thresher.samples import write_samples

ID = "0f0f0f0f-1111-4222-8333-444444444444"


def row(kind: str, uuid: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content} | ({"id": f"m-{uuid}"} if kind == "assistant" else {})
    base = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": ID, "cwd": "/w", "message": message}
    return base | {"timestamp": "2026-01-02T03:04:05Z"} | fields


def call(id_: str, name: str = "Agent") -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": id_, "name": name, "input": {"description": "Look", "prompt": "Look around"}}]


def result(id_: str, text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id_, "content": text}]


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def read(path: Path) -> Session:
    session = th.read(path)
    assert isinstance(session, Session)
    return session


def sidechain(agent: str | None, prefix: str) -> list[dict[str, Any]]:
    fields = {"isSidechain": True} | ({"agentId": agent} if agent else {})
    return [
        row("user", f"{prefix}1", None, "Look around", **fields),
        row("assistant", f"{prefix}2", f"{prefix}1", [{"type": "text", "text": "Nothing."}], **fields),
    ]


def main_rows(agent: str, **answer: Any) -> list[dict[str, Any]]:
    return [
        row("user", "u", None, "Please look."),
        row("assistant", "a", "u", call("t1")),
        row("user", "r", "a", result("t1", "Nothing."), toolUseResult={"agentId": agent} | answer),
    ]


def test_inline_sidechains_become_children(tmp_path: Path) -> None:
    session = read(write(tmp_path / f"{ID}.jsonl", *main_rows("x1"), *sidechain("x1", "s"), *sidechain(None, "q")))
    assert [(child.id, child.call_id, len(child.history)) for child in session.children] == [
        ("x1", "t1", 2),
        ("q1", "", 2),
    ]
    assert len(session.history) == 3


def test_agent_files_next_to_the_session_become_children(tmp_path: Path) -> None:
    path = write(tmp_path / f"{ID}.jsonl", *main_rows("x2"))
    write(tmp_path / "agent-x2.jsonl", *sidechain("x2", "s"))
    write(tmp_path / "agent-other.jsonl", *sidechain("other", "s"))
    [child] = read(path).children
    assert (child.id, child.parent, child.call_id) == ("x2", ID, "t1")
    assert [message.author for message in child.history] == ["model", "model"]


def test_agent_files_below_the_session_are_linked_by_their_meta(tmp_path: Path) -> None:
    path = write(tmp_path / f"{ID}.jsonl", *main_rows("other"))
    folder = tmp_path / ID / "subagents"
    write(folder / "workflows" / "run" / "agent-x3.jsonl", *sidechain("x3", "s"))
    (folder / "workflows" / "run" / "agent-x3.meta.json").write_text('{"toolUseId": "t9", "description": "Deep look"}')
    [child] = read(path).children
    assert (child.id, child.call_id, child.title) == ("x3", "t9", "Deep look")


def test_a_background_agent_is_linked_by_its_notification(tmp_path: Path) -> None:
    note = "<task-notification><task-id>x4</task-id>\n<tool-use-id>t1</tool-use-id></task-notification>"
    rows = [row("user", "u", None, "Go."), row("assistant", "a", "u", call("t1")), row("user", "n", "a", note)]
    path = write(tmp_path / f"{ID}.jsonl", *rows)
    write(tmp_path / "agent-x4.jsonl", *sidechain("x4", "s"))
    session = read(path)
    assert [(child.id, child.call_id) for child in session.children] == [("x4", "t1")]
    assert session.history[2].author == "harness"


def test_an_agent_file_read_alone_has_a_parent(tmp_path: Path) -> None:
    session = read(write(tmp_path / "agent-x5.jsonl", *sidechain("x5", "s")))
    assert (session.id, session.parent, len(session.history)) == ("x5", ID, 2)


def test_results_of_parallel_calls_off_the_path_are_restored(tmp_path: Path) -> None:
    one = row("assistant", "a1", "u", call("t1", "Read"))
    two = row("assistant", "a2", "a1", call("t2", "Read"))
    two["message"]["id"] = one["message"]["id"]
    rows = [row("user", "u", None, "Read both."), one, row("user", "r1", "a1", result("t1", "1")), two]
    rows += [
        row("user", "r2", "a2", result("t2", "2")),
        row("assistant", "b", "r2", [{"type": "text", "text": "Done"}]),
    ]
    session = read(write(tmp_path / f"{ID}.jsonl", *rows))
    assert [len(message.parts) for message in session.history] == [1, 2, 2, 1]
    assert all(chain.result for chain in session.history.chains)
    assert session.branches == ()


def test_spilled_outputs_are_found_only_in_the_sessions_own_folder(tmp_path: Path) -> None:
    spilled = "<persisted-output>\nOutput too large. Full output saved to: {}\n\nPreview:\nabc</persisted-output>"
    here = row("user", "r1", "a", result("t1", spilled.format(f"/home/u/.claude/projects/x/{ID}/tool-results/t1.txt")))
    away = row("user", "r2", "r1", result("t2", spilled.format("/home/u/.claude/projects/x/y/tool-results/../../etc")))
    rows = [row("user", "u", None, "Go."), row("assistant", "a", "u", [*call("t1", "Bash"), *call("t2", "Bash")])]
    path = write(tmp_path / f"{ID}.jsonl", *rows, here | {"toolUseResult": {}}, away | {"toolUseResult": {}})
    (tmp_path / ID / "tool-results").mkdir(parents=True)
    (tmp_path / ID / "tool-results" / "t1.txt").write_text("abc" * 100_000)
    session = read(path)
    assert session.spilled == {"t1": str(tmp_path / ID / "tool-results" / "t1.txt")}


def test_a_fork_that_repeats_its_parent_names_it(tmp_path: Path) -> None:
    fork = row("user", "u", None, "Hello.", forkedFrom={"sessionId": "parent", "messageUuid": "x"})
    assert read(write(tmp_path / f"{ID}.jsonl", fork)).parent == "parent"
    other = "aaaaaaaa-1111-4222-8333-444444444444"
    assert read(write(tmp_path / f"{other}.jsonl", row("user", "u", None, "Hello."))).parent == ID


def test_usage_is_taken_once_from_the_last_line_of_a_message(tmp_path: Path) -> None:
    rows = [row("user", "u", None, "Hi")]
    for number, output in enumerate((5, 631), 1):
        line = row("assistant", f"a{number}", f"a{number - 1}" if number > 1 else "u", [{"type": "text", "text": "x"}])
        line["message"] |= {"id": "same", "usage": {"input_tokens": 2, "output_tokens": output}}
        rows.append(line)
    session = read(write(tmp_path / f"{ID}.jsonl", *rows))
    usages = [message.usage for message in session.messages() if message.usage]
    assert [(usage.input, usage.output) for usage in usages] == [(2, 631)]


def test_strict_and_lenient_decoding_agree(tmp_path: Path) -> None:
    sample = next(path for path in write_samples(tmp_path) if path.stat().st_size > 100_000)
    records = [json.loads(line) for line in sample.read_text(encoding="utf-8").splitlines()]
    for record in records:
        content = record["message"].get("content") if isinstance(record.get("message"), dict) else None
        if isinstance(content, list) and content[0]["type"] != "tool_result":  # results alone are joined
            content.append({"type": "hologram"})
    loose = read(write(tmp_path / "loose" / sample.name, *records))
    strict = read(sample)
    assert len(strict.segments) == len(loose.segments) == 2
    for ours, theirs in zip(strict.messages(branches=True), loose.messages(branches=True), strict=True):
        known = [part for part in theirs.parts if not isinstance(part, Unknown)]
        assert [content_id(part) for part in ours.parts] == [content_id(part) for part in known]
        assert (ours.usage, ours.id) == (theirs.usage, theirs.id)


def test_arguments_keep_the_exact_text_of_the_file(tmp_path: Path) -> None:
    record = json.dumps(row("assistant", "a", None, call("t1", "Read"))).replace(
        '{"description"', '{ "limit":1.50,"description"'
    )
    path = tmp_path / f"{ID}.jsonl"
    path.write_text(record + "\n")
    [found] = read(path).history[0].calls
    assert found.arguments.startswith('{ "limit":1.50,')


def test_a_teammates_message_does_not_end_the_conversation(tmp_path: Path) -> None:
    rows = [row("user", "u", None, "Go."), row("assistant", "a", "u", [{"type": "text", "text": "Going."}])]
    rows.append(row("user", "t", "u", "Me too.", teamName="others"))
    session = read(write(tmp_path / f"{ID}.jsonl", *rows))
    assert [message.text for message in session.history] == ["Go.", "Going."]
    assert [message.text for message in session.branches[0].history] == ["Me too."]


def test_an_invalid_file_name_is_ignored(tmp_path: Path) -> None:
    for agent in ("a" * 5000, "a\0b", "../" * 50):
        session = read(write(tmp_path / f"{ID}.jsonl", *sidechain(agent, "s"), row("user", "u", None, "Hello there.")))
        assert "Hello there." in [message.text for message in session.messages()]
