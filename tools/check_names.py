"""Check that every public class and function name is defined once: `python tools/check_names.py`.

A name with two meanings is only clear together with its module. `ALLOWED` lists the few exceptions, with a reason.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "thresher"
ALLOWED: dict[str, str] = {}


def public_definitions(path: Path) -> list[str]:
    """Return the public classes and functions at the top level of a module."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def find_repeated_names(source: Path) -> dict[str, list[str]]:
    """Return each public name that more than one module defines, with the modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for name in public_definitions(path):
            modules[name].append(str(path.relative_to(source)))
    return {name: found for name, found in modules.items() if len(found) > 1 and name not in ALLOWED}


def main() -> int:
    """Print each repeated name; exit with 1 if there is one."""
    repeated = find_repeated_names(SOURCE)
    for name, modules in sorted(repeated.items()):
        print(f"`{name}` is defined in {', '.join(modules)}: rename all but one, or add it to ALLOWED with a reason")
    return 1 if repeated else 0


if __name__ == "__main__":
    sys.exit(main())
