"""Check that no package compares names that another package owns: `python tools/check_formats.py`.

Only `dialects/` compares names of dialects, and only `transcripts/` names of transcript formats. Other code asks a
`Dialect` or `TranscriptFormat` value for the differences. A name may be passed as an argument (`parse(value,
"anthropic")`), but not compared, matched or looked up. `allowed` lists the modules in which such a word is something
else, with a reason.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from thresher.dialects.table import dialect_names
from thresher.transcripts.table import TRANSCRIPT_FORMATS

SOURCE = Path(__file__).parents[1] / "src" / "thresher"


class NameOwner(NamedTuple):
    """A package, the names that only it compares, and modules in which these words mean something else."""

    package: str
    names: frozenset[str]
    allowed: Mapping[str, str]


OWNERS = (
    NameOwner(
        "dialects",
        frozenset(dialect_names()),
        {
            "cli/recall.py": "addresses of servers, by the same choice of `--api`",
            "memory/model_endpoints.py": "the server's choice of `api` in the settings, of which two are known",
            "replay/strategies/registry.py": "price tables, by vendor",
            "serve/hook/fit_hook.py": "pi's names of the APIs",
            "serve/launch/by_variables.py": "names of a run's upstreams",
            "serve/launch/claude_code.py": "names of a run's upstreams",
            "serve/launch/cline.py": "vendors, as Cline names them",
            "serve/launch/gemini_cli.py": "names of a run's upstreams",
            "serve/launch/pi.py": "vendors, as pi names them",
            "serve/launch/vendors.py": "vendors, as agents name them",
            "summarize/endpoint.py": "the server's choice of `--api` for summaries, of which two are known",
            "serve/proxy_clients.py": "names of providers in the clients' settings",
            "tokens/media.py": "vendors, as the model catalog names them",
            "transcripts/gemini_cli/messages.py": "a record type of Gemini CLI's files",
            "transcripts/gemini_cli/reader.py": "a record type of Gemini CLI's files",
        },
    ),
    NameOwner(
        "transcripts",
        frozenset(TRANSCRIPT_FORMATS),
        {
            "replay/strategies/registry.py": "rules of other tools, by the tool's name",
            "serve/hook/fit_hook.py": "kinds of requests of the plug-ins",
            "serve/launch/vendors.py": "vendors, as agents name them",
            "serve/mcp_clients.py": "clients of the MCP server",
            "serve/plugins/plugin_files.py": "agents with a plug-in",
            "serve/proxy_clients.py": "agents with settings for a base URL",
        },
    ),
)


def find_compared_words(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield every constant that code compares, matches or looks up."""
    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Subscript):
            operands = [node.slice]
        elif isinstance(node, ast.Dict):
            operands = [key for key in node.keys if key is not None]
        for operand in operands:
            members = operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            yield from (member for member in members if isinstance(member, ast.Constant))


def main() -> int:
    """Print each comparison outside the owner of a name; exit with 1 if there is one."""
    found = 0
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        words = [*find_compared_words(ast.parse(path.read_text(encoding="utf-8")))]
        for owner in OWNERS:
            if name.startswith(f"{owner.package}/") or name in owner.allowed:
                continue
            for word in words:
                if word.value in owner.names:
                    found += 1
                    print(f"src/thresher/{name}:{word.lineno}: compares {word.value!r}; ask `{owner.package}` instead")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
