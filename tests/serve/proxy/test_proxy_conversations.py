"""Each kind of request is handled as its kind needs, and the figures are read from the answers."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("aiohttp")

from agent import BUDGET, Client, agent_request, answer_messages, dump
from aiohttp import web
from loopback import BODY, PATIENCE
from test_proxy_fitting import LONG, fitting

import thresher as th
from thresher.serve.proxy.conversations import delete_ledgers, identify
from thresher.serve.proxy.opening import SHELL_COMMAND, choose_opening
from thresher.serve.proxy.usage_reader import UsageReader

PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
}


def long_request(dialect: str) -> dict[str, Any]:
    """A conversation that exceeds the budget, in the form of an API."""
    history = th.parse(agent_request(LONG), "anthropic")
    body: dict[str, Any] = th.emit(history, dialect, body=True)
    models = {"openai-chat": "gpt-5", "openai-responses": "gpt-5", "anthropic": "claude-sonnet-4-5"}
    return {**body, **({"model": models[dialect]} if dialect in models else {})}


@pytest.mark.parametrize("dialect", PATHS)
def test_every_api_is_fitted(dialect: str) -> None:
    request = long_request(dialect)
    with fitting() as (upstream, _, client):
        client.send(request, PATHS[dialect])
        [conversation] = client.status()["conversations"]
    [seen] = upstream.requests
    assert len(seen.body) < len(dump(request))
    assert th.check(seen.json, dialect) == ()
    assert conversation["api"] == dialect
    assert conversation["model"] in ("claude-sonnet-4-5", "gpt-5", "gemini-3-pro")


def test_count_tokens_counts_what_would_be_sent() -> None:
    with fitting() as (upstream, _, client):
        client.send(agent_request(LONG))
        client.send(agent_request(LONG), "/v1/messages/count_tokens?beta=true")
        client.send(agent_request(2), "/v1/messages/count_tokens?beta=true")
        unknown = dump({"messages": [{"role": "user", "content": "one file"}]})
        client.send(unknown, "/v1/messages/count_tokens?beta=true")
    sent, counted, short, other = (seen.body for seen in upstream.requests)
    assert counted == sent
    assert short == dump(agent_request(2))
    assert other == unknown


def test_one_shots_pass_and_have_no_state() -> None:
    title = {"model": "m", "messages": [{"role": "user", "content": "x" * 100_000}], "system": "Write a title."}
    chat = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x" * 100_000}]}
    with fitting() as (upstream, _, client):
        client.send(title)
        client.send(chat, "/v1/chat/completions")
        status = client.status()
    assert [seen.body for seen in upstream.requests] == [dump(title), dump(chat)]
    assert status["total"]["unchanged"] == {"one_shot": 2}


def test_the_agents_own_compaction_keeps_the_prefix_and_gets_no_new_edits() -> None:
    request = agent_request(LONG)
    compaction = agent_request(LONG + 20)
    ask = {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Your task is to create a detailed summary."}
    compaction["messages"][-1]["content"].append(ask)
    with fitting() as (upstream, _, client):
        client.send(request)
        replans = client.status()["total"]["replans"]
        client.send(compaction)
        assert client.status()["total"]["replans"] == replans
    first, second = (seen.json["messages"] for seen in upstream.requests)
    assert second == first + compaction["messages"][2 * LONG + 1 :]


def test_sub_agents_models_and_sessions_are_conversations_of_their_own() -> None:
    def key(headers: dict[str, str], **fields: Any) -> str:
        return identify("anthropic", "generate", "/v1/messages", headers, agent_request(2, **fields)).key

    session = {"x-claude-code-session-id": "s"}
    main = key(session)
    assert main == key(session, system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
                                        {"type": "text", "text": "Be brief."}])  # fmt: skip
    assert main == key(session, model="claude-sonnet-4-5-20250929")
    others = [
        key({"x-claude-code-session-id": "t"}),
        key({**session, "x-claude-code-agent-id": "a"}),
        key({**session, "x-thresher-session": "u"}),
        key(session, model="claude-haiku-4-5"),
        key(session, system="Be long."),
        key(session, tools=[]),
        key({}),
        key({}, metadata={"user_id": '{"session_id":"v"}'}),
        key({"x-codex-window-id": "thread:1"}),
        key({"x-codex-window-id": "thread:2"}),
    ]
    assert len({main, *others}) == len(others) + 1


def test_without_an_id_the_first_rows_identify_the_conversation() -> None:
    def key(turns: int, prompt: str = "Read all modules.") -> str:
        request = agent_request(turns)
        request["messages"][0]["content"] = [{"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}]
        return identify("anthropic", "generate", "/v1/messages", {}, request).key

    assert key(1) == key(20) != key(1, "Something else.")
    plain = agent_request(1)
    plain["messages"][0]["content"] = "Read all modules."  # an agent that moves its breakpoint may write text so
    assert identify("anthropic", "generate", "/v1/messages", {}, plain).key == key(1)


@pytest.mark.parametrize(
    ("tools", "opening"),
    [
        (("Read", "mcp__thresher__restore", "Bash"), "mcp__thresher__restore"),
        (("thresher_restore",), "thresher_restore"),
        (("Read", "Bash"), SHELL_COMMAND),
        (("shell",), SHELL_COMMAND),
        (("run_shell_command",), SHELL_COMMAND),
        (("exec",), SHELL_COMMAND),
        (("Read", "restore"), None),
        ((), None),
    ],
)
def test_the_way_to_open_a_placeholder_depends_on_the_tools(tools: tuple[str, ...], opening: str | None) -> None:
    assert choose_opening(tools) == opening


def test_the_way_to_open_a_placeholder_never_changes_after_the_first_edit() -> None:
    for _ in range(2):
        with fitting() as (upstream, _, client):
            client.send(agent_request(2, tools=("Read", "Bash")))
            client.send(agent_request(LONG, tools=("Read", "Bash")))
            client.send(agent_request(LONG + 20, tools=("Read", "Bash")))
            [conversation] = client.status()["conversations"]
        assert conversation["opening"] == SHELL_COMMAND
        assert f"open: {SHELL_COMMAND}" in json.dumps(upstream.requests[-1].json, ensure_ascii=False)


@pytest.mark.parametrize("stream", [True, False])
def test_usage_costs_and_events_are_reported_and_answers_are_unchanged(stream: bool) -> None:
    with fitting() as (upstream, proxy, client):
        answers = [client.send(agent_request(turn, stream=stream))[1] for turn in (1, 2, LONG)]
        status = client.status()
        events = b""
        with urlopen(f"{proxy.url}/thresher/events", timeout=PATIENCE) as answer:
            while b"event: replan" not in events or events.count(b"event: usage") < 3:
                events += answer.readline()
    assert all((b"message_start" in answer) == stream and b"usage" in answer for answer in answers)
    total = status["total"]
    assert total["tokens"]["billed_requests"] == 3
    assert total["tokens"]["input"] == sum(len(seen.body) // 4 for seen in upstream.requests)
    assert total["tokens"]["output"] == 21
    assert total["tokens"]["original"] > total["tokens"]["sent"] == total["tokens"]["input"]
    assert 0 < total["cost"]["with_thresher"] < total["cost"]["without_thresher"]
    assert total["removed_parts"] > 0
    [conversation] = status["conversations"]
    assert conversation["latest_replans"][0]["removed_ids"]
    assert status["added_latency_ms"]["requests"] == 3
    assert b"line of module" not in events


USAGES: dict[str, tuple[list[Any], tuple[int, int, int, int]]] = {
    "anthropic": (
        [
            {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 80,
             "cache_creation_input_tokens": 15, "output_tokens": 1}}},
            {"type": "message_delta", "usage": {"output_tokens": 9, "input_tokens": None}},
        ],
        (5, 9, 80, 15),
    ),
    "openai-chat": (
        [{"choices": [{}], "usage": None}, {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 9,
         "prompt_tokens_details": {"cached_tokens": 60}}}],
        (40, 9, 60, 0),
    ),
    "openai-responses": (
        [{"type": "response.created", "response": {"usage": None}}, {"type": "response.completed", "response": {"usage":
         {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 60}}}}],
        (40, 9, 60, 0),
    ),
    "gemini": (
        [{"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 1}},
         {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 9, "cachedContentTokenCount": 60}}],
        (40, 9, 60, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", USAGES)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_usage_is_read_from_a_stream_in_any_pieces(api: str, size: int) -> None:
    events, expected = USAGES[api]
    data = b": ping\n\n" + b"".join(b"data: %s\r\n\r\n" % json.dumps(event).encode() for event in events)
    data += b"data: {broken usage\n\ndata: [DONE]\n\n"
    reader = UsageReader("text/event-stream; charset=utf-8", "")
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    usage = reader.finish()
    assert usage is not None
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == expected


@pytest.mark.parametrize(
    "data", [b"", b"no json usage", b'{"usage": 5}', b'{"usage": {"words": 5}}', b'[{"usage": []}]']
)
def test_an_answer_without_usage_has_none(data: bytes) -> None:
    reader = UsageReader("application/json", "")
    reader.feed(data)
    assert reader.finish() is None


def test_malformed_events_reach_the_client_and_are_not_counted() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request[BODY]
        return web.Response(body=b"data: {usage\n\nnonsense\xff", content_type="text/event-stream")

    with fitting(answer) as (_, _proxy, client):
        assert client.send(agent_request(1, stream=True))[1] == b"data: {usage\n\nnonsense\xff"
        assert client.status()["total"]["tokens"]["billed_requests"] == 0


def test_parallel_conversations_do_not_wait_for_each_other() -> None:
    with fitting(answer_messages, budget=BUDGET) as (upstream, proxy, _):
        clients = [Client(proxy.url, **{"x-claude-code-agent-id": str(number)}) for number in range(20)]
        for client in clients:
            client.send_and_leave(agent_request(LONG))
        for client in clients:
            assert client._connection.getresponse().status == 200
            client.close()
        assert proxy.status()["proxy"]["conversation_count"] == 20
    assert len({seen.body for seen in upstream.requests}) == 1


def test_a_server_that_never_reports_its_cache_gets_a_stable_prefix() -> None:
    with fitting(budget=60_000) as (upstream, _, client):
        for turn in range(LONG, LONG + 8):
            client.send(agent_request(turn))
        replans = client.status()["total"]["replans"]
    rows = [seen.json["messages"] for seen in upstream.requests]
    assert all(after[: len(before)] == before for before, after in pairwise(rows))
    assert sum(replans.values()) <= 1  # the first request is new, so that its edits are free


@pytest.mark.parametrize(
    "headers",
    [
        {"x-claude-code-session-id": "s-1"},
        {"thread-id": "s-1"},
        {"x-codex-window-id": "s-1:3"},
        {"x-session-id": "s-1"},
    ],
)
def test_forgetting_a_session_deletes_its_ledgers(headers: dict[str, str], tmp_path: Path) -> None:
    own, other = (
        identify("anthropic", "generate", "/v1/messages", found, agent_request(1)).session
        for found in (headers, {"x-session-id": "s-2"})
    )
    names = [f"{own}.sqlite3", f"{own}.sqlite3-wal", f"{own}.sqlite3.damaged", f"{other}.sqlite3"]
    for name in names:
        (tmp_path / name).write_text("x")
    delete_ledgers(tmp_path, "s-1")
    assert [path.name for path in tmp_path.iterdir()] == names[3:]
