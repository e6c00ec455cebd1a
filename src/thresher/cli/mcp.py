"""`thresher mcp`: an MCP server that hands sub-agents their parent's context, and finds past sessions."""

import os
from pathlib import Path

import click

from thresher.cli.common import source_options, warn


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: where to listen.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(1, 65535), help="With --http.")
@click.option("--token", default="", envvar="THRESHER_MCP_TOKEN", help="With --http: what clients must bring.")
@click.option("--session", default="", help="The conversation that calls come from: an id, or its file.")
@click.option("--project", type=click.Path(path_type=Path), help="Its folder. Default: where this is started.")
@source_options
def mcp_command(
    http: bool,
    host: str,
    port: int,
    token: str,
    session: str,
    project: Path | None,
    sources: tuple[Path, ...],
    no_discover: bool,
) -> None:
    """Serve the Model Context Protocol: context for sub-agents, past sessions.

    A client starts this itself; `thresher install CLIENT` shows what to put into
    its configuration. Nothing is written but Thresher's own data, and secrets
    are never shown.

    \b
    Examples:
      thresher install claude-code          how a client starts it
      thresher mcp                          on standard input and output
      thresher mcp --http --port 8765       on http://127.0.0.1:8765/mcp
      thresher mcp --http --host 10.0.0.5 --token "$TOKEN"
    """
    from thresher.serve.mcp import LOOPBACK, generate_mcp_token, serve_mcp_http, serve_mcp_stdio
    from thresher.serve.mcp_tools import McpTools

    folder = str((project or Path.cwd()).absolute())
    tools = McpTools(sources=sources, discover=not no_discover, session=session, project=folder, environment=os.environ)
    if not http:
        serve_mcp_stdio(tools)
        return
    if host not in LOOPBACK and not token:
        token = generate_mcp_token()
        warn(f"clients from elsewhere must bring this token: Authorization: Bearer {token}")
    warn(f"listening on http://{host}:{port}/mcp")
    serve_mcp_http(tools, host=host, port=port, token=token)
