"""The API says why its cache did not serve a request, and the status says which misses are Thresher's."""

import gzip
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from agent import Client, agent_request, answer_messages, dump
from aiohttp import web
from click.testing import CliRunner
from loopback import BODY, port_of
from test_proxy_fallbacks import FaultyPolicy
from test_proxy_fitting import LONG, fitting

from thresher.cli.proxy import proxy_command
from thresher.dialects.table import find_dialect
from thresher.render.proxy import format_run_report

CODEX = {"x_codex_window_id": "w-1"}


class ComparingModel:
    """Compares requests as Anthropic documents it: it remembers the requests that have the field."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(request[BODY])
        id_ = f"msg_{len(self._known)}"
        message = {"id": id_, "type": "message", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
        if "diagnostics" in body:
            previous = body["diagnostics"]["previous_message_id"]
            self._known[id_] = body
            message["diagnostics"] = self._compare(previous, body)
        if not body.get("stream"):
            return web.json_response(message)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}
        for event in ({"type": "message_start", "message": message}, end):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        return response

    def _compare(self, previous: str | None, body: dict[str, Any]) -> Any:
        if previous is None:
            return None
        if previous not in self._known:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        before = self._known[previous]
        for field in ("model", "system", "tools"):
            if before[field] != body[field]:
                return {"cache_miss_reason": {"type": f"{field}_changed", "cache_missed_input_tokens": 5}}
        if body["messages"][: len(before["messages"])] != before["messages"]:
            return {"cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 5}}
        return None


def own_and_other(status: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    found = status["total"]["cache_diagnostics"]
    return found["thresher_misses"], found["other_misses"]


def test_it_is_off_by_default() -> None:
    with fitting(ComparingModel().answer) as (upstream, _, client):
        client.send(agent_request(2))
        status = client.status()
    assert b"diagnostics" not in upstream.requests[0].body
    assert status["diagnose_cache"] == {"on": False, "refused_by": []}


@pytest.mark.parametrize("stream", [False, True])
def test_each_request_names_the_answer_before_it_and_only_that_field_is_added(stream: bool) -> None:
    with fitting(ComparingModel().answer, diagnose_cache=True) as (upstream, _, client):
        bodies = [dump(agent_request(turn, stream=stream)) for turn in (1, 2, 3)]
        answers = [client.send(body)[1] for body in bodies]
        found = client.status()["conversations"][0]["cache_diagnostics"]
    ends = ['{"previous_message_id":null}', *(f'{{"previous_message_id":"msg_{number}"}}' for number in (0, 1))]
    expected = [body[:-1] + f',"diagnostics":{end}}}'.encode() for body, end in zip(bodies, ends, strict=True)]
    assert [seen.body for seen in upstream.requests] == expected
    assert all(b'"diagnostics": null' in answer for answer in answers)  # the answer itself is not changed
    assert found == {"compared": 2, "matching": 2, "thresher_misses": {}, "other_misses": {}, "inconclusive": {}}


def test_a_miss_at_a_replan_is_thresher_s_and_all_others_are_not() -> None:
    with fitting(ComparingModel().answer, diagnose_cache=True) as (upstream, proxy, client):
        client.send(agent_request(3))
        client.send(agent_request(LONG))  # a replan changes rows that the API has seen
        assert own_and_other(client.status()) == ({"messages_changed": 1}, {})
        client.send(agent_request(LONG + 1, tools=("Read", "Bash", "Edit")))
        client.send(agent_request(LONG + 2, tools=("Read", "Bash", "Edit"), system="Be long."))
        assert own_and_other(client.status()) == ({"messages_changed": 1}, {"tools_changed": 1, "system_changed": 1})
        status = client.status()
        arguments = ["--status", "--port", str(port_of(proxy.url))]
        text = CliRunner().invoke(proxy_command, arguments).output
        report = "\n".join(format_run_report(status, (), "thresher"))
    line = "cache misses   of Thresher: messages_changed 1; of others: tools_changed 1, system_changed 1"
    assert line in text
    assert line in report
    assert "cache misses of others: tools_changed 1" in text
    assert len(upstream.requests) == 4


def test_a_client_that_rewrites_its_history_breaks_the_cache_itself() -> None:
    rewritten = agent_request(4)
    rewritten["messages"][2]["content"][0]["content"] = "nothing"
    with fitting(ComparingModel().answer, diagnose_cache=True) as (_, _proxy, client):
        client.send(agent_request(3))
        client.send(rewritten)
        assert own_and_other(client.status()) == ({}, {"messages_changed": 1})


def test_a_compacted_history_is_compared_with_the_last_answer() -> None:
    compacted = agent_request(1)
    compacted["messages"][0]["content"] = "A summary of the conversation."
    with fitting(ComparingModel().answer, diagnose_cache=True) as (_, _proxy, client):
        client.send(agent_request(3))
        client.send(compacted)
        assert own_and_other(client.status()) == ({}, {"messages_changed": 1})


def test_a_fallback_and_the_request_after_it_are_thresher_s_misses() -> None:
    policy, rewritten = FaultyPolicy(), agent_request(LONG)
    rewritten["messages"][2]["content"][0]["content"] = "nothing"
    with fitting(ComparingModel().answer, policy=policy, diagnose_cache=True) as (_, _proxy, client):
        client.send(agent_request(LONG))
        policy.fails = True
        client.send(rewritten)  # the recorded edits do not apply, so it goes out whole
        assert own_and_other(client.status()) == ({"messages_changed": 1}, {})
        policy.fails = False
        replans = client.status()["total"]["replans"]
        client.send(agent_request(LONG + 1))  # the recorded edits apply again
        status = client.status()
    assert status["total"]["replans"] == replans
    assert own_and_other(status) == ({"messages_changed": 2}, {})


def test_while_observing_no_miss_is_thresher_s() -> None:
    compacted = agent_request(LONG + 1)
    compacted["messages"][1:3] = []
    with fitting(ComparingModel().answer, diagnose_cache=True, observe=True) as (_, _proxy, client):
        client.send(agent_request(3))
        client.send(agent_request(LONG))
        client.send(compacted)
        status = client.status()
    assert sum(status["total"]["replans"].values()) > 0
    assert own_and_other(status) == ({}, {"messages_changed": 1})
    assert status["total"]["cache_diagnostics"]["matching"] == 1


def test_other_requests_and_clients_that_ask_themselves_are_left_alone() -> None:
    single = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "A title?"}]}
    own = dump(agent_request(2, diagnostics={"previous_message_id": "msg_x"}))
    with fitting(ComparingModel().answer, diagnose_cache=True) as (upstream, _, client):
        client.send(dump(single))
        client.send(own)
        client.send(dump(agent_request(2)), path="/v1/messages/count_tokens")
        found = client.status()["total"]["cache_diagnostics"]
    assert [seen.body for seen in upstream.requests] == [dump(single), own, dump(agent_request(2))]
    assert (found["compared"], found["inconclusive"]) == (0, {})


async def refuse_field(request: web.Request) -> web.StreamResponse:
    if b"diagnostics" in request[BODY]:
        message = "diagnostics: Extra inputs are not permitted"
        return web.json_response({"type": "error", "error": {"message": message}}, status=400)
    return await answer_messages(request)


def test_an_upstream_that_refuses_the_field_gets_the_request_once_more_and_is_not_asked_again() -> None:
    with fitting(refuse_field, diagnose_cache=True) as (upstream, proxy, client):
        assert [client.send(agent_request(turn))[0] for turn in (2, 3)] == [200, 200]
        status = client.status()
        text = CliRunner().invoke(proxy_command, ["--status", "--port", str(port_of(proxy.url))]).output
    first, again, second = (seen.body for seen in upstream.requests)
    assert (again, second) == (dump(agent_request(2)), dump(agent_request(3)))
    assert first.startswith(again[:-1])
    assert status["diagnose_cache"] == {"on": True, "refused_by": ["127.0.0.1 claude-sonnet-4-5"]}
    assert status["total"]["refusals"] == {}  # no edit was refused
    assert "not diagnosed  refused by 127.0.0.1 claude-sonnet-4-5" in text


def test_refused_edits_are_thresher_s_miss() -> None:
    model = ComparingModel()

    async def answer(request: web.Request) -> web.StreamResponse:
        if refuses and b"[thresher" in request[BODY]:
            message = "messages.3: `tool_use` ids were found without `tool_result` blocks"
            return web.json_response({"type": "error", "error": {"message": message}}, status=400)
        return await model.answer(request)

    refuses = False
    with fitting(answer, diagnose_cache=True) as (upstream, _, client):
        client.send(agent_request(LONG))
        refuses = True
        client.send(agent_request(LONG + 1))
        client.send(agent_request(LONG + 2))
        status = client.status()
    assert len(upstream.requests) == 4
    assert own_and_other(status) == ({"messages_changed": 1}, {})
    assert status["total"]["cache_diagnostics"]["matching"] == 1


def responses_request(turns: int, size: int = 1, **fields: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Read all modules."}]
    for turn in range(turns):
        arguments = json.dumps({"command": ["cat", f"m{turn}.py"]})
        call = {"type": "function_call", "call_id": f"c{turn}", "name": "shell", "arguments": arguments}
        rows += [call, {"type": "function_call_output", "call_id": f"c{turn}", "output": f"module {turn}\n" * size}]
    tools = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
    return {"model": "gpt-5.6", "tools": tools, "input": rows, **fields}


async def answer_responses(request: web.Request) -> web.StreamResponse:
    """Answer as OpenAI's Responses API does, with a miss for each request that asks."""
    options = json.loads(request[BODY]).get("prompt_cache_options", {})
    answer: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "output": [],
        "usage": None,
        "prompt_cache_diagnostics": None,
    }
    result = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 5}
    end: dict[str, Any] = {**answer, "usage": {"input_tokens": 5, "output_tokens": 1}}
    if "comparison_response_id" in options:
        end["prompt_cache_diagnostics"] = result
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for name, value in (("response.created", answer), ("response.completed", end)):
        await response.write(f"event: {name}\ndata: {json.dumps({'type': name, 'response': value})}\n\n".encode())
    return response


