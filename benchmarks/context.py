"""Time to build the parent context of every sub-agent in the recorded sessions.

    python benchmarks/context.py [--tokens 8000]

For each preset: the number of calls, their median and longest time once the session is cached, the number of answers
over the limit (must be 0), and the median number of tokens. Then the time from the start of the server to its first
answer, compared with an empty server on the same SDK.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from thresher.budget.presets import PRESETS
from thresher.render.agent_view import estimate_text_tokens
from thresher.serve.mcp_tools import McpTools

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
EMPTY = "from mcp.server import MCPServer\nMCPServer('empty').run()"
HELLO = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": '
    b'{}, "clientInfo": {"name": "bench", "version": "1"}}}\n'
)


def contexts(tokens: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        tools = McpTools(home=home, sources=[DATA / "claude_code"], discover=False)
        memory = tools._synced_memory()
        every = memory.store.find_sessions()
        spawned = [one for one in every if one.subagent and one.call and one.parent]
        largest = max((one for one in every if not one.subagent), key=lambda one: one.messages)
        print(f"{len(spawned)} sub-agents; the largest session has {largest.messages:,} messages")
        print(
            "| preset | calls | median | longest | the largest session | over the limit | tokens, median |\n|---|"
            + "---:|" * 6
        )
        for preset in PRESETS:
            times, weights, whole = [], [], []
            for one in spawned:
                tools.read_session(one.parent)  # cache the session without planning for it
                began = time.perf_counter()
                weights.append(
                    estimate_text_tokens(tools.get_context(session=one.id, preset=preset, max_tokens=tokens))
                )
                times.append(1000 * (time.perf_counter() - began))
            for _ in range(6):
                began = time.perf_counter()
                tools.get_context(session=largest.id, preset=preset, max_tokens=tokens)
                whole.append(1000 * (time.perf_counter() - began))
            over = sum(one > tokens for one in weights)
            figures = f"{statistics.median(times):.0f} ms | {max(times):.0f} ms | {statistics.median(whole[1:]):.0f} ms"
            print(f"| {preset} | {len(times)} | {figures} | {over} | {statistics.median(weights):,.0f} |", flush=True)


def first_answer(command: list[str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(HELLO)
        process.stdin.flush()
        process.stdout.readline()
        taken = time.perf_counter() - began
        process.kill()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8_000)
    contexts(parser.parse_args().tokens)
    ours = [sys.executable, "-m", "thresher.cli", "mcp", "--no-discover"]
    rounds = [(first_answer(ours), first_answer([sys.executable, "-c", EMPTY])) for _ in range(7)]
    mine, bare = (statistics.median(some) for some in zip(*rounds, strict=True))
    print(f"first answer: {mine:.2f} s; an empty server {bare:.2f} s; difference {mine - bare:.2f} s")


if __name__ == "__main__":
    main()
