"""The page about formats says what the table of formats says. `THRESHER_UPDATE_GOLDEN=1` writes its tables anew."""

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
    yield row("format", "agent", "what is read", "versions seen")
    yield row("---", "---", "---", "---")
    yield from (row(f"`{one.name}`", one.title, one.layouts, one.seen) for one in own)
    yield "\n"
    traits = get_args(Capability)
    yield row("format", *traits, "goes on with")
    yield row(*(["---"] * (len(traits) + 2)))
    for one in own:
        told = ["yes" if trait in one.holds else "" for trait in traits]
        yield row(f"`{one.name}`", *told, f"`{one.resume}`" if one.resume else "")


def test_the_tables_are_those_of_the_formats() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(STOP)
    written = f"{before}{START}\n{''.join(tables())}\n{STOP}{after}"
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        PAGE.write_text(written, encoding="utf-8")
    assert page == written


def test_the_page_names_every_wire_format() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in format_names() if f"| `{name}` |" not in page] == []
    assert all(find_format(name).title for name in format_names())