def test_the_responses_api_compares_from_the_second_request_and_keeps_the_client_s_options() -> None:
    options = {"mode": "implicit"}
    with fitting(answer_responses, diagnose_cache=True) as (upstream, _, client):
        bodies = [dump(responses_request(turn, prompt_cache_options=options)) for turn in (1, 2)]
        client.send(bodies[0], path="/v1/responses", **CODEX)
        client.send(gzip.compress(bodies[1]), path="/v1/responses", content_encoding="gzip", **CODEX)
        status = client.status()
    first, second = upstream.requests
    assert first.body == bodies[0]
    assert second.body == bodies[1].replace(b'"implicit"\n }', b'"implicit"\n ,"comparison_response_id":"resp_1"}')
    assert second.header("content-encoding") == []
    assert own_and_other(status) == ({}, {"tools_changed": 1})


def test_an_error_about_the_client_s_own_options_is_the_client_s() -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        error = {"message": "Unsupported parameter: 'prompt_cache_options'", "param": "prompt_cache_options"}
        return web.json_response({"error": error}, status=400)

    long = dump(responses_request(LONG, 600, prompt_cache_options={"mode": "implicit"}))
    with fitting(answer, diagnose_cache=True) as (upstream, _, client):
        assert client.send(long, path="/v1/responses", **CODEX)[0] == 400
        status = client.status()
    assert [len(seen.body) < len(long) for seen in upstream.requests] == [True]  # edited, and sent once
    assert status["diagnose_cache"]["refused_by"] == []


