"""`thresher mcp`: an MCP server with context for sub-agents and a search of past sessions."""

import os
from pathlib import Path

import click
from click.core import ParameterSource

from thresher.cli.common import warn
from thresher.cli.options import WholeNumber, option, source_options
from thresher.cli.sources import SessionSources


@click.command("mcp")
@option("--http", "Serve over HTTP instead of standard input and output.")
@option("--host ADDRESS", "With --http: address to listen on.", default="127.0.0.1")
@option("--port N", "With --http: port to listen on.", default=8765, type=WholeNumber(1, 65535))
@option(
    "--allow-host NAME",
    "With --http: also answer for this host name, such as that of a proxy: NAME or NAME:PORT. Repeatable.",
    multiple=True,
)
@option(
    "--token TEXT",
    "With --http: bearer token that clients must send. Other users can see the command line, so set THRESHER_MCP_TOKEN "
    "instead. Default: the one in the file mcp-token in the data folder, which the first start creates.",
    default="",
    envvar="THRESHER_MCP_TOKEN",
)
@option("--no-token", "With --http: accept every user and program of this machine, on a loopback address only.")
@option(
    "--idle-timeout SECONDS",
    "With --http: free the session of a client that sends no request for this time.",
    default=600,
    type=click.FloatRange(min=1),
)
@option(
    "--session SESSION", "Session that calls the server: an id or a file. Default: detected for each call.", default=""
)
@option(
    "--project DIR",
    "Folder that the calling session works in. Default: the current folder.",
    type=click.Path(path_type=Path),
)
@option("--only-project", "Answer only from sessions of that folder and the folders below it.")
@source_options
def mcp_command(
    http: bool,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    token: str,
    no_token: bool,
    idle_timeout: float,
    session: str,
    project: Path | None,
    only_project: bool,
    sources: SessionSources,
) -> None:
    """Run the MCP server.

    Its tools give sub-agents their parent's context and search past sessions. Agents start it themselves: `thresher
    install AGENT` shows the configuration. The server writes only Thresher's own data, and always redacts secrets. It
    needs `pip install 'thresher[mcp]'`.

    \b
    Examples:
      thresher install claude-code          let Claude Code start the server
      thresher mcp                          serve on standard input and output
      thresher mcp --project . --only-project
      thresher mcp --http --port 8765       serve on http://127.0.0.1:8765/mcp
      thresher mcp --http --host 0.0.0.0 --allow-host proxy.example.org
    """
    if no_token and click.get_current_context().get_parameter_source("token") == ParameterSource.COMMANDLINE:
        raise click.UsageError("--token requires a token and --no-token requires none. Use one of them.")
    from thresher.serve.mcp import serve_mcp_stdio
    from thresher.serve.mcp_tools import McpTools

    folder, (extra, discover) = str((project or Path.cwd()).absolute()), sources
    tools = McpTools(
        sources=extra,
        discover=discover,
        session=session,
        project=folder,
        only_project=only_project,
        environment=os.environ,
    )
    if not http:
        serve_mcp_stdio(tools)
        return
    from thresher.serve.mcp_http import HttpServerOptions, serve_mcp_http

    options = HttpServerOptions(
        host=host,
        port=port,
        token="" if no_token else token or _load_token(),
        allowed_hosts=allow_host,
        idle_seconds=idle_timeout,
    )
    warn(f"listening on {options.url}")
    serve_mcp_http(tools, options)


def _load_token() -> str:
    """Return the token in the data folder. Print it only when it is new: the output may end up in a log."""
    from thresher.serve.access_token import load_access_token
    from thresher.store.home import get_data_folder

    token = load_access_token(get_data_folder())
    if token.is_new:
        warn(f"new token, shown only now and kept in {token.file}")
        warn(f"clients must send this header: Authorization: Bearer {token.text}")
    else:
        warn(f"clients must send the header `Authorization: Bearer TOKEN` with the token in {token.file}")
    return token.text
