"""Check that only `dialects/` compares dialect names: `python tools/check_dialects.py`.

Other code asks a `Dialect` value for the differences. A name may be passed as an argument (`parse(value,
"anthropic")`), but not compared, matched or looked up. `ALLOWED` lists the modules in which such a word is not a
dialect, with a reason.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "thresher"
NAMES = {"anthropic", "openai-chat", "openai-responses", "gemini"}
ALLOWED = {
    "cli/recall.py": "addresses of servers, by the same choice of `--api`",
    "replay/strategies/registry.py": "price tables, by vendor",
    "summarize/endpoint.py": "the server's choice of `--api` for summaries, of which two are known",
    "tokens/media.py": "vendors, as the model catalog names them",
    "transcripts/gemini_cli/messages.py": "a record type of Gemini CLI's files",
    "transcripts/gemini_cli/reader.py": "a record type of Gemini CLI's files",
}


def find_comparisons(tree: ast.AST) -> Iterator[ast.Constant]:
    """Return every dialect name that code compares, matches or looks up."""
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
            yield from (one for one in members if isinstance(one, ast.Constant) and one.value in NAMES)


def main() -> int:
    """Print each comparison outside `dialects/`; exit with 1 if there is one."""
    found = 0
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("dialects/") or name in ALLOWED:
            continue
        for one in find_comparisons(ast.parse(path.read_text(encoding="utf-8"))):
            found += 1
            print(f"src/thresher/{name}:{one.lineno}: `{one.value!r}` is compared: put what differs into the Dialect")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