def test_an_api_that_answers_nothing_is_counted_as_inconclusive() -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        message = {"id": "msg_1", "type": "message", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
        return web.json_response(message)

    with fitting(answer, diagnose_cache=True) as (_, _proxy, client):
        for turn in (1, 2):
            client.send(agent_request(turn))
        found = client.status()["total"]["cache_diagnostics"]
    assert (found["compared"], found["inconclusive"]) == (0, {"no_result": 1})


@pytest.mark.parametrize("id_", ["", 5, None, "msg \n", "\ud800", "x" * 300])
def test_an_id_of_another_form_is_never_sent(id_: Any) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        message = {"id": id_, "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
        return web.json_response(message)

    with fitting(answer, diagnose_cache=True) as (upstream, _, client):
        assert [client.send(agent_request(turn))[0] for turn in (1, 2)] == [200, 200]
    assert [seen.json["diagnostics"] for seen in upstream.requests] == [{"previous_message_id": None}] * 2


def test_a_conversation_that_cannot_be_read_is_sent_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise ValueError("line of module 1")

    monkeypatch.setattr("thresher.serve.proxy.cache_diagnosis.digest_opening", fail)
    with fitting(ComparingModel().answer, diagnose_cache=True) as (upstream, _, client):
        assert client.send(agent_request(1))[0] == 200
    assert upstream.requests[0].body == dump(agent_request(1))


@pytest.mark.parametrize(
    ("dialect", "value", "expected"),
    [
        ("anthropic", None, ("match", "")),
        ("anthropic", {"cache_miss_reason": None}, ("inconclusive", "pending")),
        ("anthropic", {"cache_miss_reason": {"type": "unavailable"}}, ("inconclusive", "unavailable")),
        ("anthropic", {"cache_miss_reason": {"type": "model_changed"}}, ("miss", "model_changed")),
        ("anthropic", {"cache_miss_reason": {"type": "A text of a user_changed"}}, ("miss", "unknown")),
        ("anthropic", {"cache_miss_reason": "x"}, ("inconclusive", "unknown")),
        ("openai-responses", None, ("inconclusive", "no_result")),
        ("openai-responses", {"type": "cache_hit"}, ("match", "")),
        ("openai-responses", {"type": "cache_miss", "reason": "input_changed"}, ("miss", "input_changed")),
        ("openai-responses", {"type": "cache_miss"}, ("miss", "unknown")),
        ("openai-responses", {"type": "unavailable"}, ("inconclusive", "unavailable")),
    ],
)
def test_the_documented_results_are_read(dialect: str, value: Any, expected: tuple[str, str]) -> None:
    api = find_dialect(dialect).http_api
    assert api is not None
    comparison = api.cache_comparison
    assert comparison is not None
    assert comparison.read_answer({comparison.answer_field: value}) == expected


def test_the_results_of_a_conversation_survive_another_client() -> None:
    with fitting(ComparingModel().answer, diagnose_cache=True) as (_, proxy, client):
        client.send(agent_request(1))
        other = Client(proxy.url, **{"X-Claude-Code-Session-Id": "s-2"})
        other.send(agent_request(1))
        other.close()
        client.send(agent_request(2))
        found = client.status()["total"]["cache_diagnostics"]
    assert (found["compared"], found["matching"]) == (1, 1)
