"""Replay recorded sessions as HTTP through the proxy, and compare tokens and cost.

    python benchmarks/proxy_replay.py [--split report] [--calls 60] [--budget 60k] [--limit N] [--json FILE]
                                       [--headroom PROGRAM]

Every recorded session with at least that many model calls: each segment is a conversation, and each call one request
with the messages before it, at its recorded time. The proxy sends it to a model on loopback, which bills by prefix and
reports that as usage. Compared, with the same meter and the same prices:

- full: every request as recorded, without a proxy;
- replay: the window inside `thresher replay`, with the same budget;
- proxy: the same requests through HTTP;
- clear-tool-uses: Anthropic's documented rule for context editing;
- headroom: the same requests through `headroom proxy`, if `--headroom` names the installed program.

Nothing is refetched, so the requests are the same for all. Cost is relative to `full`. The clock of the windows is the
recorded one. A plan may take 60 seconds, so that the load of the machine changes nothing.
`illegal` counts the requests at the model that `thresher.check` refuses; for `full`, the requests as recorded.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from conversations import DATA, recordings, spread
from headroom_proxy import DIALECTS as HEADROOM_DIALECTS
from headroom_proxy import count_failures, running_headroom
from msgspec import structs

import thresher
from thresher import Session
from thresher.budget import parse_token_count
from thresher.dialects import parse
from thresher.errors import ThresherError
from thresher.model.jsontext import canonical_json
from thresher.replay.conversation import ReplayConversation, RequestPiece
from thresher.replay.cost import CostMeter, Rates, rates_for_model
from thresher.replay.recording import Recording, build_session_recordings
from thresher.replay.residency import ResidencyChecker
from thresher.replay.strategies.registry import PRICES, make_strategy
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.running import start_proxy
from thresher.store import InMemoryContentStore
from thresher.tokens import find_model
from thresher.window import request as window_request

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve" / "proxy"))
from loopback import BODY, loopback_upstream, port_of

WAYS = ("full", "replay", "proxy", "clear-tool-uses", "headroom")
STRATEGIES = {"full": "full", "replay": "auto", "clear-tool-uses": "clear-tool-uses"}
CHECKED = ("full", "proxy", "headroom")
"""Ways whose requests exist as bodies, so that their legality can be checked."""
DEFAULT_MODELS = {"anthropic": "anthropic", "openai-responses": "openai", "gemini": "gemini"}
"""Price list for the sessions whose model is not known."""
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:generateContent",
}


_NAMED = {"name": "Bash", "description": "Run a command.", "parameters": {"type": "object", "properties": {}}}
SHELL: dict[str, list[dict[str, Any]]] = {
    "anthropic": [{"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object"}}],
    "openai-chat": [{"type": "function", "function": _NAMED}],
    "openai-responses": [{"type": "function", **_NAMED}],
    "gemini": [{"functionDeclarations": [_NAMED]}],
}
"""A tool for recordings without tool definitions: an agent without a shell could not open a placeholder."""


class Charge(NamedTuple):
    """Tokens and cost of some requests."""

    tokens: int
    cost: float
    breaks: int
    illegal: int = 0


class Clock:
    """The recorded time."""

    now = 0.0


class PieceReader:
    """Convert the bodies that reach the upstream to pieces, as the replay counts them."""

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self._rows: dict[str, list[RequestPiece]] = {}
        self._field = conversation.recording.rows_field

    def read(self, body: dict[str, Any]) -> list[RequestPiece]:
        head = self._parse({**body, self._field: []})
        rows = chain.from_iterable(self._read_row(row) for row in body[self._field])
        return [*self._conversation.tool_pieces, *head, *rows]

    def _read_row(self, row: Any) -> list[RequestPiece]:
        key = canonical_json(row)
        if key not in self._rows:
            self._rows[key] = self._parse({self._field: [row]})
        return self._rows[key]

    def _parse(self, body: dict[str, Any]) -> list[RequestPiece]:
        messages = parse(body, self._conversation.recording.dialect).messages
        return list(chain.from_iterable(map(self._conversation.make_message_pieces, messages)))


class BillingModel:
    """An upstream that bills with the replay's meter, one conversation after the other."""

    def __init__(self) -> None:
        self.charges: list[Charge] = []
        self.row: dict[str, Any] = {}
        """The row with which the next answer begins."""

    def begin(self, recording: Recording, rates: Rates) -> None:
        conversation = ReplayConversation(recording, InMemoryContentStore())
        self._reader, self._meter, self.charges = PieceReader(conversation), CostMeter(rates), []
        self._dialect = recording.dialect

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request[BODY]:
            return web.Response(status=404)
        body = json.loads(request[BODY])
        pieces = self._reader.read(body)
        cost = self._meter.charge(Clock.now, [(piece, piece.tokens) for piece in pieces])
        illegal = int(bool(thresher.check(body, self._dialect)))
        self.charges.append(Charge(cost.tokens, cost.cost, int(cost.is_prefix_broken), illegal))
        return web.json_response(build_answer(self._dialect, self.row, cost.tokens, cost.cached))


