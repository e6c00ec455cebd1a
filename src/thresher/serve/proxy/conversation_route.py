"""Answer the requests of a model's API: fit each one, send it, read the usage of its answer."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from aiohttp import ClientResponse, web
from multidict import CIMultiDict

from thresher.dialects.request_bytes import RequestBody, parse_request_body
from thresher.dialects.table import find_dialect
from thresher.model.message import Usage
from thresher.serve.app import LocalApp
from thresher.serve.proxy.api_routes import ApiRoute
from thresher.serve.proxy.conversations import Conversation, identify
from thresher.serve.proxy.figures import PROBLEM_TRIGGERS, ConversationFigures, ProxyFigures, describe_event
from thresher.serve.proxy.fit_service import FitService, PreparedRequest
from thresher.serve.proxy.fitted_conversation import FittedConversation
from thresher.serve.proxy.headers import copy_request_headers
from thresher.serve.proxy.keep_warm import KeepWarm, SentTurn
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.refusals import MAX_ERROR_BYTES, REFUSAL_STATUSES, find_refusal
from thresher.serve.proxy.relay import relay_response
from thresher.serve.proxy.request_body import decode_body, receive_body, stream_rest
from thresher.serve.proxy.upstream import Upstream
from thresher.serve.proxy.usage_reader import UsageReader

log = logging.getLogger("thresher.proxy")


class FittedRequest(NamedTuple):
    """A request with its conversation, its prepared body, and its figures."""

    identity: Conversation
    prepared: PreparedRequest
    figures: ConversationFigures


class ConversationRoute:
    """The requests that carry a conversation."""

    def __init__(self, app: LocalApp, options: ProxyOptions, figures: ProxyFigures) -> None:
        self._app, self._options, self._figures = app, options, figures
        self.service = FitService(options)
        self.keep_warm = KeepWarm(options.keep_warm)
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(
        self, request: web.Request, route: ApiRoute, path: str, client: Upstream, url: str
    ) -> web.StreamResponse:
        """Fit a request, send it, and pass the answer on."""
        received = await receive_body(request)
        headers = copy_request_headers(request.raw_headers)
        if not received.is_complete:
            self._figures.count_passed("too_large")
            async with client.send(request.method, url, headers, stream_rest(request, received.data)) as upstream:
                return await relay_response(request, upstream)
        del_length(headers)
        started = perf_counter()
        fitted = await self._fit(request.headers, route, path, received.data)
        if fitted is None:
            self._figures.count_passed("unreadable")
            async with client.send(request.method, url, headers, received.data) as upstream:
                return await relay_response(request, upstream)
        self._count_request(fitted, perf_counter() - started)
        self.keep_warm.cancel(fitted.identity.key)
        return await self._send(request, route, client, url, headers, received.data, fitted)

    async def _fit(self, headers: Mapping[str, str], route: ApiRoute, path: str, data: bytes) -> FittedRequest | None:
        """Return the request and its replacement; None if its body is not one of a conversation."""
        body = self._parse(headers, route, data)
        if body is None:
            return None
        try:
            identity = identify(route.dialect, route.kind, path, headers, body.value)
        except Exception as error:  # noqa: BLE001 - a body of another shape passes through
            log.warning("a request has no readable conversation: %s", type(error).__name__)
            return None
        prepared = await self.service.prepare(identity, route.dialect, body)
        return FittedRequest(identity, prepared, self._figures.find(identity, route.dialect))

    @staticmethod
    def _parse(headers: Mapping[str, str], route: ApiRoute, data: bytes) -> RequestBody | None:
        plain = decode_body(data, headers.get("Content-Encoding", ""))
        if not plain:
            return None
        return parse_request_body(plain, find_dialect(route.dialect).messages_field)

    def _count_request(self, fitted: FittedRequest, seconds: float) -> None:
        prepared, figures = fitted.prepared, fitted.figures
        unchanged = prepared.unchanged if prepared.data is None else ""
        self._figures.count_request(figures, unchanged=unchanged, fallback=prepared.fallback, seconds=seconds)
        if prepared.conversation is not None:
            figures.opening = prepared.conversation.opening
            figures.refused = prepared.conversation.refused
        for event in prepared.events:
            self._figures.count_event(figures, event)
            self._publish("problem" if event.trigger in PROBLEM_TRIGGERS else "replan", fitted, **describe_event(event))
        if prepared.fallback:
            log.warning("conversation %s: fallback (%s)", fitted.identity.key[:8], prepared.fallback)
        milliseconds = round(seconds * 1000, 2)
        self._publish(
            "request", fitted, kind=fitted.identity.kind, unchanged=unchanged, fallback=prepared.fallback,
            added_latency_ms=milliseconds,
        )  # fmt: skip

    async def _send(
        self,
        request: web.Request,
        route: ApiRoute,
        client: Upstream,
        url: str,
        headers: CIMultiDict[str],
        original: bytes,
        fitted: FittedRequest,
    ) -> web.StreamResponse:
        if route.kind == "generate":
            headers["Accept-Encoding"] = "identity"  # the usage of the answer is read
        data, sent_headers = fitted.prepared.data, headers
        if data is not None:
            sent_headers = headers.copy()
            sent_headers.popall("Content-Encoding", None)
        async with client.send(request.method, url, sent_headers, original if data is None else data) as upstream:
            start = b""
            if data is not None and upstream.status in REFUSAL_STATUSES:
                start = await _read_error(upstream)
                rule = find_refusal(upstream.status, decode_body(start, _encoding(upstream)) or start)
            else:
                rule = ""
            if not rule:
                turn = (client, url, sent_headers, original if data is None else data)
                return await self._relay(request, route, upstream, fitted, start, turn)
        self._record_refusal(fitted, rule)
        fitted = fitted._replace(prepared=fitted.prepared._replace(figures=None))  # they are of the refused request
        async with client.send(request.method, url, headers, original) as upstream:
            return await self._relay(request, route, upstream, fitted, b"")

    def _record_refusal(self, fitted: FittedRequest, rule: str) -> None:
        """Pass a conversation through from now on, because the upstream refused an edit."""
        log.warning("conversation %s: the upstream refused an edited request (%s)", fitted.identity.key[:8], rule)
        self._figures.count_refusal(fitted.figures, rule)
        self._publish("refusal", fitted, rule=rule)
        if fitted.prepared.conversation is not None:
            self._start(self.service.record_refusal(fitted.prepared.conversation, rule))

    async def _relay(
        self,
        request: web.Request,
        route: ApiRoute,
        upstream: ClientResponse,
        fitted: FittedRequest,
        start: bytes,
        sent: tuple[Upstream, str, CIMultiDict[str], bytes] | None = None,
    ) -> web.StreamResponse:
        if route.kind == "count" or upstream.status >= 400:
            return await relay_response(request, upstream, start=start)
        reader = UsageReader(upstream.headers.get("Content-Type", ""), _encoding(upstream))
        try:
            return await relay_response(request, upstream, reader.feed, start=start)
        finally:
            usage = reader.finish()
            if usage is not None:
                self._record_usage(fitted, usage)
                self._watch(fitted, usage, sent)

    def _watch(
        self, fitted: FittedRequest, usage: Usage, sent: tuple[Upstream, str, CIMultiDict[str], bytes] | None
    ) -> None:
        """Keep the cache of an answered turn warm, if the user wants that."""
        conversation = fitted.prepared.conversation
        if not self._options.keep_warm or sent is None or conversation is None or fitted.identity.kind != "turn":
            return
        client, url, headers, data = sent
        refresh = partial(self._note_refresh, conversation)
        self.keep_warm.watch(
            fitted.identity.key, client, SentTurn(url, headers, data, fitted.identity.model, usage, refresh)
        )

    def _note_refresh(self, conversation: FittedConversation) -> None:
        self._start(self.service.note_cache_refresh(conversation))

    def _record_usage(self, fitted: FittedRequest, usage: Usage) -> None:
        prepared = fitted.prepared
        self._figures.count_usage(
            fitted.figures, prepared.figures, usage, is_fallback=bool(prepared.fallback or fitted.figures.refused)
        )
        self._publish("usage", fitted, input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write,
                      output=usage.output)  # fmt: skip
        if prepared.conversation is not None and prepared.figures is not None and not self._options.observe:
            self._start(self.service.observe_usage(prepared.conversation, usage))

    def _publish(self, event: str, fitted: FittedRequest, **data: Any) -> None:
        self._app.events.publish(event, {"conversation": fitted.identity.key, **data})

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def del_length(headers: CIMultiDict[str]) -> None:
    """Remove the length, which the HTTP client sets for a body in memory."""
    headers.popall("Content-Length", None)


async def _read_error(upstream: ClientResponse) -> bytes:
    """Return the body of an error, or its start if it is very long."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in upstream.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ERROR_BYTES:
            break
    return b"".join(chunks)


def _encoding(upstream: ClientResponse) -> str:
    return upstream.headers.get("Content-Encoding", "")
