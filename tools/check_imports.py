"""Check that no modules import each other in a cycle: `python tools/check_imports.py`.

Imports inside functions count, too. A module must not import its own package if that package imports the module.
"""

import sys
from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGE = "thresher"


def find_circle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import cycle, with the first one again at the end, or none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def main() -> int:
    """Print an import cycle if there is one, and exit with 1."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    imports = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    circle = find_circle(imports)
    if circle:
        print(f"these modules import each other: {' <- '.join(circle)}; move what they share into a module below them")
    return 1 if circle else 0


if __name__ == "__main__":
    sys.exit(main())
