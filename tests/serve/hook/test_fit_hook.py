"""`thresher fit --hook`: requests of plug-ins, as JSON lines."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.serve.hook.fit_hook import FitHook, run_fit_hook
from thresher.serve.proxy.fit_options import FitOptions

TEXT = "\n".join(f"line {number}: the kiln has {1200 + number} degrees" for number in range(400))
STEPS = 12
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))


def answer(*requests: Json, budget: int | None = 40_000) -> list[Json]:
    """Return the answers of one process to requests, one after the other."""
    hook = FitHook(FitOptions(budget=budget, fit_timeout=60))

    async def run() -> list[Json]:
        return [await hook.answer(json.dumps(request).encode()) for request in requests]

    try:
        return asyncio.run(run())
    finally:
        hook.close()


def make_body(steps: int = STEPS) -> Json:
    rows: list[Json] = [{"role": "user", "content": "Read the log of the kiln."}]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "Bash", "input": {"command": f"cat part_{step}"}}
        rows.append({"role": "assistant", "content": [{"type": "text", "text": f"Part {step}."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": f"{step} {TEXT}"}
        rows.append({"role": "user", "content": [result]})
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "tools": tools, "messages": rows}


def body_request(steps: int = STEPS, **more: Any) -> Json:
    fields = {"id": steps, "kind": "body", "api": "anthropic-messages", "session": "s1", "body": make_body(steps)}
    return {**fields, **more}


def test_a_body_is_fitted_with_the_same_prefix_each_time() -> None:
    (first, second) = answer(body_request(STEPS), body_request(STEPS + 1))
    assert (first["id"], second["id"]) == (STEPS, STEPS + 1)
    rows, more = first["body"]["messages"], second["body"]["messages"]
    assert more[: len(rows)] == rows
    assert len(json.dumps(rows)) < len(json.dumps(make_body()["messages"])) / 2
    assert "open: thresher restore ID" in json.dumps(rows)


def test_the_prefix_survives_a_restart() -> None:
    (first,) = answer(body_request())
    (second,) = answer(body_request(STEPS + 1))
    rows = first["body"]["messages"]
    assert second["body"]["messages"][: len(rows)] == rows


def test_what_fits_is_not_changed() -> None:
    assert answer(body_request(1)) == [{"id": 1}]


def test_the_usage_of_an_answer_calibrates_the_window() -> None:
    tokens = {"input": 9, "output": 1, "cache_read": 60_000, "cache_write": 0}
    usage = {"id": 2, "kind": "usage", "session": "s1", "usage": tokens}
    first, observed, second = answer(body_request(4), usage, body_request(5))
    assert (first, observed) == ({"id": 4}, {"id": 2})
    assert "body" in second  # five results fit the budget by the estimate, but not by what four have cost
    assert answer(body_request(5, session="s2")) == [{"id": 5}]
    assert answer(usage) == [{"id": 2}]


def test_a_refused_session_passes_through() -> None:
    fitted, refused, after, other = answer(
        body_request(),
        {"id": 2, "kind": "refused", "session": "s1", "status": 400},
        body_request(STEPS + 1),
        body_request(STEPS, session="s2"),
    )
    assert "body" in fitted
    assert refused == {"id": 2}
    assert after == {"id": STEPS + 1}
    assert "body" in other


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"id": 1, "kind": "unheard"}, "unknown kind `unheard`"),
        ({"id": 1}, "unknown kind `None`"),
        ({"id": 1, "kind": "body", "api": "anthropic-messages", "body": {}}, "the request has no list `messages`"),
        ({"id": 1, "kind": "opencode", "rows": [{}]}, "KeyError: 'info'"),
        ({"id": 1, "kind": "compact", "rows": [{"role": "user", "text": 5}]}, None),
    ],
)
def test_a_request_that_cannot_be_fitted_changes_nothing(request_: Json, problem: str | None) -> None:
    (found,) = answer(request_)
    assert {"id", "problem"} >= set(found)
    if problem is not None:
        assert found == {"id": 1, "problem": problem}


def test_an_unknown_api_changes_nothing() -> None:
    assert answer(body_request(api="bedrock-converse-stream")) == [{"id": STEPS}]


def test_lines_are_answered_until_the_input_ends() -> None:
    written: list[str] = []
    lines = io.BytesIO(b'{"id": 1, "kind": "x"}\nno json\n' + json.dumps(body_request(1)).encode())
    run_fit_hook(FitOptions(), lines, written.append)
    assert sorted((json.loads(line)["id"] or 0) for line in written) == [0, 1, 1]


def opencode_messages(steps: int = STEPS) -> list[Json]:
    user = {"id": "msg_0", "sessionID": "ses_1", "role": "user", "model": {"modelID": "claude-sonnet-4-5"}}
    messages: list[Json] = [{"info": user, "parts": [{"type": "text", "id": "prt_0", "text": "Read the log."}]}]
    for step in range(steps):
        state = {"status": "completed", "input": {"filePath": f"part_{step}"}, "output": f"{step} {TEXT}", "title": "t"}
        parts = [
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": f"s{step}"}}},
            {"type": "text", "text": f"Part {step}."},
            {"type": "tool", "tool": "read", "callID": f"call_{step}", "state": state},
            {"type": "step-finish"},
        ]
        messages.append({"info": {"id": f"msg_{step + 1}", "sessionID": "ses_1", "role": "assistant"}, "parts": parts})
    return messages


def restore_rows(rows: list[Any], messages: list[Json]) -> list[Json]:
    return [messages[row] if isinstance(row, int) else row for row in rows]


def test_messages_of_opencode_keep_their_form() -> None:
    messages = opencode_messages()
    (found,) = answer({"id": 1, "kind": "opencode", "rows": messages})
    rows = restore_rows(found["rows"], messages)
    assert len(json.dumps(rows)) < len(json.dumps(messages)) / 2
    assert rows[0] == messages[0]
    assert rows[-1] == messages[-1]
    by_id = {message["info"]["id"]: message for message in messages}
    changed = [row for row in rows if row != by_id.get(row["info"]["id"])]
    assert changed
    for row in changed:
        if row["info"]["id"] not in by_id:
            continue
        kinds = [part["type"] for part in row["parts"]]
        assert kinds[0] == "step-start"
        (tool,) = [part for part in row["parts"] if part["type"] == "tool"]
        assert tool["state"]["output"].startswith("[thresher ")
        assert tool["state"]["title"] == "t"


def test_messages_of_opencode_that_fit_are_not_changed() -> None:
    assert answer({"id": 1, "kind": "opencode", "rows": opencode_messages(1)}) == [{"id": 1}]


def compact_rows(*, is_open: bool = False) -> list[Json]:
    rows: list[Json] = [{"role": "user", "text": "Read the log.", "toolUses": []}]
    for step in range(STEPS):
        rows.append({"role": "assistant", "text": "", "toolUses": []})
        rows.append({"role": "assistant", "text": f"Part {step}.", "toolUses": []})
        call = {"tool_use_id": f"c{step}", "tool": "Read", "input": {"file_path": f"part_{step}"}}
        rows.append({"role": "assistant", "text": "", "toolUses": [call]})
        results = [{"tool_use_id": f"c{step}", "text": f"{step} {TEXT}", "isError": False}]
        rows.append({"role": "user", "text": "", "toolUses": [], "toolResults": results})
    return rows if is_open else [*rows, {"role": "assistant", "text": "Done.", "toolUses": []}]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_compaction_keeps_the_rules_of_the_api(is_open: bool) -> None:
    rows = compact_rows(is_open=is_open)
    (found,) = answer({"id": 1, "kind": "compact", "rows": rows, "tools": ["Bash"]})
    kept = restore_rows(found["rows"], rows)
    assert len(json.dumps(kept)) < len(json.dumps(rows)) / 2
    assert found["rows"][0] == 0
    calls = [call["tool_use_id"] for row in kept for call in row["toolUses"]]
    results = [result["tool_use_id"] for row in kept for result in row.get("toolResults", ())]
    assert calls == results
    assert f"c{STEPS - 1}" in calls
    assert "open: thresher restore ID" in json.dumps(kept)
    own = {index for index in found["rows"][1:] if isinstance(index, int)}
    # Only in an open loop must the model's rows keep their thinking.
    assert bool(own) == is_open
    assert all(rows[index]["role"] == "assistant" for index in own)


def test_removed_text_can_be_restored() -> None:
    (found,) = answer({"id": 1, "kind": "compact", "rows": compact_rows(), "tools": ["Bash"]})
    texts = [result["text"] for row in found["rows"] if isinstance(row, dict) for result in row.get("toolResults", ())]
    id_ = next(text for text in texts if text.startswith("[thresher ")).split()[1]
    assert TEXT in th.restore(id_)


def test_a_short_session_is_left_to_the_agent() -> None:
    rows = [{"role": "user", "text": "Hi.", "toolUses": []}, {"role": "assistant", "text": "Hello.", "toolUses": []}]
    (found,) = answer({"id": 1, "kind": "compact", "rows": rows})
    assert found == {"id": 1, "problem": "no legal history is small enough, so the agent summarizes"}
