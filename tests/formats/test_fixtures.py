"""One small fixture a format, and what is read from it, line by line. `THRESHER_UPDATE_GOLDEN=1` writes it anew."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import thresher as th
from thresher.formats.table import FORMATS
from thresher.model import Message, Part, ToolCall, ToolResult, part_text

FIXTURES = Path(__file__).parents[1] / "fixtures"


def fixture(name: str) -> Path:
    return next(path for path in FIXTURES.iterdir() if path.name.startswith(f"{name}.json"))


def golden_part(part: Part) -> str:
    kind = type(part).__name__
    if isinstance(part, ToolCall):
        kind += f" {part.id} {part.name}"
    if isinstance(part, ToolResult):
        kind += f" {part.call_id}{' failed' if part.is_error else ''}"
    return f"    {kind}: {part_text(part)!r}"


def golden_message(message: Message) -> Iterator[str]:
    usage = message.usage
    bill = f" {usage.input}+{usage.cache_read}+{usage.cache_write}/{usage.output}" if usage else ""
    line = f" line {message.source.line}" if message.source else ""
    carried = " carried" if message.carried else ""
    yield f"  {message.role} by {message.author}{line}{carried} {message.model}{bill}".rstrip()
    yield from map(golden_part, message.parts)


def golden_session(session: th.Session) -> Iterator[str]:
    facts = (session.agent, session.id, session.project, session.git_branch, session.version)
    yield " | ".join(facts)
    origin = f"parent {session.parent!r} call {session.call_id!r}"
    yield f"title {session.title!r} {origin} {session.compactions} compactions"
    yield f"records {dict(sorted(session.records.items()))}"
    for segment in session.segments:
        yield "segment"
        for message in segment:
            yield from golden_message(message)
    for branch in session.branches:
        yield f"branch after {branch.after!r}"
        for message in branch.history:
            yield from golden_message(message)
    for child in session.children:
        yield "child"
        yield from ("  " + line for line in golden_session(child))
    yield from (f"problem {problem.line} {problem.what}; {problem.done}" for problem in session.problems)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_its_fixture_as_recorded(name: str) -> None:
    path = fixture(name)
    assert th.sniff(path) == name
    session = th.read(path)
    assert isinstance(session, th.Session)
    text = "\n".join(golden_session(session)) + "\n"
    golden = FIXTURES / f"{name}.golden.txt"
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
