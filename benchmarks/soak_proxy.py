"""Run agents through the proxy while everything fails around it: `python benchmarks/soak_proxy.py [--calls 60]`.

Faults: an upstream that is slow, breaks off, answers 429, 500 or 529 or with malformed events, or refuses an edited
history; clients that vanish; bodies of many megabytes; a locked ledger, a damaged one, a full disk; a policy that
raises or takes too long; `kill -9` and a restart in the middle of a session.

Checked: every session reaches its end; every answer reaches its client byte for byte; no request is lost, or sent twice
except for the documented fallback; every edited request is legal; the prefix of a session changes only at a recorded
replan or fallback. Exits 1 with a report if any check fails.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import re
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from aiohttp import web

import thresher as th
from thresher.policies.table import make_policy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve" / "proxy"))
from agent import CachingModel, message_rows
from loopback import BODY, loopback_upstream

BUDGET = 6_000
FIT_TIMEOUT = 0.4
ATTEMPTS = 400
"""Maximum number of times that an agent sends a request until it gets an answer."""
NUMBER = "x-request-number"
ERRORS = (429, 500, 529)
REFUSAL = "messages.3: `tool_use` ids were found without `tool_result` blocks"
DISK_BYTES = 400_000
"""Size of a file at which the simulated disk is full."""
FAULTS = ("none",) * 6 + ("slow", "breaks off", "error", "malformed")


class FaultyPolicy:
    """A policy that sometimes raises, and sometimes takes longer than the proxy waits."""

    name = "faulty"

    def __call__(self, history: th.History) -> Any:
        fault = random.random()
        if fault < 0.05:
            raise RuntimeError("a fault of Thresher")
        if fault < 0.1:
            time.sleep(FIT_TIMEOUT * 2)
        return make_policy("mask")(history)


@dataclass
class FaultyModel:
    """An upstream with faults. It records each request, and the bytes of its answer."""

    random: random.Random
    refuses: bool
    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    illegal: list[str] = field(default_factory=list)
    served: dict[str, list[bytes]] = field(default_factory=dict)
    """Bodies of each session, in order."""
    refusals: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body, number = request[BODY], request.headers[NUMBER]
        self.bodies.setdefault(number, []).append(body)
        session = number.partition(":")[0]
        self.served.setdefault(session, []).append(body)
        if found := th.check(json.loads(body)["messages"], "anthropic"):
            self.illegal.append(f"{number}: {found[0].rule}")
        if self.refuses and session == "s0" and b"[thresher" in body:
            self.refusals += 1
            return web.json_response({"error": {"message": REFUSAL}}, status=400)
        fault = self.random.choice(FAULTS)
        if fault == "error":
            return web.Response(status=self.random.choice(ERRORS), text="later", headers={"Retry-After": "0"})
        usage = CachingModel().bill(body)
        chunks = [b"data: %s\n\n" % json.dumps({"type": "message_start", "message": {"usage": usage}}).encode()]
        chunks += [b"data: {usage\xff\n\n" if fault == "malformed" else b"event: ping\ndata: {}\n\n"] * 5
        self.answers[number] = b"".join(chunks)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for count, chunk in enumerate(chunks):
            if fault == "breaks off" and count == 3 and request.transport is not None:
                request.transport.abort()
                return response
            if fault == "slow":
                await asyncio.sleep(0.02)
            await response.write(chunk)
        return response


@dataclass
class Report:
    """What the agents saw."""

    lock: Lock = field(default_factory=Lock)
    seen: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    expected_answers: int = 0

    def count(self, what: str) -> None:
        with self.lock:
            self.seen[what] += 1

    def fail(self, problem: str) -> None:
        with self.lock:
            self.problems.append(problem)


def make_body(session: str, turns: int, *, huge: bool) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash")]
    rows = message_rows(turns)
    if huge:
        rows[0]["content"] += " " + "x" * 3_000_000
    return json.dumps({"model": "claude-sonnet-4-5", "system": session, "tools": tools, "messages": rows}).encode()


def run_agent(port: int, session: str, calls: int, model: FaultyModel, report: Report, rng: random.Random) -> None:
    """Send every request of a session until it is answered."""
    huge = session.endswith("9")
    for turn in range(1, calls + 1):
        body = make_body(session, turn, huge=huge)
        if not any(attempt(port, f"{session}:{turn}:{n}", body, model, report, rng) for n in range(ATTEMPTS)):
            report.fail(f"{session}: no answer to turn {turn}")
            return
    report.count("sessions complete")


def attempt(port: int, number: str, body: bytes, model: FaultyModel, report: Report, rng: random.Random) -> bool:
    """Send a request once; return True if it got a complete answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {NUMBER: number, "x-thresher-session": number.partition(":")[0]}
    try:
        connection.request("POST", "/v1/messages", body, headers)
        if rng.random() < 0.05:
            report.count("client vanished")
            return False
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, HTTPException) as error:
        report.count(f"client saw {type(error).__name__}")
        time.sleep(0.1)  # the proxy may just restart
        return False
    finally:
        connection.close()
    report.count(f"status {answer.status}")
    if answer.status == 200:
        report.answered.add(number)
        if data != model.answers.get(number):
            report.fail(f"{number}: the answer is not the upstream's")
        return True
    if answer.status not in (*ERRORS, 502):
        report.fail(f"{number}: status {answer.status}: {data[:80]!r}")
    return False


