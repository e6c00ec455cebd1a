"""Fit requests in worker threads, with a time limit and with fallbacks. The proxy must never break a session.

If a plan fails or takes too long, the request goes out with the edits of the latest request, and if these do not apply,
as the client wrote it. An unfinished plan continues in the background, and the next request uses it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple, cast

from thresher.dialects.request_bytes import RequestBody, splice
from thresher.dialects.table import find_dialect
from thresher.serve.proxy.conversations import LEDGER_FOLDER, Conversation
from thresher.serve.proxy.fit_options import FitOptions
from thresher.serve.proxy.fitted_conversation import FittedConversation
from thresher.store import InMemoryContentStore
from thresher.store.home import create_private_folder, get_data_folder
from thresher.tokens import find_model
from thresher.window import Window, WindowEvent
from thresher.window.cache_state import SentRequest
from thresher.window.options import WindowOptions

MAX_CONVERSATIONS = 64
"""Maximum number of conversations in memory, each with an open ledger. A request of an older one opens it again."""
MAX_WORKERS = 4
"""Threads share the interpreter, so that more of them would only delay each other."""
LEDGER_DAYS = 30
"""Days after its last use when the ledger of a conversation is deleted."""
log = logging.getLogger("thresher.proxy")


class PreparedRequest(NamedTuple):
    """The content to send upstream for a request."""

    data: bytes | None = None
    """The fitted body; None for the client's bytes."""
    unchanged: str = ""
    """Reason for which the client's bytes are sent."""
    fallback: str = ""
    """Reason for which the window did not decide."""
    conversation: FittedConversation | None = None
    figures: SentRequest | None = None
    """Figures of the request as the window fitted it."""
    events: tuple[WindowEvent, ...] = ()
    value: dict[str, Any] | None = None
    """The fitted body, decoded; None for the client's."""