def build_answer(dialect: str, row: dict[str, Any], tokens: int, cached: int) -> dict[str, Any]:
    """Return the recorded answer with the usage of a request, in the form of its API.

    It must be the answer that the next request contains: headroom compresses only what follows the answer it has seen.
    """
    if dialect == "anthropic":
        fields = {"input_tokens": 0, "cache_read_input_tokens": cached, "cache_creation_input_tokens": tokens - cached}
        message = {"id": "m", "type": "message", "stop_reason": "end_turn", **row}
        return {**message, "usage": {**fields, "output_tokens": 1}}
    if dialect == "gemini":
        counts = {"promptTokenCount": tokens, "cachedContentTokenCount": cached}
        return {"candidates": [{"content": row}], "usageMetadata": counts}
    name, output = ("prompt", "completion") if dialect == "openai-chat" else ("input", "output")
    details = {f"{name}_tokens_details": {"cached_tokens": cached}}
    usage: dict[str, Any] = {f"{name}_tokens": tokens, f"{output}_tokens": 1, "total_tokens": tokens + 1, **details}
    choice = {"index": 0, "finish_reason": "stop", "message": row}
    return {"id": "m", **({"choices": [choice]} if dialect == "openai-chat" else {"output": [row]}), "usage": usage}


def find_sessions(split: str, calls: int) -> Iterator[tuple[str, Session, int]]:
    """Yield the sessions with enough model calls."""
    for file in recordings(DATA, split):
        try:
            sessions = thresher.read_all(DATA / file)
        except ThresherError:
            continue
        for session in sessions:
            count = sum(len(segment.turns) for segment in session.segments)
            if count >= calls:
                yield f"{file}#{session.id}", session, count


def replay_direct(recording: Recording, rates: Rates, strategy: str, budget: int) -> list[Charge]:
    """Return the charges of a strategy inside this process, without refetches."""
    store = InMemoryContentStore()
    conversation, meter = ReplayConversation(recording, store), CostMeter(rates)
    checker = ResidencyChecker(recording.trace, store=store)
    build = make_strategy(strategy, budget, rates).start(conversation, checker)
    charges, at = [], 0.0
    for call in recording.trace.calls:
        at = at if call.time is None else call.time
        conversation.advance(call.stop)
        cost = meter.charge(at, [(piece, piece.tokens) for piece in build(at)])
        charges.append(Charge(cost.tokens, cost.cost, int(cost.is_prefix_broken)))
    return charges


class Exchange(NamedTuple):
    """A recorded request, and the row with which its answer begins."""

    time: float | None
    body: dict[str, Any]
    answer: dict[str, Any]


def build_exchanges(recording: Recording) -> Iterator[Exchange]:
    """Yield the requests of a recording with their answers."""
    named = {} if recording.dialect == "gemini" else {"model": recording.model}
    for call in recording.trace.calls:
        count = max(0, call.stop - recording.system_message_count)
        rows = {recording.rows_field: list(recording.rows[:count])}
        body = {"tools": SHELL[recording.dialect], **recording.body, **named, **rows}
        yield Exchange(call.time, body, next(iter(recording.rows[count:]), {}))


def count_illegal(recording: Recording, charges: list[Charge]) -> list[Charge]:
    """Return the charges of the full history with the legality of its requests."""
    bodies = (exchange.body for exchange in build_exchanges(recording))
    illegal = [int(bool(thresher.check(body, recording.dialect))) for body in bodies]
    return [charge._replace(illegal=found) for charge, found in zip(charges, illegal, strict=True)]


