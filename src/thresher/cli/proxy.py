"""`thresher proxy`: a local proxy between an agent and a model's API."""

import click

from thresher.cli.common import print_output, print_text, warn
from thresher.cli.options import (
    WholeNumber,
    diagnose_option,
    json_option,
    observe_option,
    option,
    request_budget_option,
    request_policy_option,
)


@click.command("proxy")
@option("--port N", "Port to listen on.", default=8788, type=WholeNumber(0, 65535))
@option("--host ADDRESS", "Address to listen on.", default="127.0.0.1")
@option(
    "--upstream URL",
    "Address to forward to: URL for all APIs, or API=URL for one of anthropic, openai-chat, openai-responses and "
    "gemini. Repeatable. Default: the vendors' own.",
    multiple=True,
)
@request_budget_option
@request_policy_option
@observe_option
@diagnose_option
@option(
    "--fit-timeout SECONDS",
    "Time that a new plan may take. Then the last recorded edits are sent.",
    default=2.0,
    type=click.FloatRange(0.01),
)
@option(
    "--keep-warm DOLLARS",
    "Send the latest request of an idle conversation again before its cache expires, until this has cost so many "
    "dollars in all. Default: off.",
    default=0.0,
    type=click.FloatRange(0),
)
@option("--allow-host NAME", "Also answer for this host name: NAME or NAME:PORT. Repeatable.", multiple=True)
@option(
    "--token TEXT",
    "Token that clients must send, needed with an address that other machines reach. Other users can see the command "
    "line, so set THRESHER_PROXY_TOKEN instead.",
    default="",
    envvar="THRESHER_PROXY_TOKEN",
)
@option("--status", "Print the status of the proxy that runs on this host and port.")
@json_option
def proxy_command(
    port: int,
    host: str,
    upstream: tuple[str, ...],
    budget: str | None,
    policy: str,
    observe: bool,
    diagnose_cache: bool,
    fit_timeout: float,
    keep_warm: float,
    allow_host: tuple[str, ...],
    token: str,
    status: bool,
    as_json: bool,
) -> None:
    """Run a proxy between an agent and a model's API.

    It fits the agent's requests into a token budget and keeps the prompt cache warm.
    A request that fits passes through unchanged, and so does every answer. If anything fails, the agent's own request
    is sent. SIGUSR1 switches Thresher off and on. It needs `pip install 'thresher[serve]'`.

    \b
    Examples:
      thresher proxy --observe                  change nothing, report everything
      thresher proxy --budget 80k               listen on http://127.0.0.1:8788
      ANTHROPIC_BASE_URL=http://127.0.0.1:8788 claude
      thresher proxy --status                   what it did so far
    """
    if status:
        _print_status(host, port, token, as_json=as_json)
        return
    from thresher.serve.app import AppOptions
    from thresher.serve.proxy.options import ProxyOptions, parse_upstreams
    from thresher.serve.proxy.running import run_proxy

    app = AppOptions(host=host, port=port, token=token, allowed_hosts=allow_host)
    options = ProxyOptions(
        app=app,
        upstreams=parse_upstreams(upstream),
        budget=budget,
        policy=policy,
        observe=observe,
        diagnose_cache=diagnose_cache,
        fit_timeout=fit_timeout,
        keep_warm=keep_warm,
    )
    limit = f"{budget} tokens" if budget else "70 % of the model's context window"
    mode = "changes no request" if observe else f"fits requests into {limit}"
    run_proxy(options, lambda started: warn(f"listening on {started.url} ({mode})"))


def _print_status(host: str, port: int, token: str, *, as_json: bool) -> None:
    from thresher.render.proxy import format_proxy_status
    from thresher.serve.proxy.status_client import fetch_status

    status = fetch_status(host, port, token)
    if as_json:
        print_output(status)
    else:
        print_text("\n".join(format_proxy_status(status)))
