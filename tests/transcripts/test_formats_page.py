"""The page about formats matches the table of formats. `THRESHER_UPDATE_GOLDEN=1` updates its tables."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from thresher.transcripts import Capability
from thresher.transcripts.table import TRANSCRIPT_FORMATS, find_format, format_names, transcript_formats

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
START, STOP = "<!-- transcripts -->\n", "<!-- end of transcripts -->\n"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def tables() -> Iterator[str]:
    own = [one for one in transcript_formats() if one.name in TRANSCRIPT_FORMATS]
    yield row("format", "agent", "files read", "versions tested")
    yield row("---", "---", "---", "---")
    yield from (row(f"`{one.name}`", one.title, one.layouts, one.seen) for one in own)
    yield "\n"
    traits = get_args(Capability)
    yield row("format", *traits, "resume command")
    yield row(*(["---"] * (len(traits) + 2)))
    for one in own:
        cells = ["yes" if trait in one.holds else "" for trait in traits]
        yield row(f"`{one.name}`", *cells, f"`{one.resume}`" if one.resume else "")


def test_the_tables_match_the_formats() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(STOP)
    written = f"{before}{START}\n{''.join(tables())}\n{STOP}{after}"
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        PAGE.write_text(written, encoding="utf-8")
    assert page == written


def test_the_page_lists_every_dialect() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in format_names() if f"| `{name}` |" not in page] == []
    assert all(find_format(name).title for name in format_names())