def replay_proxy(url: str, model: BillingModel, recording: Recording, rates: Rates, name: str) -> list[Charge]:
    """Send the requests of a recording through a proxy, and return what the upstream billed."""
    model.begin(recording, rates)
    path = PATHS[recording.dialect].format(model=recording.model)
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer none",
        "x-thresher-session": name,
        "x-headroom-session-id": name,
    }
    with closing(HTTPConnection("127.0.0.1", port_of(url), timeout=120)) as connection:
        for exchange in build_exchanges(recording):
            Clock.now = Clock.now if exchange.time is None else exchange.time
            sent, model.row = len(model.charges) + 1, exchange.answer
            connection.request("POST", path, json.dumps(exchange.body).encode(), headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or len(model.charges) != sent:
                raise SystemExit(f"{name}: status {answer.status}, request {sent}: {text[:500]!r}")
    return model.charges


def set_model(recording: Recording) -> tuple[Recording, Rates]:
    """Return the recording with a model whose prices are known, and these prices."""
    model = find_model(recording.model) if recording.model else None
    if model is None:
        prices = DEFAULT_MODELS.get(recording.dialect, "openai")
        model = find_model(PRICES[prices][0])
    assert model is not None
    return structs.replace(recording, model=model.name), rates_for_model(model)


def measure(
    name: str, recordings: list[Recording], urls: dict[str, str], model: BillingModel, budget: int
) -> dict[str, list[Charge]]:
    """Return the charges of a session, for each way."""
    charges: dict[str, list[Charge]] = {way: [] for way in (*STRATEGIES, *urls)}
    for number, found in enumerate(recordings):
        recording, rates = set_model(found)
        for way, strategy in STRATEGIES.items():
            direct = replay_direct(recording, rates, strategy, budget)
            charges[way] += count_illegal(recording, direct) if way == "full" else direct
        for way, url in urls.items():
            charges[way] += replay_proxy(url, model, recording, rates, f"{name} {number}")
    return charges


def summarize(sessions: dict[str, dict[str, list[Charge]]], least: int) -> list[dict[str, Any]]:
    """Return a row for each way over the sessions with at least so many requests."""
    chosen = [ways for ways in sessions.values() if len(ways["full"]) >= least]
    rows = []
    for way in [way for way in WAYS if all(way in ways for ways in chosen)]:
        total = [charge for ways in chosen for charge in ways[way]]
        full = sum(charge.cost for ways in chosen for charge in ways["full"])
        above = sum(_cost(ways[way]) > _cost(ways["full"]) * 1.000001 for ways in chosen)
        rows.append(
            {
                "way": way,
                "sessions": len(chosen),
                "requests": len(total),
                "tokens_per_request": round(sum(charge.tokens for charge in total) / max(1, len(total))),
                "cost": round(sum(charge.cost for charge in total) / full, 4) if full else None,
                "prefix_breaks": sum(charge.breaks for charge in total),
                "more_expensive_than_full": above,
                "illegal": sum(charge.illegal for charge in total) if way in CHECKED else None,
            }
        )
    return rows


def _cost(charges: list[Charge]) -> float:
    return sum(charge.cost for charge in charges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="report")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--budget", default="60k")
    parser.add_argument("--limit", type=int, help="an even sample of so many sessions")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--headroom", type=Path, help="the program `headroom`, from `headroom-ai[proxy]`")
    options = parser.parse_args()
    budget = parse_token_count(options.budget)
    window_request.time = lambda: Clock.now  # type: ignore[attr-defined]
    sessions: dict[str, dict[str, list[Charge]]] = {}
    model = BillingModel()
    with ExitStack() as stack:
        upstream = stack.enter_context(loopback_upstream(model.answer))
        home = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["THRESHER_HOME"] = home
        urls: dict[str, str] = {}
        skipped, figures = 0, {}
        if options.headroom is None or not options.headroom.is_file():
            print(f"headroom: skipped, because --headroom names no program: {options.headroom}", flush=True)
        else:
            urls["headroom"] = stack.enter_context(running_headroom(options.headroom, upstream.url, Path(home)))
        chosen = list(find_sessions(options.split, options.calls))
        proxy = start_proxy(
            ProxyOptions(
                upstreams={"": upstream.url}, budget=budget, fit_timeout=60, window_options={"counter": "estimate"}
            )
        )
        stack.callback(proxy.stop)
        for name, session, count in spread(chosen, options.limit or len(chosen)):
            found = list(build_session_recordings(structs.replace(session, children=())))
            if "headroom" in urls and any(recording.dialect not in HEADROOM_DIALECTS for recording in found):
                skipped += 1
                continue
            sessions[name] = measure(name, found, {"proxy": proxy.url, **urls}, model, budget)
            upstream.requests.clear()
            costs = {way: round(_cost(charges)) for way, charges in sessions[name].items()}
            print(f"{name[-60:]:60} {count:5} {costs}", flush=True)
            figures = report(sessions, proxy.status()["proxy"]["total"])
            if "headroom" in urls:
                figures["headroom"] = {"skipped_sessions": skipped, "failures": count_failures(Path(home))}
            if options.json:
                options.json.write_text(json.dumps(figures, indent=1))
        print(json.dumps(figures, indent=1))


def report(sessions: dict[str, dict[str, list[Charge]]], total: dict[str, Any]) -> dict[str, Any]:
    """Return all figures."""
    return {
        **{str(least): summarize(sessions, least) for least in (1, 100)},
        "proxy": {name: total[name] for name in ("requests", "changed", "unchanged", "fallbacks", "replans")},
    }


if __name__ == "__main__":
    main()
