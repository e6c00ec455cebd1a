"""Run an agent in the foreground behind a proxy of its own."""

import logging
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from thresher.serve.launch.agent import AgentCommand, Launch, LaunchError
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.proxy import ROUTE_PATH
from thresher.serve.proxy.running import RunningProxy, start_proxy

LOOPBACK = "127.0.0.1,localhost"
KEPT_PROBLEMS = 20
"""Number of the proxy's last warnings to keep for the report."""


class FinishedRun(NamedTuple):
    """The end of a run: the agent's exit code, the figures of the proxy, and its warnings."""

    exit_code: int
    status: dict[str, Any]
    problems: tuple[str, ...]


def find_program(program: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program; raise `LaunchError` if it is not installed."""
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise LaunchError(f"`{program}` is not installed, or not in a folder of PATH")
    return found


def run_agent(program: str, launch: Launch, options: ProxyOptions, environment: Mapping[str, str]) -> FinishedRun:
    """Start the proxy and run the program in the foreground."""
    with _collect_warnings() as problems, TemporaryDirectory(prefix="thresher-run-") as folder:
        proxy = start_proxy(replace(options, routes=find_routes(launch)))
        try:
            command = build_command(launch, proxy.url, Path(folder))
            variables = add_variables(environment, command.variables)
            exit_code = _run_in_foreground([program, *command.arguments], variables, proxy.toggle_bypass)
        finally:
            status = _stop(proxy)
    return FinishedRun(exit_code, status, tuple(problems))


def find_routes(launch: Launch) -> dict[str, str]:
    """Return the address that the proxy forwards to for each name: the base URLs without their paths."""
    routes = {}
    for name, url in launch.base_urls.items():
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LaunchError(f"the base URL for {name} must start with http:// or https://, got `{url}`")
        if "@" in parts.netloc:
            raise LaunchError(f"the base URL for {name} has a user name or password, which the proxy does not send")
        routes[name] = f"{parts.scheme}://{parts.netloc}"
    return routes


def build_command(launch: Launch, proxy_url: str, folder: Path) -> AgentCommand:
    """Return the arguments and variables that send the agent's requests to the proxy."""
    urls = {
        name: f"{proxy_url}{ROUTE_PATH}{quote(name, safe='')}{urlsplit(url).path.rstrip('/')}"
        for name, url in launch.base_urls.items()
    }
    return launch.build(urls, folder)


def add_variables(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the agent. Its requests to this machine must not take the system's own proxy."""
    merged = {**environment, **variables}
    if any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in merged):
        for name in ("NO_PROXY", "no_proxy"):
            merged[name] = ",".join(filter(None, [merged.get(name, ""), LOOPBACK]))
    return merged


def _stop(proxy: RunningProxy) -> dict[str, Any]:
    status = proxy.status()
    proxy.stop()
    return status


def _run_in_foreground(words: list[str], environment: Mapping[str, str], toggle_bypass: Callable[[], None]) -> int:
    """Run a program with this terminal and return its exit code; 128 plus the number of the signal that ended it."""
    signals: list[int] = []
    with _handle_signals(signals.append, toggle_bypass) as set_receiver:
        try:
            process = subprocess.Popen(words, env=dict(environment))
        except OSError as error:
            raise LaunchError(f"cannot start `{words[0]}`: {error.strerror or error}") from error
        set_receiver(process.send_signal)
        for number in signals:  # that arrived before the agent
            process.send_signal(number)
        code = process.wait()
    return code if code >= 0 else 128 - code


Receiver = Callable[[int], None]


@contextmanager
def _handle_signals(receiver: Receiver, toggle_bypass: Callable[[], None]) -> Iterator[Callable[[Receiver], None]]:
    """Leave the keys of the terminal to the agent, which receives them too, and pass other signals to a receiver.

    SIGUSR1 switches Thresher off and on, as for `thresher proxy`. Yield a function that changes the receiver.
    """
    receivers = [receiver]

    def pass_on(number: int, _frame: FrameType | None) -> None:
        receivers[-1](number)

    def ignore(_number: int, _frame: FrameType | None) -> None:
        """Do nothing; unlike SIG_IGN, a child does not inherit this."""

    def toggle(_number: int, _frame: FrameType | None) -> None:
        toggle_bypass()

    by_name = dict.fromkeys(("SIGINT", "SIGQUIT"), ignore) | dict.fromkeys(("SIGTERM", "SIGHUP", "SIGUSR2"), pass_on)
    by_name["SIGUSR1"] = toggle
    numbers = {getattr(signal, name): handler for name, handler in by_name.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    try:
        yield receivers.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _WarningList(logging.Handler):
    """Keeps the last warnings: while the agent runs, the terminal belongs to it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: deque[str] = deque(maxlen=KEPT_PROBLEMS)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _collect_warnings() -> Iterator[deque[str]]:
    names = ("thresher", "aiohttp", "asyncio")
    handler, loggers = _WarningList(), [logging.getLogger(name) for name in names]
    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield handler.texts
    finally:
        for logger, propagate in zip(loggers, propagated, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