class FitService:
    """The conversations of a proxy or a hook, and the threads that fit their requests."""

    def __init__(self, options: FitOptions) -> None:
        self._options = options
        self._pool = ThreadPoolExecutor(MAX_WORKERS, "thresher-fit")
        self._conversations: OrderedDict[str, FittedConversation] = OrderedDict()
        self._running: dict[str, Future[Any]] = {}
        self._folder = None if options.observe else (options.data_folder or get_data_folder()) / LEDGER_FOLDER
        self._pool.submit(_load_modules)
        if self._folder is not None:
            self._pool.submit(_prepare_folder, self._folder)

    def close(self) -> None:
        """Stop the threads; a plan that is unfinished is given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def prepare(self, identity: Conversation, dialect: str, body: RequestBody) -> PreparedRequest:
        """Return what to send for a request."""
        if identity.kind == "one_shot":
            return PreparedRequest(unchanged="one_shot")
        if identity.kind == "count" and not self._is_known(identity):
            return PreparedRequest(unchanged="fits")
        conversation = self._find_conversation(identity, dialect)
        if conversation.was_refused():
            return PreparedRequest(unchanged="refused_before", conversation=conversation)
        function = conversation.fit if identity.kind == "turn" else _without_figures(conversation.apply_recorded)
        try:
            value, figures = await self._run(identity.key, function, body.value)
        except TimeoutError:
            return self._fall_back(conversation, body, "timeout")
        except Exception as error:  # noqa: BLE001 - no failure of Thresher may break a session
            log.warning("a fit failed: %s", type(error).__name__)
            return self._fall_back(conversation, body, f"error: {type(error).__name__}")
        events = tuple(conversation.take_events())
        if conversation.was_refused():  # in an earlier run, as the ledger says
            return PreparedRequest(unchanged="refused_before", conversation=conversation)
        if self._options.observe:
            return PreparedRequest(None, "observe", "", conversation, figures, events)
        failed = any(event.trigger == "store" for event in events)
        return self._finish(body, value, "not_recorded" if failed else "", conversation, figures, events)

    async def _run(self, key: str, function: Callable[[Any], Any], value: Any) -> Any:
        """Run a function in a thread, after the unfinished one of the same conversation, within the time limit."""
        deadline = monotonic() + self._options.fit_timeout
        before = self._running.get(key)
        if before is not None and not before.done():
            await asyncio.wait([asyncio.wrap_future(before)], timeout=self._options.fit_timeout)
            if not before.done():
                raise TimeoutError
        future = self._running[key] = self._pool.submit(function, value)
        future.add_done_callback(lambda done: self._forget(key, done))
        wrapped = asyncio.wrap_future(future)
        await asyncio.wait([wrapped], timeout=max(0.0, deadline - monotonic()))
        if not wrapped.done():
            wrapped.add_done_callback(_ignore_result)
            raise TimeoutError
        return wrapped.result()

    def _forget(self, key: str, done: "Future[Any]") -> None:
        if self._running.get(key) is done:
            self._running.pop(key, None)

    def _is_known(self, identity: Conversation) -> bool:
        """Return True if a conversation is in memory, or its session has a ledger."""
        file = self._ledger_file(identity)
        return identity.key in self._conversations or (file is not None and file.exists())

    def _ledger_file(self, identity: Conversation) -> Path | None:
        return None if self._folder is None else self._folder / f"{identity.session}.sqlite3"

    def _find_conversation(self, identity: Conversation, dialect: str) -> FittedConversation:
        found = self._conversations.get(identity.key)
        if found is None:
            found = self._conversations[identity.key] = self._open_conversation(identity, dialect)
            for key in list(self._conversations)[:-MAX_CONVERSATIONS]:
                if key not in self._running:
                    self._pool.submit(self._conversations.pop(key).close)
        self._conversations.move_to_end(identity.key)
        return found

    def _open_conversation(self, identity: Conversation, dialect: str) -> FittedConversation:
        options = self._options
        window_options = cast("WindowOptions", dict(options.window_options))
        if options.budget is not None:
            window_options["budget"] = options.budget
        if self._folder is None:
            window_options["store"] = InMemoryContentStore()
        api = find_dialect(dialect).http_api
        if api is not None and api.names_model_in_path and find_model(identity.model) is not None:
            window_options.setdefault("model", identity.model)
        return FittedConversation(identity, dialect, self._ledger_file(identity), options.policy, window_options)

    def _fall_back(self, conversation: FittedConversation, body: RequestBody, reason: str) -> PreparedRequest:
        """Return the request with the edits of the latest request, or as the client wrote it."""
        if self._options.observe:
            return PreparedRequest(None, "observe", reason, conversation)
        value: dict[str, Any] | None = None
        try:
            value = conversation.send_recorded(body.value)
        except Exception as error:  # noqa: BLE001 - the last resort is the client's request
            log.warning("the recorded edits failed: %s", type(error).__name__)
        if value is None:
            return PreparedRequest(None, "fallback", reason, conversation)
        return self._finish(body, value, reason, conversation, None, ())

    @staticmethod
    def _finish(
        body: RequestBody,
        value: dict[str, Any],
        fallback: str,
        conversation: FittedConversation,
        figures: SentRequest | None,
        events: tuple[WindowEvent, ...],
    ) -> PreparedRequest:
        data = splice(body, value)
        unchanged = "fallback" if fallback else "fits"
        return PreparedRequest(
            data, "" if data else unchanged, fallback, conversation, figures, events, value if data else None
        )

    async def observe_usage(self, conversation: FittedConversation, usage: Any) -> None:
        """Calibrate a window in a thread, because a plan may hold its lock."""
        await self._record(conversation.observe, usage)

    async def record_refusal(self, conversation: FittedConversation, rule: str) -> None:
        """Pass a conversation through from now on."""
        conversation.refused = rule
        await self._record(conversation.record_refusal, rule)

    async def note_cache_refresh(self, conversation: FittedConversation) -> None:
        """Note that a request was sent again to keep its cache warm."""
        await self._record(conversation.note_cache_refresh)

    async def _record(self, function: Callable[..., None], *values: Any) -> None:
        try:
            await asyncio.wrap_future(self._pool.submit(function, *values))
        except Exception as error:  # noqa: BLE001 - the answer has already reached the client
            log.warning("the answer was not recorded: %s", type(error).__name__)


def _without_figures(function: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, None]]:
    return lambda value: (function(value), None)


def _ignore_result(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


def _prepare_folder(folder: Path) -> None:
    """Create the folder of the ledgers, and delete old ones."""
    try:
        create_private_folder(folder)
        oldest = time() - LEDGER_DAYS * 86_400
        for file in folder.iterdir():
            if file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the folder of the ledgers cannot be prepared: %s", error.strerror)


def _load_modules() -> None:
    """Fit a small conversation, so that the first request of an agent does not wait for modules and catalogs."""
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a line\n" * 500}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    end = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
    messages = [{"role": "user", "content": "Read a.py."}, *said, *end]
    options: WindowOptions = {"budget": 200, "store": InMemoryContentStore(), "cache_breakpoints": "leave"}
    Window(**options).fit({"model": "claude-sonnet-5", "messages": messages})
