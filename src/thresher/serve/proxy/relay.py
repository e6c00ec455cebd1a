"""Pass an answer of the upstream to the client, chunk by chunk, and unchanged."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from aiohttp import ClientError, ClientResponse, web

from thresher.serve.proxy.headers import copy_response_headers

Tee = Callable[[bytes], None]


class BrokenStreamError(Exception):
    """The upstream ended an answer too early, after the client had received its start."""


class RelayedResponse(web.StreamResponse):
    """An answer with the headers of the upstream and no others."""

    async def _prepare_headers(self) -> None:
        names = set(self.headers)
        await super()._prepare_headers()
        for name in set(self.headers) - names:
            if name in ("Server", "Date", "Content-Type"):
                del self.headers[name]


async def relay_response(
    request: web.Request, upstream: ClientResponse, tee: Tee | None = None, *, start: bytes = b""
) -> web.StreamResponse:
    """Send an answer to the client while it arrives, after its `start` if that was read; give `tee` each chunk, too."""
    response = RelayedResponse(
        status=upstream.status, reason=upstream.reason, headers=copy_response_headers(upstream.raw_headers)
    )
    if upstream.headers.get("Content-Type", "").startswith("text/event-stream"):
        response.headers["X-Accel-Buffering"] = "no"
    await response.prepare(request)
    try:
        if start:
            await response.write(start)
        async for chunk in upstream.content.iter_any():
            if tee is not None:
                tee(chunk)
            await response.write(chunk)
    except (ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
        abort_client(request)
        raise BrokenStreamError(str(error) or type(error).__name__) from error
    await response.write_eof()
    return response


def abort_client(request: web.Request) -> None:
    """Close the connection to the client without an end of the answer, so that it notices the loss."""
    if request.transport is not None:
        with suppress(RuntimeError):
            request.transport.abort()
