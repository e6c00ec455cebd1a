"""Soak test of the MCP server: many clients at once, crashing clients, transcripts that grow while the server reads
them.

    python benchmarks/soak_mcp.py [--calls 1000] [--clients 8]

Over HTTP eight clients make a thousand calls while a session grows; each answer is compared with the written text. Over
stdio, clients disconnect from their servers in the middle of a call: each server must end by itself. The memory of the
server at the end is compared with its memory after a fifth of the calls.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import anyio
from mcp.client import Client
from mcp.types import CallToolResult, TextContent

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "memory"))

from chats import line, name

MOST_TURNS = 400
GROWTH = 1.3
"""Maximum growth of the server's memory."""
CALL = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": '
    b'"clientInfo": {"name": "soak", "version": "1"}}}\n{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "search_sessions", "arguments": '
    b'{"query": "topic"}}}\n'
)


class World:
    """Sessions, one of which grows."""

    def __init__(self, folder: Path, sessions: int) -> None:
        self.folder, self.sessions, self.grown = folder, sessions, 0
        folder.mkdir()
        for number in range(1, sessions + 1):
            rows = [line(name(number), at, role, f"okapi{number} and topic{at}") for at, role in self._roles(40)]
            (folder / f"{name(number)}.jsonl").write_bytes(b"".join(rows))

    def _roles(self, count: int) -> list[tuple[int, str]]:
        return [(at, ("user", "assistant")[at % 2]) for at in range(count)]

    def grow(self) -> None:
        at = 40 + self.grown
        with (self.folder / f"{name(1)}.jsonl").open("ab", buffering=0) as file:
            file.write(line(name(1), at, ("user", "assistant")[at % 2], f"okapi1 and grown{self.grown}"))
        self.grown += 1


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


class ClientLoad:
    """Calls of the clients, and wrong answers."""

    def __init__(self, world: World, port: int, calls: int) -> None:
        self.world, self.left = world, calls
        self.address = f"http://127.0.0.1:{port}/mcp"
        self.faults: list[str] = []

    async def client(self, seed: int) -> None:
        chance = random.Random(seed)
        async with Client(self.address) as client:
            while self.left > 0:
                self.left -= 1
                await self.ask(client, chance)

    async def ask(self, client: Client, chance: random.Random) -> None:
        number = chance.randrange(1, self.world.sessions + 1)
        session, known = name(number), self.world.grown
        kind = chance.choice(("search", "read", "recall", "context", "grown", "wrong"))
        if kind == "search":
            answer = text_of(await client.call_tool("search_sessions", {"query": f"okapi{number}"}))
            self.hold(kind, session in answer)
        elif kind == "read":
            answer = text_of(await client.call_tool("read_session", {"session": session, "around": 7, "context": 0}))
            self.hold(kind, f"okapi{number} and topic7" in answer)
        elif kind == "recall":
            answer = text_of(await client.call_tool("recall", {"session": session, "question": "which topic11?"}))
            self.hold(kind, "topic11" in answer)
        elif kind == "context":
            answer = text_of(await client.call_tool("get_context", {"session": session, "max_tokens": 4000}))
            self.hold(kind, f"okapi{number}" in answer)
        elif kind == "grown" and known:
            answer = text_of(await client.call_tool("search_sessions", {"query": f"grown{known - 1}"}))
            self.hold(kind, name(1) in answer)
        else:
            self.hold(kind, (await client.call_tool("read_session", {"session": "nobody"})).is_error)

    def hold(self, what: str, is_so: object) -> None:
        if not is_so:
            self.faults.append(what)

    async def all(self, clients: int) -> None:
        async with anyio.create_task_group() as group:
            for seed in range(clients):
                group.start_soon(self.client, seed)


def resident(process: int) -> int:
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def many(place: Path, calls: int, clients: int) -> list[str]:
    world = World(place / "files", 60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "thresher.cli", "mcp", "--http", "--port", str(port), "--no-discover"]
    command += ["--no-token"]
    server = subprocess.Popen([*command, "--source", str(world.folder)], env=_home(place), stderr=subprocess.DEVNULL)
    stop = threading.Event()

    def growing() -> None:
        while world.grown < MOST_TURNS and not stop.wait(0.03):
            world.grow()

    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        writer = threading.Thread(target=growing)
        writer.start()
        load = ClientLoad(world, port, calls // 5)
        anyio.run(load.all, clients)
        early = resident(server.pid)
        began = time.perf_counter()
        load.left = calls
        anyio.run(load.all, clients)
        taken = time.perf_counter() - began
        stop.set()
        writer.join()
        late = resident(server.pid)
        print(f"{calls:>9,}  calls of {clients} clients in {taken:.1f} s, {world.grown} turns written in that time")
        print(f"{len(load.faults):>9,}  wrong answers; memory {early / 1e6:.0f} MB, then {late / 1e6:.0f} MB")
        return [*load.faults, *(["the server grew"] if late > GROWTH * early else [])]
    finally:
        stop.set()
        server.send_signal(signal.SIGTERM)
        server.wait(10)


def dying(place: Path, times: int) -> list[str]:
    """Disconnect clients in the middle of a call; their servers must end."""
    chance, faults = random.Random(1), []
    for _ in range(times):
        command = [sys.executable, "-m", "thresher.cli", "mcp", "--no-discover", "--source", str(place / "files")]
        server = subprocess.Popen(
            command, env=_home(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(CALL)
        server.stdin.flush()
        time.sleep(chance.uniform(0, 1.5))
        server.stdin.close()
        server.stdout.close()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            faults.append("a server outlived its client")
            server.kill()
            server.wait()
    print(f"{times:>9,}  clients disconnected during a call; {len(faults)} servers kept running")
    return faults


def _home(place: Path) -> dict[str, str]:
    return os.environ | {"THRESHER_HOME": str(place / "home")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--deaths", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        faults = many(Path(place), options.calls, options.clients) + dying(Path(place), options.deaths)
    print(f"{len(faults):>9,}  faults {sorted(set(faults))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
