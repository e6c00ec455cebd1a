"""`thresher mcp`: an MCP server with context for sub-agents and a search of past sessions."""

import os
from pathlib import Path

import click

from thresher.cli.common import warn
from thresher.cli.options import source_options
from thresher.cli.sources import SessionSources


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="With --http: listen here.")
@click.option(
    "--port",
    metavar="N",
    default=8765,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="With --http: port to listen on.",
)
@click.option(
    "--token",
    default="",
    metavar="TEXT",
    envvar="THRESHER_MCP_TOKEN",
    help="With --http: bearer token that clients must send (or THRESHER_MCP_TOKEN). Default: none on this machine, a "
    "generated one for other hosts.",
)
@click.option(
    "--session",
    default="",
    metavar="SESSION",
    help="Session that all calls come from: an id or a file. Default: found for each call.",
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder that the calling session works in. Default: the current folder.",
)
@source_options
def mcp_command(
    http: bool, host: str, port: int, token: str, session: str, project: Path | None, sources: SessionSources
) -> None:
    """Run the MCP server.

    Its tools give sub-agents their parent's context and search past sessions. Agents start it themselves:
    `thresher install AGENT` shows the configuration. It writes only Thresher's own data, and always redacts secrets.
    Needs `pip install 'thresher[mcp]'`.

    \b
    Examples:
      thresher install claude-code          let Claude Code start the server
      thresher mcp                          serve on standard input and output
      thresher mcp --http --port 8765       serve on http://127.0.0.1:8765/mcp
      thresher mcp --http --host 10.0.0.5 --token "$TOKEN"
    """
    from thresher.serve.mcp import LOOPBACK, generate_mcp_token, serve_mcp_http, serve_mcp_stdio
    from thresher.serve.mcp_tools import McpTools

    tools = McpTools(
        sources=sources.extra,
        discover=sources.discover,
        session=session,
        project=str((project or Path.cwd()).absolute()),
        environment=os.environ,
    )
    if not http:
        serve_mcp_stdio(tools)
        return
    if host not in LOOPBACK and not token:
        token = generate_mcp_token()
        warn(f"clients must send this header: Authorization: Bearer {token}")
    warn(f"listening on http://{host}:{port}/mcp")
    serve_mcp_http(tools, host=host, port=port, token=token)