class ProxyProcess:
    """A proxy in a process of its own, on a fixed port."""

    def __init__(self, upstream: str, home: Path, *, disk_is_full: bool = False) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [sys.executable, __file__, "--serve", upstream, "--port", str(self.port)]
        self._command += ["--full-disk"] if disk_is_full else []
        self._environment = {**os.environ, "THRESHER_HOME": str(home)}
        self.totals: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert re.match("listening", line), line

    def add_totals(self) -> None:
        """Add the figures of this process, which a kill loses."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", "/thresher/status")
            total = json.loads(connection.getresponse().read())["proxy"]["total"]
        for name in ("fallbacks", "replans", "problems", "refusals"):
            self.totals.update({f"{name} {key}": count for key, count in total[name].items()})

    def kill(self) -> None:
        self.add_totals()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def disturb(
    proxy: ProxyProcess, home: Path, agents: list[Thread], report: Report, rng: random.Random, kills: int
) -> None:
    """Lock a ledger, then kill and restart the proxy, at even distances; damage a ledger before the last restart."""
    answers = report.expected_answers
    for number in range(1, kills + 1):
        while len(report.answered) < answers * number // (kills + 1) and any(agent.is_alive() for agent in agents):
            time.sleep(0.02)
        ledgers = sorted((home / "proxy").glob("*.sqlite3"))
        if ledgers:
            with closing(sqlite3.connect(rng.choice(ledgers), timeout=5, isolation_level=None)) as lock:
                lock.execute("BEGIN IMMEDIATE")
                time.sleep(FIT_TIMEOUT * 2)
        proxy.kill()
        report.count("kills")
        if ledgers and number == kills:
            damaged = rng.choice(ledgers)
            damaged.write_bytes(b"no database" * 999)
            for file in damaged.parent.glob(f"{damaged.name}-*"):
                file.unlink()
        proxy.start()


def check_requests(model: FaultyModel, report: Report) -> None:
    """Check that each answered request reached the upstream once, or twice after a refusal."""
    for number in report.answered:
        sent = len(model.bodies.get(number, []))
        allowed = (1, 2) if number.startswith("s0:") and model.refuses else (1,)
        if sent not in allowed:
            report.fail(f"{number}: sent {sent} times")
    for problem in model.illegal:
        report.fail(f"illegal request {problem}")


def count_breaks(model: FaultyModel) -> int:
    """Count the requests whose prefix is not the one that the upstream saw before."""
    breaks = 0
    for bodies in model.served.values():
        rows = [json.loads(body)["messages"] for body in bodies]
        for before, after in pairwise(rows):
            shared = min(len(before), len(after))
            breaks += before[:shared] != after[:shared]
    return breaks


def run(calls: int, sessions: int, kills: int, seed: int, *, disk_is_full: bool) -> Report:
    rng = random.Random(seed)
    model, report = (
        FaultyModel(random.Random(seed + 1), refuses=not disk_is_full),
        Report(expected_answers=calls * sessions),
    )
    with tempfile.TemporaryDirectory() as folder, loopback_upstream(model.answer) as upstream:
        home = Path(folder)
        proxy = ProxyProcess(upstream.url, home, disk_is_full=disk_is_full)
        agents = [
            Thread(target=run_agent, args=(proxy.port, f"s{n}", calls, model, report, random.Random(seed + n)))
            for n in range(sessions)
        ]
        for agent in agents:
            agent.start()
        disturb(proxy, home, agents, report, rng, kills)
        for agent in agents:
            agent.join()
        proxy.kill()
    check_requests(model, report)
    breaks = count_breaks(model)
    recorded = sum(count for name, count in proxy.totals.items() if not name.startswith("problems"))
    if breaks > recorded + 2 * kills * sessions:  # a killed process cannot report its last replans
        report.fail(f"{breaks} prefixes changed, {recorded} changes were recorded")
    if report.seen["sessions complete"] != sessions:
        report.fail(f"{report.seen['sessions complete']} of {sessions} sessions reached their end")
    report.seen.update({"requests upstream": sum(map(len, model.bodies.values())), "prefix breaks": breaks})
    report.seen.update(proxy.totals)
    return report


def serve(upstream: str, port: int, *, disk_is_full: bool) -> None:
    from thresher.serve.app import AppOptions  # noqa: PLC0415 - only the server needs it
    from thresher.serve.proxy.options import ProxyOptions  # noqa: PLC0415
    from thresher.serve.proxy.running import run_proxy  # noqa: PLC0415

    if disk_is_full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
    options = ProxyOptions(
        app=AppOptions(port=port), upstreams={"": upstream}, budget=BUDGET, policy=FaultyPolicy(),
        fit_timeout=FIT_TIMEOUT,
    )  # fmt: skip
    run_proxy(options, lambda app: print("listening", app.url, flush=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--full-disk", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.port, disk_is_full=options.full_disk)
        return
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that vanish are part of the test
    problems: list[str] = []
    for disk_is_full in (False, True):
        report = run(options.calls, options.sessions, options.kills, options.seed, disk_is_full=disk_is_full)
        print("full disk" if disk_is_full else "faults", json.dumps(dict(sorted(report.seen.items())), indent=1))
        problems += report.problems
    print("\n".join(problems[:20]) or "no problem")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
