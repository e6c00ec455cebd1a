"""Latency that the proxy adds to a request, beside a plain pass-through in the same run.

An agent's loop at 20k, 60k and 200k tokens: each request adds a tool call of 500 tokens, as agents do. Every request is
sent three times in random order, each time with a cache of its own: to the upstream, through the proxy with
`x-thresher: off`, and fitted. The upstream is on loopback, answers with a stream at once, and bills by prefix.
Measured: time to the first byte of the answer.

    python benchmarks/proxy_latency.py [--requests 60] [--parallel 50] [--memory 5000]
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from thresher.dialects.request_bytes import parse_request_body, splice
from thresher.serve.proxy.conversations import identify
from thresher.serve.proxy.fitted_conversation import FittedConversation

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve" / "proxy"))
from agent import CachingModel, message_rows
from loopback import loopback_upstream, port_of

SIZES = (20_000, 60_000, 200_000)
TURN_TOKENS = 500
"""Approximate tokens of one call with its result."""
LINES_PER_TURN = 90
WARM_UP = 5


def make_request(turns: int, session: str) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash")]
    rows = message_rows(turns, LINES_PER_TURN)
    body = {"model": "claude-sonnet-5", "max_tokens": 9, "stream": True, "system": session, "tools": tools}
    return json.dumps({**body, "messages": rows}).encode()


def time_first_byte(connection: HTTPConnection, body: bytes, headers: dict[str, str]) -> float:
    start = time.perf_counter()
    connection.request("POST", "/v1/messages", body, headers)
    answer = connection.getresponse()
    answer.read(1)
    taken = time.perf_counter() - start
    answer.read()
    assert answer.status == 200, answer.status
    return taken


def measure_processor_time(tokens: int, requests: int, home: Path) -> dict[str, float]:
    """Return the median processor time of each step of a request, in milliseconds. Load does not change it."""
    times: dict[str, list[float]] = {}
    conversation: FittedConversation | None = None

    def timed(step: str, run: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = run()
        times.setdefault(step, []).append((time.process_time() - start) * 1000)
        return result

    first = tokens // TURN_TOKENS - requests // 2
    for number in range(requests):
        data = make_request(first + number, "processor")
        body = timed("parse", partial(parse_request_body, data, "messages"))
        value = body.value
        identity = timed("identify", partial(identify, "anthropic", "generate", "/v1/messages", {}, value))
        if conversation is None:
            conversation = FittedConversation(identity, "anthropic", home / f"{tokens}.sqlite3", "auto", {})
        sent, _ = timed("fit", partial(conversation.fit, value))
        timed("splice", partial(splice, body, sent))
    medians = {step: median(values[WARM_UP:]) for step, values in times.items()}
    return {step: round(value, 2) for step, value in {**medians, "all": sum(medians.values())}.items()}


def start_proxy(upstream: str, home: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "thresher.cli", "proxy", "--port", "0", "--upstream", upstream, *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "THRESHER_HOME": home, "NO_COLOR": "1"}
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+", line)
    assert found is not None, line
    return process, found[0]


def measure(upstream: str, proxy: str, tokens: int, requests: int) -> dict[str, list[float]]:
    session = f"latency {tokens}"
    ways: dict[str, tuple[int, dict[str, str]]] = {
        "upstream": (port_of(upstream), {}),
        "off": (port_of(proxy), {"x-thresher": "off"}),
        "fitted": (port_of(proxy), {"x-thresher-session": session}),
    }
    connections = {name: HTTPConnection("127.0.0.1", port, timeout=60) for name, (port, _) in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    first = tokens // TURN_TOKENS - requests // 2
    for number in range(requests):
        bodies = {name: make_request(first + number, f"{session} {name}") for name in ways}
        for name in random.sample(list(ways), len(ways)):
            taken = time_first_byte(connections[name], bodies[name], ways[name][1])
            if number >= WARM_UP:
                times[name].append(taken * 1000)
    return times


def measure_parallel(proxy: str, conversations: int, requests: int) -> list[float]:
    """Time the requests of many conversations at once, 60k tokens each, after the first request of each."""

    def send(number: int, turn: int) -> float:
        session = f"parallel {number}"
        with closing(HTTPConnection("127.0.0.1", port_of(proxy), timeout=120)) as connection:
            return (
                time_first_byte(connection, make_request(110 + turn, session), {"x-thresher-session": session}) * 1000
            )

    for number in range(conversations):
        send(number, 0)
    with ThreadPoolExecutor(conversations) as pool:
        return [
            taken
            for turn in range(1, requests + 1)
            for taken in pool.map(send, range(conversations), [turn] * conversations)
        ]


def measure_memory(process: int, proxy: str, requests: int, sessions: int = 50) -> dict[str, int]:
    """Return the resident memory of the proxy in MiB, after a fifth of the requests and after all of them."""
    memory: dict[str, int] = {}
    with closing(HTTPConnection("127.0.0.1", port_of(proxy), timeout=120)) as connection:
        for number in range(requests):
            session = f"memory {number % sessions} {number // (sessions * 20)}"
            body = make_request(20 + number // sessions % 20, session)
            time_first_byte(connection, body, {"x-thresher-session": session})
            if number + 1 in (requests // 5, requests):
                text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
                memory[f"after {number + 1} requests"] = int(text.split("VmRSS:")[1].split()[0]) // 1024
    return memory


def percentiles(times: list[float]) -> str:
    cuts = quantiles(times, n=100, method="inclusive")
    return f"p50 {cuts[49]:7.1f} ms   p99 {cuts[98]:7.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--parallel", type=int, default=0, help="conversations at once; 0 leaves this part out")
    parser.add_argument("--memory", type=int, default=0, help="requests to measure the memory over; 0 leaves it out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, loopback_upstream(CachingModel().answer) as upstream:
        process, url = start_proxy(upstream.url, home)
        try:
            for tokens in SIZES:
                steps = measure_processor_time(tokens, options.requests, Path(home))
                print(f"{tokens // 1000:>4}k processor time, ms: {json.dumps(steps)}")
                report(f"{tokens // 1000}k", measure(upstream.url, url, tokens, options.requests))
            if options.parallel:
                times = measure_parallel(url, options.parallel, 5)
                print(f"{options.parallel} conversations at once, 60k   {percentiles(times)}")
            if options.memory:
                print("MiB", json.dumps(measure_memory(process.pid, url, options.memory)))
            print(json.dumps(read_latency(url)))
        finally:
            process.terminate()
            process.wait()


def report(name: str, times: dict[str, list[float]]) -> None:
    for way, values in times.items():
        print(f"{name:>5} {way:9} {percentiles(values)}")
    added = [fitted - plain for fitted, plain in zip(times["fitted"], times["off"], strict=True)]
    print(f"{name:>5} {'added':9} {percentiles(added)}", flush=True)


def read_latency(url: str) -> Any:
    connection = HTTPConnection("127.0.0.1", port_of(url), timeout=60)
    connection.request("GET", "/thresher/status")
    status = json.loads(connection.getresponse().read())["proxy"]
    kept = ("replans", "fallbacks", "unchanged")
    return {"added_latency_ms": status["added_latency_ms"], **{name: status["total"][name] for name in kept}}


if __name__ == "__main__":
    main()
