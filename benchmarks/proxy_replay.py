"""Replay recorded sessions as HTTP through the proxy, and compare tokens and cost.

    python benchmarks/proxy_replay.py [--split report] [--calls 60] [--budget 60k] [--limit N] [--json FILE]

Every recorded session with at least that many model calls: each segment is a conversation, and each call one request
with the messages before it, at its recorded time. The proxy sends it to a model on loopback, which bills by prefix and
reports that as usage. Compared, with the same meter and the same prices:

- full: every request as recorded, without a proxy;
- replay: the window inside `thresher replay`, with the same budget;
- proxy: the same requests through HTTP;
- clear-tool-uses: Anthropic's documented rule for context editing.

Nothing is refetched, so the requests are the same for all. Cost is relative to `full`. The clock of the windows is the
recorded one. A plan may take 60 seconds, so that the load of the machine changes nothing.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from conversations import DATA, recordings, spread
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

WAYS = ("full", "replay", "proxy", "clear-tool-uses")
STRATEGIES = {"full": "full", "replay": "auto", "clear-tool-uses": "clear-tool-uses"}
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

    def begin(self, recording: Recording, rates: Rates) -> None:
        conversation = ReplayConversation(recording, InMemoryContentStore())
        self._reader, self._meter, self.charges = PieceReader(conversation), CostMeter(rates), []
        self._dialect = recording.dialect

    async def answer(self, request: web.Request) -> web.StreamResponse:
        pieces = self._reader.read(json.loads(request[BODY]))
        cost = self._meter.charge(Clock.now, [(piece, piece.tokens) for piece in pieces])
        self.charges.append(Charge(cost.tokens, cost.cost, int(cost.is_prefix_broken)))
        return web.json_response(build_usage(self._dialect, cost.tokens, cost.cached))


def build_usage(dialect: str, tokens: int, cached: int) -> dict[str, Any]:
    """Return an answer with the usage of a request, in the form of its API."""
    if dialect == "anthropic":
        fields = {"input_tokens": 0, "cache_read_input_tokens": cached, "cache_creation_input_tokens": tokens - cached}
        return {"usage": {**fields, "output_tokens": 1}}
    if dialect == "gemini":
        return {"usageMetadata": {"promptTokenCount": tokens, "cachedContentTokenCount": cached}}
    name, output = ("prompt", "completion") if dialect == "openai-chat" else ("input", "output")
    details = {f"{name}_tokens_details": {"cached_tokens": cached}}
    return {"usage": {f"{name}_tokens": tokens, f"{output}_tokens": 1, **details}}


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


def replay_proxy(url: str, model: BillingModel, recording: Recording, rates: Rates, name: str) -> list[Charge]:
    """Send the requests of a recording through the proxy, and return what the upstream billed."""
    model.begin(recording, rates)
    path = PATHS[recording.dialect].format(model=recording.model)
    named = {} if recording.dialect == "gemini" else {"model": recording.model}
    beside, field = recording.system_message_count, recording.rows_field
    with closing(HTTPConnection("127.0.0.1", port_of(url), timeout=120)) as connection:
        for call in recording.trace.calls:
            Clock.now = Clock.now if call.time is None else call.time
            body = {
                "tools": SHELL[recording.dialect],
                **recording.body,
                **named,
                field: list(recording.rows[: max(0, call.stop - beside)]),
            }
            connection.request("POST", path, json.dumps(body).encode(), {"x-thresher-session": name})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise SystemExit(f"{name}: status {answer.status}")
    return model.charges


def set_model(recording: Recording) -> tuple[Recording, Rates]:
    """Return the recording with a model whose prices are known, and these prices."""
    model = find_model(recording.model) if recording.model else None
    if model is None:
        prices = DEFAULT_MODELS.get(recording.dialect, "openai")
        model = find_model(PRICES[prices][0])
    assert model is not None
    return structs.replace(recording, model=model.name), rates_for_model(model)


def measure(name: str, session: Session, url: str, model: BillingModel, budget: int) -> dict[str, list[Charge]]:
    """Return the charges of a session, for each way."""
    charges: dict[str, list[Charge]] = {way: [] for way in WAYS}
    for number, found in enumerate(build_session_recordings(structs.replace(session, children=()))):
        recording, rates = set_model(found)
        for way, strategy in STRATEGIES.items():
            charges[way] += replay_direct(recording, rates, strategy, budget)
        charges["proxy"] += replay_proxy(url, model, recording, rates, f"{name} {number}")
    return charges


def summarize(sessions: dict[str, dict[str, list[Charge]]], least: int) -> list[dict[str, Any]]:
    """Return a row for each way over the sessions with at least so many requests."""
    chosen = [ways for ways in sessions.values() if len(ways["full"]) >= least]
    rows = []
    for way in WAYS:
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
    options = parser.parse_args()
    budget = parse_token_count(options.budget)
    window_request.time = lambda: Clock.now  # type: ignore[attr-defined]
    sessions: dict[str, dict[str, list[Charge]]] = {}
    model = BillingModel()
    with tempfile.TemporaryDirectory() as home, loopback_upstream(model.answer) as upstream:
        os.environ["THRESHER_HOME"] = home
        chosen = list(find_sessions(options.split, options.calls))
        proxy = start_proxy(
            ProxyOptions(
                upstreams={"": upstream.url}, budget=budget, fit_timeout=60, window_options={"counter": "estimate"}
            )
        )
        try:
            for name, session, count in spread(chosen, options.limit or len(chosen)):
                sessions[name] = measure(name, session, proxy.url, model, budget)
                costs = {way: round(_cost(charges)) for way, charges in sessions[name].items()}
                print(f"{name[-60:]:60} {count:5} {costs}", flush=True)
            total = proxy.status()["proxy"]["total"]
        finally:
            proxy.stop()
    report: dict[str, Any] = {str(least): summarize(sessions, least) for least in (1, 100)}
    report["proxy"] = {name: total[name] for name in ("requests", "changed", "unchanged", "fallbacks", "replans")}
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
