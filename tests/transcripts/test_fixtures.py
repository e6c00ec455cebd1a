"""Small fixtures for each format, compared with golden files line by line.

`THRESHER_UPDATE_GOLDEN=1` updates the golden files.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import thresher as th
from fixture_files import fixtures, ready
from thresher.model import Message, Part, Thinking, ToolCall, ToolResult, part_text
from thresher.model.tool_calls import describe_tool_call
from thresher.transcripts import Capability, TranscriptFormat
from thresher.transcripts.table import format_names, transcript_formats


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
        yield f"branch after {branch.after_message_id!r}"
        for message in branch.history:
            yield from golden_message(message)
    for child in session.children:
        yield "child"
        yield from ("  " + line for line in golden_session(child))
    yield from (f"problem {problem.line} {problem.what}; {problem.done}" for problem in session.problems)


def is_subagent(session: th.Session) -> bool:
    prompt = next((message for message in session.messages() if message.role == "user"), None)
    given = prompt is not None and prompt.author == "model"
    return bool(session.call_id or (session.parent and given))


def observed(sessions: Sequence[th.Session]) -> set[Capability]:
    """Return the capabilities that a session shows."""
    family = [one for session in sessions for one in (session, *session.children)]
    messages = [message for session in family for message in session.messages(branches=True)]
    tells: dict[Capability, bool] = {
        "thinking": any(isinstance(part, Thinking) for message in messages for part in message.parts),
        "sub-agents": any(is_subagent(session) for session in family),
        "forks": any(session.parent and not is_subagent(session) for session in family),
        "usage": any(message.usage for message in messages),
        "times": any(message.time for message in messages),
        "edits": any(
            describe_tool_call(call).category == "file_edit" for message in messages for call in message.calls
        ),
        "rewinds": any(session.branches for session in family),
        "compactions": any(session.compactions for session in family),
    }
    return {what for what, is_told in tells.items() if is_told}


@pytest.mark.parametrize("found", [*transcript_formats()], ids=lambda found: found.name)
def test_the_fixtures_have_every_capability_of_their_format(found: TranscriptFormat, tmp_path: Path) -> None:
    sessions = [session for path in fixtures(found.name) for session in th.read_all(ready(path, tmp_path))]
    assert observed(sessions) == set(found.holds)
    assert found.layouts
    assert found.seen


EVERY = [path for name in format_names() for path in fixtures(name)]


@pytest.mark.parametrize("fixture", EVERY, ids=lambda path: path.stem)
def test_every_fixture_is_read_as_recorded(fixture: Path, tmp_path: Path) -> None:
    path = ready(fixture, tmp_path)
    assert th.sniff(path) == fixture.name.partition(".")[0]
    text = "".join(f"{line}\n" for session in th.read_all(path) for line in golden_session(session))
    golden = fixture.with_name(f"{fixture.stem}.golden.txt")
    if os.environ.get("THRESHER_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_format_has_a_fixture() -> None:
    assert [name for name in format_names() if not fixtures(name)] == []
