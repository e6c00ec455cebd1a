"""Headroom's proxy as a subprocess, for benchmarks: it sends to an upstream on loopback, and to no other host.

It runs with its defaults, with four exceptions: no rate limit (60 requests per minute would slow a replay), no cache of
answers (each request must reach the upstream), no network of its own (`HEADROOM_OFFLINE`: no telemetry, update check or
download of its compression model), and 60 seconds for a compression, as the other proxies of a benchmark have.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

DIALECTS = ("anthropic", "openai-chat", "openai-responses")
"""Dialects that it compresses, by its routes."""
START_SECONDS = 120
LOG = "headroom.log"


@contextmanager
def running_headroom(program: Path, upstream: str, home: Path) -> Iterator[str]:
    """Start `headroom proxy` with its data in `home`, and yield its URL."""
    port = _find_free_port()
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {
        **keep,
        **_find_vocabularies(program),
        "HOME": str(home),
        "HEADROOM_OFFLINE": "1",
        "HEADROOM_TELEMETRY": "off",
        "HEADROOM_UPDATE_CHECK": "off",
        "HEADROOM_COMPRESSION_TIMEOUT_SECONDS": "60",
        "HF_HUB_OFFLINE": "1",
    }
    addresses = ["--port", str(port), "--anthropic-api-url", upstream, "--openai-api-url", upstream]
    command = [str(program), "proxy", *addresses, "--no-rate-limit", "--no-cache", "--no-telemetry"]
    with (home / LOG).open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, port, home / LOG)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def count_failures(home: Path) -> int:
    """Return the number of requests that it forwarded as they were because its compression failed."""
    return (home / LOG).read_text(encoding="utf-8", errors="replace").count("Optimization failed")


def _find_vocabularies(program: Path) -> dict[str, str]:
    """Return where tiktoken finds its vocabularies: without them every compression for a GPT or Claude model fails.

    litellm, which is installed with headroom's proxy, contains them.
    """
    found = sorted(program.parent.parent.glob("lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"))
    own = os.environ.get("TIKTOKEN_CACHE_DIR")
    directory = own or (str(found[0]) if found else None)
    return {"TIKTOKEN_CACHE_DIR": directory} if directory else {}


def _find_free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    for _ in range(START_SECONDS * 2):
        if process.poll() is not None:
            break
        try:
            with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"headroom did not start:\n{log.read_text(errors='replace')[-2000:]}")
