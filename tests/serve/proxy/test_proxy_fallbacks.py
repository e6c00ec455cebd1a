"""Whatever fails inside Thresher or upstream, a session goes on, and the status says what happened."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from agent import Client, agent_request, answer_messages, dump, list_ledgers, text_of
from aiohttp import web
from loopback import BODY, PATIENCE
from test_proxy_fitting import LONG, fitting

from thresher.model import History
from thresher.policies.table import make_policy
from thresher.serve.proxy.fitted_conversation import FittedConversation
from thresher.serve.proxy.refusals import find_refusal
from thresher.serve.proxy.running import RunningProxy
from thresher.window import Ledger, LedgerError


class FaultyPolicy:
    """A policy that removes all old results, and that a test can stop or break."""

    name = "faulty"

    def __init__(self) -> None:
        self.may_go_on, self.fails, self.calls = Event(), False, 0
        self.may_go_on.set()

    def __call__(self, history: History) -> Any:
        self.calls += 1
        assert self.may_go_on.wait(PATIENCE)
        if self.fails:
            raise RuntimeError("line of module 1")
        return make_policy("mask")(history)


def sent_rows(body: bytes) -> list[Any]:
    rows: list[Any] = json.loads(body)["messages"]
    return rows


def set_fit_timeout(proxy: RunningProxy, seconds: float) -> None:
    object.__setattr__(proxy._proxies[0].options, "fit_timeout", seconds)


def test_a_slow_plan_sends_the_recorded_edits_and_is_used_at_the_next_request() -> None:
    policy = FaultyPolicy()
    with fitting(policy=policy) as (upstream, proxy, client):
        client.send(agent_request(LONG))
        policy.may_go_on.clear()
        set_fit_timeout(proxy, 0.01)
        for turn in (LONG + 15, LONG + 16):
            client.send(agent_request(turn))
        policy.may_go_on.set()
        set_fit_timeout(proxy, PATIENCE)
        client.send(agent_request(LONG + 16))
        total = client.status()["total"]
    first, second, third, planned = (sent_rows(seen.body) for seen in upstream.requests)
    assert second == first + agent_request(LONG + 15)["messages"][2 * LONG + 1 :]
    assert third[: len(second)] == second
    assert len(json.dumps(planned)) < len(json.dumps(second))
    assert total["fallbacks"] == {"timeout": 2}


def test_an_error_inside_a_window_sends_the_recorded_edits_or_the_original(caplog: pytest.LogCaptureFixture) -> None:
    policy = FaultyPolicy()
    policy.fails = True
    with fitting(policy=policy) as (upstream, _, client):
        client.send(agent_request(LONG))
        policy.fails = False
        client.send(agent_request(LONG))
        policy.fails = True
        client.send(agent_request(LONG + 15))
        status = client.status()
    original, fitted, recorded = (seen.body for seen in upstream.requests)
    assert original == dump(agent_request(LONG))
    assert len(fitted) < len(original)
    assert sent_rows(recorded)[: len(sent_rows(fitted))] == sent_rows(fitted)
    assert status["total"]["fallbacks"] == {"error: RuntimeError": 2}
    assert status["total"]["unchanged"] == {"fallback": 1}
    assert "line of module" not in caplog.text


@pytest.mark.parametrize("damage", ["corrupted", "locked", "read-only"])
def test_a_ledger_that_fails_changes_no_prefix_and_loses_no_request(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "thresher-home"
    with fitting(fit_timeout=1.0 if damage == "locked" else 20.0) as (upstream, _, client):
        client.send(agent_request(LONG))
        [ledger] = list_ledgers(home)
        lock = sqlite3.connect(ledger, isolation_level=None)
        if damage == "locked":
            lock.execute("BEGIN EXCLUSIVE")
        elif damage == "read-only":
            monkeypatch.setattr(Ledger, "_execute", _raise_ledger_error)
        else:
            for file in (ledger, ledger.with_name(f"{ledger.name}-wal")):
                with file.open("r+b") as stream:
                    stream.write(b"x" * file.stat().st_size)
        client.send(agent_request(LONG + 1))
        client.send(agent_request(LONG + 15))
        lock.close()
        total = client.status()["total"]
    first, second, third = (sent_rows(seen.body) for seen in upstream.requests)
    assert second[: len(first)] == first
    assert total["requests"] == 3
    if damage != "corrupted":  # SQLite may go on with what it has in memory, and record the next replan
        assert third[: len(second)] == second
        assert total["fallbacks"] or total["problems"].get("store")


def _raise_ledger_error(*_: Any) -> None:
    raise LedgerError("the disk is full")


def test_a_damaged_ledger_at_the_start_lets_the_session_begin(tmp_path: Path) -> None:
    with fitting() as (_, _proxy, client):
        client.send(agent_request(LONG))
    [ledger] = list_ledgers(tmp_path / "thresher-home")
    for file in ledger.parent.glob(f"{ledger.name}-*"):
        file.unlink()
    ledger.write_bytes(b"no database" * 1000)
    with fitting() as (upstream, _, client):
        assert client.send(agent_request(LONG))[0] == 200
        assert client.status()["total"]["problems"]["store"] == 1
    assert len(upstream.requests[0].body) < len(dump(agent_request(LONG)))
    assert len(list(ledger.parent.glob("*.damaged"))) == 1


def refuse(message: str, **fields: Any) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        if b"[thresher" in request[BODY]:
            return web.json_response({"type": "error", "error": {"message": message, **fields}}, status=400)
        return await answer_messages(request)

    return answer


def test_a_refused_edit_is_sent_once_as_the_original_and_the_conversation_passes_through() -> None:
    answer = refuse("messages.3: `tool_use` ids were found without `tool_result` blocks")
    for run in range(2):
        with fitting(answer) as (upstream, _, client):
            for turn in (LONG, LONG + 1):
                assert client.send(agent_request(turn))[0] == 200
            status = client.status()
        bodies = [seen.body for seen in upstream.requests]
        assert bodies[-2:] == [dump(agent_request(LONG)), dump(agent_request(LONG + 1))]
        assert len(bodies) == (3 if run == 0 else 2)  # a restart knows the refusal
        assert status["total"]["refusals"] == ({"tool pairing": 1} if run == 0 else {})
        assert status["conversations"][0]["passed_through_because"] == "tool pairing"
        assert status["total"]["cost"]["of_fallbacks"] == status["total"]["cost"]["with_thresher"] > 0
        assert status["total"]["tokens"]["original"] == status["total"]["tokens"]["sent"]


def test_a_request_that_is_too_long_gets_the_vendors_own_error() -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    with fitting(refuse(message)) as (upstream, _, client):
        status, body = client.send(agent_request(LONG))
    assert (status, json.loads(body)["error"]["message"]) == (400, message)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("status", "message", "rule"),
    [
        (400, "messages.5.content.0: Invalid `signature` in `thinking` block", "thinking"),
        (400, "No tool output found for function call call_1.", "tool pairing"),
        (400, "messages: roles must alternate", "roles"),
        (400, "Invalid value: input[3].content", "messages"),
        (400, "messages: text content blocks must be non-empty", "messages"),
        (400, "max_tokens: must be positive", ""),
        (400, "Your input exceeds the context window of this model.", ""),
        (404, "messages.5: no", ""),
        (429, "messages.5: no", ""),
    ],
)
def test_only_errors_about_the_history_count_as_refusals(status: int, message: str, rule: str) -> None:
    for body in ({"error": {"message": message}}, [{"error": {"message": message, "code": 400}}], {"message": message}):
        assert find_refusal(status, json.dumps(body).encode()) == rule
    assert find_refusal(status, message.encode()) == rule


def test_a_client_that_leaves_during_a_fit_sends_nothing() -> None:
    policy = FaultyPolicy()
    policy.may_go_on.clear()
    with fitting(policy=policy) as (upstream, proxy, client):
        leaving = Client(proxy.url)
        leaving.send_and_leave(agent_request(LONG))
        while not policy.calls:
            client.status()
        leaving.close()
        while client.status()["requests"]:
            pass
        policy.may_go_on.set()
        client.send(agent_request(1))
    assert len(upstream.requests) == 1


def test_a_conversation_without_a_client_is_forgotten_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.serve.proxy.fit_service.MAX_CONVERSATIONS", 1)
    opened: list[str] = []
    create = FittedConversation.__init__

    def count(self: FittedConversation, identity: Any, *others: Any) -> None:
        opened.append(identity.key)
        create(self, identity, *others)

    monkeypatch.setattr(FittedConversation, "__init__", count)
    with fitting() as (upstream, proxy, _):
        clients = [Client(proxy.url, **{"X-Thresher-Session": name}) for name in ("a", "b", "a")]
        for client in clients:
            client.send(agent_request(LONG))
            client.close()
    assert len(opened) == 3
    first, _, again = (seen.body for seen in upstream.requests)
    assert text_of(first) == text_of(again)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
def test_forgotten_conversations_keep_no_file_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("thresher.serve.proxy.fit_service.MAX_CONVERSATIONS", 3)
    with fitting() as (_, proxy, client):
        for number in range(12):
            visitor = Client(proxy.url, **{"X-Thresher-Session": str(number)})
            visitor.send(agent_request(2))
            visitor.close()
        client.send(agent_request(2), **{"X-Thresher-Session": "0"})  # opened again
        open_files = {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    ledgers = {name for name in open_files if name.endswith(".sqlite3") and str(tmp_path) in name and "proxy" in name}
    assert 0 < len(ledgers) <= 4


def test_conversations_that_come_and_go_at_once_lose_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.serve.proxy.fit_service.MAX_CONVERSATIONS", 1)
    with fitting() as (_, proxy, client):

        def visit(number: int) -> list[int]:
            visitor = Client(proxy.url, **{"X-Thresher-Session": str(number % 3)})
            statuses = [visitor.send(agent_request(turn))[0] for turn in range(1, 8)]
            visitor.close()
            return statuses

        with ThreadPoolExecutor(6) as pool:
            assert set().union(*pool.map(visit, range(6))) == {200}
        total = client.status()["total"]
    assert (total["requests"], total["fallbacks"], total["problems"]) == (42, {}, {})
