"""The proxy: take a request, pass it to the upstream, and pass the answer back."""

import logging
from typing import Any
from urllib.parse import unquote

from aiohttp import ClientError, web

from thresher.serve.app import OWN_PREFIX, TOKEN_PATH, LocalApp, get_requested_path
from thresher.serve.proxy.api_routes import build_error_body, detect_api, find_api_route, find_upstream
from thresher.serve.proxy.conversation_route import ConversationRoute
from thresher.serve.proxy.figures import ProxyFigures
from thresher.serve.proxy.headers import OWN_HEADER, copy_request_headers
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.relay import BrokenStreamError, relay_response
from thresher.serve.proxy.upstream import Upstream

ERROR_HEADER = "X-Thresher-Error"
ROUTE_PATH = f"{OWN_PREFIX}to/"
"""Start of a path that names the upstream, for clients that use several."""
log = logging.getLogger("thresher.proxy")


class Proxy:
    """The routes of the proxy on a local application."""

    def __init__(self, app: LocalApp, options: ProxyOptions) -> None:
        self.options = options
        self._upstream: Upstream | None = None
        self.figures = ProxyFigures(is_observed=options.observe)
        self.is_bypassed = False
        """True if the user has switched Thresher off: then every request passes through."""
        self._conversations = ConversationRoute(app, options, self.figures)
        app.add_status("proxy", self.status)
        app.add_clean_up(self._close)
        app.routes.add_route("*", f"{TOKEN_PATH}{{token}}/{{rest:.*}}", self.answer)
        app.routes.add_route("*", f"{ROUTE_PATH}{{name}}{{rest:(/.*)?}}", self.answer)
        app.routes.add_route("*", "/{rest:.*}", self.answer)

    def status(self) -> dict[str, Any]:
        """Return the figures of the proxy."""
        options = self.options
        settings = {"budget": options.budget, "observe": options.observe, "bypass": self.is_bypassed}
        route = self._conversations
        own = {"keep_warm": route.keep_warm.to_dict(), "diagnose_cache": route.diagnosis.to_dict()}
        return {**settings, **own, **self.figures.to_dict()}

    def set_bypass(self, *, on: bool) -> None:
        """Pass every request through, or fit requests again."""
        self.is_bypassed = on
        log.warning("requests pass through unchanged" if on else "requests are fitted again")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of a client."""
        name, path = _split_route(get_requested_path(request))
        if path.startswith(OWN_PREFIX):
            return web.Response(status=404)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return web.Response(status=426, text="This proxy speaks HTTP only.\n")
        routes = self.options.routes
        base = routes.get(name, "") if name else find_upstream(self.options.upstreams, path, request.headers)
        if not base:
            reason = f"no upstream has the name `{name}`" if name else "this path belongs to no known API"
            return self._fail(request, 404, f"{reason}; start the proxy with `--upstream URL`")
        return await self._forward(request, path, base.rstrip("/") + path)

    async def _forward(self, request: web.Request, path: str, url: str) -> web.StreamResponse:
        """Send a request upstream, and pass the answer back."""
        route = find_api_route(request.method, path)
        try:
            if route is None:
                return await self._pass_through(request, url, "other_path")
            if self.is_bypassed or request.headers.get(OWN_HEADER, "").strip().lower() == "off":
                return await self._pass_through(request, url, "bypass" if self.is_bypassed else "off")
            return await self._conversations.answer(request, route, path, self._client, url)
        except BrokenStreamError as error:
            return self._report_broken_stream(request, error)
        except (ClientError, TimeoutError, OSError) as error:
            return self._report_upstream_error(request, error)

    async def _pass_through(self, request: web.Request, url: str, reason: str) -> web.StreamResponse:
        """Pass a request on as it arrives."""
        self.figures.count_passed(reason)
        body = request.content if request.body_exists else None
        headers = copy_request_headers(request.raw_headers)
        async with self._client.send(request.method, url, headers, body) as upstream:
            return await relay_response(request, upstream)

    def _report_broken_stream(self, request: web.Request, error: BrokenStreamError) -> web.StreamResponse:
        log.warning("%s %s: the upstream ended its answer too early (%s)", request.method, _bare_path(request), error)
        return web.Response(status=502)  # never sent: the connection is closed

    def _report_upstream_error(self, request: web.Request, error: Exception) -> web.StreamResponse:
        is_late = isinstance(error, TimeoutError)
        reason = f"the upstream did not answer in time ({_describe(error)})"
        reason = reason if is_late else f"the upstream cannot be reached ({_describe(error)})"
        return self._fail(request, 504 if is_late else 502, reason)

    def _fail(self, request: web.Request, status: int, message: str) -> web.Response:
        """Return an error of the proxy itself in the form of the vendor."""
        log.warning("%s %s: %s", request.method, _bare_path(request), message)
        body = build_error_body(
            detect_api(get_requested_path(request), request.headers), status, f"Thresher proxy: {message}"
        )
        headers = {ERROR_HEADER: "proxy"}
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)

    @property
    def _client(self) -> Upstream:
        if self._upstream is None:
            options = self.options
            self._upstream = Upstream(connect_seconds=options.connect_seconds, silence_seconds=options.silence_seconds)
        return self._upstream

    async def _close(self) -> None:
        self._conversations.keep_warm.close()
        self._conversations.service.close()
        if self._upstream is not None:
            await self._upstream.close()


def _split_route(path: str) -> tuple[str, str]:
    """Split a path into the name of the upstream, which may be missing, and the path for that upstream."""
    if not path.startswith(ROUTE_PATH):
        return "", path
    name, slash, rest = path.removeprefix(ROUTE_PATH).partition("/")
    return unquote(name), slash + rest or "/"


def _describe(error: Exception) -> str:
    return type(error).__name__ if not isinstance(error, OSError) else error.strerror or type(error).__name__


def _bare_path(request: web.Request) -> str:
    """Return the path for a log, without a query: it may hold a key."""
    return get_requested_path(request).partition("?")[0]
