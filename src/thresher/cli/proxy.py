"""`thresher proxy`: a local proxy between an agent and a model's API."""

import click

from thresher.cli.common import warn
from thresher.cli.options import WholeNumber, option


@click.command("proxy")
@option("--port N", "Port to listen on.", default=8788, type=WholeNumber(0, 65535))
@option("--host ADDRESS", "Address to listen on.", default="127.0.0.1")
@option(
    "--upstream URL",
    "Address to forward to: URL for all APIs, or API=URL for one of anthropic, openai-chat, openai-responses and "
    "gemini. Repeatable. Default: the vendors' own.",
    multiple=True,
)
@option("--allow-host NAME", "Also answer for this host name: NAME or NAME:PORT. Repeatable.", multiple=True)
@option(
    "--token TEXT",
    "Token that clients must send, needed with an address that other machines reach. Other users can see the command "
    "line, so set THRESHER_PROXY_TOKEN instead.",
    default="",
    envvar="THRESHER_PROXY_TOKEN",
)
def proxy_command(port: int, host: str, upstream: tuple[str, ...], allow_host: tuple[str, ...], token: str) -> None:
    """Run a proxy between an agent and a model's API.

    Everything passes through unchanged, both ways. It needs `pip install 'thresher[serve]'`.

    \b
    Examples:
      thresher proxy                                        listen on http://127.0.0.1:8788
      ANTHROPIC_BASE_URL=http://127.0.0.1:8788 claude       use it
      thresher proxy --upstream https://openrouter.ai/api
    """
    from thresher.serve.app import AppOptions
    from thresher.serve.proxy.options import ProxyOptions, parse_upstreams
    from thresher.serve.proxy.running import run_proxy

    app = AppOptions(host=host, port=port, token=token, allowed_hosts=allow_host)
    options = ProxyOptions(app=app, upstreams=parse_upstreams(upstream))
    run_proxy(options, lambda started: warn(f"listening on {started.url}"))
