"""Measure the language of docstrings and comments: `python tools/check_style.py [PATH…] [--check] [--list MEASURE]`.

Prints four rates for the package, or for the files and folders given:

- openings: percentage of docstrings and comments that open with What, Whether, Where, Who, How, Which, Whose or When;
- passive: passive constructions per 1,000 words;
- field: words of this field per 1,000 words (more is better);
- roundabout: archaic or roundabout phrases per 1,000 words.

`--check` exits 1 if a rate is beyond its limit in `LIMITS`. Tighten a limit when the rate improves; never loosen one.
`--list openings|passive|roundabout` prints each occurrence with its file and line.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "thresher"
LIMITS = {"openings": 1.0, "passive": 10.0, "field": 20.0, "roundabout": 1.5}
MINIMUMS = {"field"}
"""Measures whose limit is a minimum."""

FIELD_WORDS = """
parse parser tokenizer tokenize cache cached prompt context compaction compact summary summarize index indexed query
rank score schema serialize deserialize encode decode hash digest prefix suffix buffer stream retry timeout config
configuration validate default fallback iterate recursive callback thread process lock transaction migration snapshot
diff merge truncate replace reference target filter match regex
"""
ROUNDABOUT_PHRASES = """
so many, so much, be it that, for ever, whoever, whatever, wherever, nobody, somebody, anew, beside, lies, stands,
stood, in the place of, told, tells, tell of, speaks of, spoken, is said, was said, as it came, came in, goes out, gives
back, hands out, handed, taken for, take up, goes on, go on, went on, made good, comes to, came to, worked out, thrown
away, in vain, dearer, clothes, looks at, looked at, look into, is no, are no, has no, what it is, by what, of what,
to what, with what, out of, of it, of these, none of, at all
"""
OPENING = re.compile(r"\s*(?:What|Whether|Where|Who|How|Which|Whose|When)\b")
PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been)\s+(?:\w+ed|\w+en|made|told|said|kept|sent|read|found|held|left|known|shown|given|"
    r"taken|put|cut|gone|done|meant|written|seen|set)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z']+")


def _match_any(phrases: Iterable[str]) -> re.Pattern[str]:
    spaced = [r"\s+".join(phrase.split()) for phrase in phrases]
    return re.compile(rf"\b(?:{'|'.join(spaced)})\b", re.IGNORECASE)


FIELD = _match_any(FIELD_WORDS.split())
ROUNDABOUT = [_match_any([phrase]) for phrase in ROUNDABOUT_PHRASES.split(",")]


class Prose(NamedTuple):
    """A docstring or a comment, with its place."""

    path: Path
    line: int
    text: str


def extract_prose(path: Path) -> Iterator[Prose]:
    """Yield every string statement and every comment of a module."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Prose(path, node.lineno, node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(path, token.start[0], token.string.lstrip("#: "))


def find_occurrences(prose: Prose, measure: str) -> Iterator[str]:
    """Yield each occurrence of a measure in a text."""
    if measure == "openings":
        yield from (found.group().strip() for found in [OPENING.match(prose.text)] if found)
    else:
        patterns = {"passive": [PASSIVE], "field": [FIELD], "roundabout": ROUNDABOUT}[measure]
        yield from (found.group() for pattern in patterns for found in pattern.finditer(prose.text))


def measure_prose(texts: list[Prose]) -> dict[str, float]:
    """Return the four rates."""
    words = sum(len(WORD.findall(prose.text)) for prose in texts) or 1
    counts = {measure: sum(1 for prose in texts for _ in find_occurrences(prose, measure)) for measure in LIMITS}
    openings = 100 * counts.pop("openings") / (len(texts) or 1)
    return {"openings": openings, **{measure: 1000 * count / words for measure, count in counts.items()}}


def is_beyond_limit(measure: str, rate: float) -> bool:
    """Report whether a rate is worse than its limit."""
    return rate < LIMITS[measure] if measure in MINIMUMS else rate > LIMITS[measure]


def main() -> int:
    """Print the rates; with `--check`, exit 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[SOURCE], help="files or folders; default: the package")
    parser.add_argument("--check", action="store_true", help="exit 1 if a rate is beyond its limit")
    parser.add_argument("--list", choices=["openings", "passive", "roundabout"], help="print each occurrence")
    options = parser.parse_args()
    files = sorted({file for path in options.paths for file in ([path] if path.is_file() else path.rglob("*.py"))})
    texts = [prose for file in files for prose in extract_prose(file)]
    if options.list:
        for prose in texts:
            for found in find_occurrences(prose, options.list):
                print(f"{prose.path}:{prose.line}: {found}")
        return 0
    rates = measure_prose(texts)
    for measure, rate in rates.items():
        sign = "at least" if measure in MINIMUMS else "at most"
        print(f"{measure:<11} {rate:6.1f}   {sign} {LIMITS[measure]:g}")
    return 1 if options.check and any(is_beyond_limit(measure, rate) for measure, rate in rates.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
