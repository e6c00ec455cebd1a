"""`thresher mcp`: an MCP server with context for sub-agents and a search of past sessions."""

import os
from pathlib import Path

import click

from thresher.cli.common import warn
from thresher.cli.options import option, source_options
from thresher.cli.sources import SessionSources


@click.command("mcp")
@option("--http", "Serve over HTTP instead of standard input and output.")
@option("--host ADDRESS", "With --http: address to listen on.", default="127.0.0.1")
@option("--port N", "With --http: port to listen on.", default=8765, type=click.IntRange(1, 65535))
@option(
    "--token TEXT",
    "With --http: bearer token that clients must send (or set THRESHER_MCP_TOKEN). Default: none if the server "
    "listens only on this machine, otherwise a generated token.",
    default="",
    envvar="THRESHER_MCP_TOKEN",
)
@option(
    "--session SESSION", "Session that calls the server: an id or a file. Default: detected for each call.", default=""
)
@option(
    "--project DIR",
    "Folder that the calling session works in. Default: the current folder.",
    type=click.Path(path_type=Path),
)
@source_options
def mcp_command(
    http: bool, host: str, port: int, token: str, session: str, project: Path | None, sources: SessionSources
) -> None:
    """Run the MCP server.

    Its tools give sub-agents their parent's context and search past sessions. Agents start it themselves: `thresher
    install AGENT` shows the configuration. The server writes only Thresher's own data, and always redacts secrets. It
    needs `pip install 'thresher[mcp]'`.

    \b
    Examples:
      thresher install claude-code          let Claude Code start the server
      thresher mcp                          serve on standard input and output
      thresher mcp --http --port 8765       serve on http://127.0.0.1:8765/mcp
      thresher mcp --http --host 10.0.0.5 --token "$TOKEN"
    """
    from thresher.serve.mcp import LOOPBACK, generate_mcp_token, serve_mcp_http, serve_mcp_stdio
    from thresher.serve.mcp_tools import McpTools

    folder, (extra, discover) = str((project or Path.cwd()).absolute()), sources
    tools = McpTools(sources=extra, discover=discover, session=session, project=folder, environment=os.environ)
    if not http:
        serve_mcp_stdio(tools)
        return
    if host not in LOOPBACK and not token:
        token = generate_mcp_token()
        warn(f"clients must send this header: Authorization: Bearer {token}")
    warn(f"listening on http://{host}:{port}/mcp")
    serve_mcp_http(tools, host=host, port=port, token=token)
