"""Sync in a background thread, for servers that must answer while a long first sync runs.

The thread syncs in slices. Each slice reads the newest files first, so a conversation that continues during a long sync
is up to date after one slice.
"""

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from thresher.errors import ThresherError
from thresher.memory.memory import Memory

SLICE_SECONDS = 10.0
"""Duration of the first slice. It doubles, so that a file that takes longer is read in the end."""


class BackgroundSync:
    """Syncs a memory in a thread that ends when everything is read. No other thread may use this memory object."""

    def __init__(
        self, memory: Memory, *, slice_seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start no thread yet."""
        self._memory, self._slice, self._clock = memory, slice_seconds, clock
        self._changed = threading.Condition()
        self._requested = self._completed = 0
        self._error: Exception | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def refresh(self, wait: float) -> bool:
        """Sync what is on disk now, and wait up to `wait` seconds; return whether this is complete.

        The thread continues after that time. If the sync failed in the meantime, raise its error.
        """
        with self._changed:
            self._requested += 1
            number = self._requested
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="thresher-sync", daemon=True)
                atexit.register(self.close)
                self._thread.start()
            is_complete = self._changed.wait_for(lambda: self._completed >= number or self._is_closed, wait)
            if is_complete and self._error is not None:
                raise self._error
            return is_complete and not self._is_closed

    def close(self) -> None:
        """Stop the thread and keep what it has read; the next sync resumes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        duration = self._slice
        while number := self._next_request():
            error: Exception | None = None
            try:
                is_complete = self._sync_slice(duration)
            except Exception as problem:  # noqa: BLE001 - `refresh` raises it
                error, is_complete = problem, True
            duration *= 2
            if is_complete:
                with self._changed:
                    self._completed, self._error, duration = number, error, self._slice
                    self._changed.notify_all()
                self._build_vectors()

    def _build_vectors(self) -> None:
        """Build vectors until they are complete, the server stops or another call needs a sync."""
        # A search works without them, and `thresher sync` reports the reason.
        with suppress(ThresherError):
            self._memory.build_vectors(stop=lambda: self._is_closed or self._completed < self._requested)

    def _next_request(self) -> int:
        """Return the number of the latest request, or 0 if all are complete; then the thread ends."""
        with self._changed:
            if self._completed < self._requested and not self._is_closed:
                return self._requested
            self._thread = None
            atexit.unregister(self.close)
            return 0

    def _sync_slice(self, seconds: float) -> bool:
        """Sync for this time; return whether everything is read, or another process reads it."""
        end = self._clock() + seconds
        report, _ = self._memory.refresh(stop=lambda: self._is_closed or self._clock() >= end)
        return report.busy or report.indexed == 1
