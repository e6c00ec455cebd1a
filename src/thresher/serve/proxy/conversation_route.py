"""Answer the requests of a model's API: fit each one, send it, read the usage of its answer."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from aiohttp import ClientResponse, web
from multidict import CIMultiDict

from thresher.dialects.request_bytes import RequestBody, insert_field, parse_request_body
from thresher.dialects.table import find_dialect
from thresher.model.message import Usage
from thresher.serve.app import LocalApp
from thresher.serve.proxy.api_routes import ApiRoute
from thresher.serve.proxy.cache_diagnosis import CacheDiagnosis, CacheQuestion
from thresher.serve.proxy.conversations import Conversation, identify
from thresher.serve.proxy.figures import PROBLEM_TRIGGERS, ConversationFigures, ProxyFigures, describe_event
from thresher.serve.proxy.fit_service import FitService, PreparedRequest
from thresher.serve.proxy.fitted_conversation import FittedConversation
from thresher.serve.proxy.headers import copy_request_headers
from thresher.serve.proxy.keep_warm import KeepWarm, SentTurn
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.refusals import MAX_ERROR_BYTES, REFUSAL_STATUSES, find_refusal, read_error_message
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
    body: RequestBody
    question: CacheQuestion | None = None
    """The question of the request to the API about its cache."""
    is_refused: bool = False
    """True if the upstream has refused the edits, and the client's request is sent."""

    def encode(self) -> bytes | None:
        """Return the body to send; None for the client's bytes."""
        inserted = self.question.inserted if self.question is not None else None
        if inserted is None:
            return self.prepared.data
        value = self.prepared.value
        return insert_field(self.body, self.body.value if value is None else value, inserted)


class ConversationRoute:
    """The requests that carry a conversation."""

    def __init__(self, app: LocalApp, options: ProxyOptions, figures: ProxyFigures) -> None:
        self._app, self._options, self._figures = app, options, figures
        self.service = FitService(options)
        self.keep_warm = KeepWarm(options.keep_warm)
        self.diagnosis = CacheDiagnosis(is_on=options.diagnose_cache)
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
        fitted = await self._fit(request.headers, route, path, url, received.data)
        if fitted is None:
            self._figures.count_passed("unreadable")
            async with client.send(request.method, url, headers, received.data) as upstream:
                return await relay_response(request, upstream)
        self._count_request(fitted, perf_counter() - started)
        self.keep_warm.cancel(fitted.identity.key)
        return await self._send(request, route, client, url, headers, received.data, fitted)

    async def _fit(
        self, headers: Mapping[str, str], route: ApiRoute, path: str, url: str, data: bytes
    ) -> FittedRequest | None:
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
        question = self.diagnosis.ask(identity, route.dialect, url, body)
        return FittedRequest(identity, prepared, self._figures.find(identity, route.dialect), body, question)

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
        while True:
            data, sent_headers = fitted.encode(), headers
            if data is not None:
                sent_headers = headers.copy()
                sent_headers.popall("Content-Encoding", None)
            sent = original if data is None else data
            async with client.send(request.method, url, sent_headers, sent) as upstream:
                start, without = b"", None
                if data is not None and upstream.status in REFUSAL_STATUSES:
                    start = await _read_error(upstream)
                    error = decode_body(start, _encoding(upstream)) or start
                    without = self._without_refused(fitted, upstream.status, error)
                if without is None:
                    turn = (client, url, sent_headers, sent)
                    return await self._relay(request, route, upstream, fitted, start, turn)
            fitted = without

    def _without_refused(self, fitted: FittedRequest, status: int, error: bytes) -> FittedRequest | None:
        """Return a refused request without its question or its edits, whichever the error names; None if neither."""
        question = fitted.question
        is_asked = question is not None and question.inserted is not None
        if question is not None and is_asked and question.comparison.is_named_in(read_error_message(error)):
            self.diagnosis.record_refusal(question)
            self._publish("refusal", fitted, rule="cache diagnostics")
            return fitted._replace(question=None)
        rule = find_refusal(status, error) if fitted.prepared.data is not None else ""
        if not rule:
            return None
        self._record_refusal(fitted, rule)
        # The figures are of the refused request.
        prepared = fitted.prepared._replace(data=None, value=None, figures=None)
        return fitted._replace(prepared=prepared, is_refused=True)

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
        kept = fitted.question.answer_fields if fitted.question is not None else ()
        reader = UsageReader(upstream.headers.get("Content-Type", ""), _encoding(upstream), kept)
        try:
            return await relay_response(request, upstream, reader.feed, start=start)
        finally:
            usage = reader.finish()
            if usage is not None:
                self._record_usage(fitted, usage)
                self._record_comparison(fitted, reader.kept)
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

    def _record_comparison(self, fitted: FittedRequest, fields: dict[str, Any]) -> None:
        """Count what the API reports about its cache. A miss is Thresher's if its edits may have changed."""
        question, prepared = fitted.question, fitted.prepared
        if question is None:
            return
        result = self.diagnosis.record_answer(question, fields, fell_back=bool(prepared.fallback))
        if result is None or question.before is None:
            return
        has_new_edits = bool(prepared.events or prepared.fallback or fitted.is_refused or question.before.fell_back)
        is_history = result.reason == question.comparison.history_reason
        is_own = has_new_edits and is_history and not self._options.observe
        self._figures.count_comparison(fitted.figures, result, is_own=is_own)

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
