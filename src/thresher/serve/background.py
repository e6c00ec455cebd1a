"""Run a local application in a thread with an event loop of its own, for programs that have none."""

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event, Thread

from thresher.serve.app import LocalApp

STOP_SECONDS = 10.0
"""Maximum time to wait for the application to stop."""
AppBuilder = Callable[[], Awaitable[LocalApp]]


class BackgroundApp:
    """A running application. `stop` ends it."""

    def __init__(self, build: AppBuilder) -> None:
        """Build and start the application in a new thread; raise the error of a start that failed."""
        self._build = build
        self._loop = asyncio.new_event_loop()
        self._ready = Event()
        self._error: BaseException | None = None
        self._app: LocalApp | None = None
        self._thread = Thread(target=self._run, name="thresher-app", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    @property
    def app(self) -> LocalApp:
        """The application."""
        assert self._app is not None
        return self._app

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread of the application."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Stop the application and wait until it has ended."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._app = self._loop.run_until_complete(self._start())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            self._error = error
            self._ready.set()
            self._loop.close()
            return
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._app.stop())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _start(self) -> LocalApp:
        app = await self._build()
        await app.start()
        return app
