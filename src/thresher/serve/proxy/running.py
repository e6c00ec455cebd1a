"""Start the proxy inside another program, such as `thresher run`, or run it until a signal."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from thresher.serve.app import LocalApp
from thresher.serve.background import BackgroundApp
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.proxy import Proxy

SWITCH_SECONDS = 0.001
"""Time after which a thread that plans lets the loop pass bytes on. Python's default is five times longer."""


class RunningProxy:
    """A proxy that runs in a thread of this process."""

    def __init__(self, background: BackgroundApp, proxies: list[Proxy]) -> None:
        self._background, self._proxies = background, proxies

    @property
    def url(self) -> str:
        """Base URL for clients, without a path of an API."""
        return self._background.app.url

    def status(self) -> dict[str, Any]:
        """Return the same figures as `/thresher/status`."""
        return self._background.app.status()

    def set_bypass(self, *, on: bool) -> None:
        """Pass every request through, or fit requests again."""
        for proxy in self._proxies:
            self._background.call(partial(proxy.set_bypass, on=on))

    def toggle_bypass(self) -> None:
        """Switch Thresher off, or on again."""
        for proxy in self._proxies:
            self.set_bypass(on=not proxy.is_bypassed)

    def stop(self) -> None:
        """Close the connections and stop."""
        self._background.stop()


def start_proxy(options: ProxyOptions) -> RunningProxy:
    """Start a proxy in a thread of this process, by default on a free port of loopback."""

    proxies: list[Proxy] = []

    async def build() -> LocalApp:
        app, proxy = build_proxy_app(options)
        proxies.append(proxy)
        return app

    return RunningProxy(BackgroundApp(build), proxies)


def build_proxy_app(options: ProxyOptions) -> tuple[LocalApp, Proxy]:
    """Return an application with the routes of the proxy; call it inside a running event loop."""
    app = LocalApp(options.app)
    return app, Proxy(app, options)


def run_proxy(options: ProxyOptions, on_start: Callable[[LocalApp], None]) -> None:
    """Run the proxy until Ctrl-C or SIGTERM; `on_start` is called when it listens."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, on_start))


async def _serve(options: ProxyOptions, on_start: Callable[[LocalApp], None]) -> None:
    app, proxy = build_proxy_app(options)
    await app.start()
    sys.setswitchinterval(SWITCH_SECONDS)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stopped.set)
    if hasattr(signal, "SIGUSR1"):
        loop.add_signal_handler(signal.SIGUSR1, lambda: proxy.set_bypass(on=not proxy.is_bypassed))
    on_start(app)
    try:
        await stopped.wait()
    finally:
        await app.stop()
