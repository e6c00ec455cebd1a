"""Measure how well the text of files is known: each read of a whole file after a change, against the record before it.

Each such read is removed from its session together with everything after its turn, and the file's state is rebuilt from
the rest. That state is compared with the content of the read:

- equal: the state is exact and equals the read;
- gap named: the state is not exact, and says why;
- shown by the read: the state is exact, the read differs, and with the read in the session the gap is reported (an
  earlier step cannot show it: a person's editor, a hook);
- neither: the state is exact, and nothing in the session shows that it is wrong.

Reads that show a part of a file are compared in the same way, line by line, in a separate table.

    python benchmarks/timeline.py [FOLDER] [--cases]
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

import thresher as th
from thresher.model import History, Message, Session, ToolResult
from thresher.model.tool_calls import ToolUse
from thresher.timeline import Timeline
from thresher.timeline.actions import (
    FileCopyAction,
    FileDeleteAction,
    FileEditAction,
    FileMoveAction,
    FileReadAction,
    FileWriteAction,
)
from thresher.timeline.read_extents import SeenLines, parse_read_result

DATA = Path(__file__).parents[2] / "shared" / "data"
KINDS = ("claude_code", "codex", "pi", "opencode", "mini_swe")
OUTCOMES = ("equal", "gap named", "shown by the read", "neither")
CHANGES = (FileWriteAction, FileEditAction, FileDeleteAction, FileMoveAction, FileCopyAction)


class Case(NamedTuple):
    """A read after a change."""

    path: str
    turn: int
    link: ToolUse
    shown: SeenLines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--cases", action="store_true", help="Print the cases `shown by the read` and `neither`.")
    options = parser.parse_args()
    if not options.folder.is_dir():
        sys.exit(f"folder `{options.folder}` does not exist")
    counts: dict[tuple[str, bool], Counter[str]] = {}
    for kind in KINDS:
        for session in sessions(options.folder / kind):
            for case in cases(session):
                outcome = compare_state(session, case)
                counts.setdefault((kind, case.shown.is_whole), Counter())[outcome] += 1
                if options.cases and outcome in OUTCOMES[2:]:
                    print(f"{outcome}: {Path(session.file).name} turn {case.turn} {case.path}")
    for is_whole, title in ((True, "whole files"), (False, "parts of files")):
        print(f"\n| {title} read after changes | reads | {' | '.join(OUTCOMES)} |")
        print(f"|---|---|{'---|' * len(OUTCOMES)}")
        rows = {kind: counts.get((kind, is_whole), Counter()) for kind in KINDS}
        for kind, row in (*rows.items(), ("all", sum(rows.values(), Counter()))):
            told = (f"{row[one]} ({row[one] / max(row.total(), 1):.0%})" for one in OUTCOMES)
            print(f"| {kind} | {row.total()} | {' | '.join(told)} |")


def sessions(folder: Path) -> Iterator[Session]:
    """Yield every session in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            try:
                yield from th.read_all(path)
            except th.ThresherError:
                continue


def cases(session: Session) -> Iterator[Case]:
    """Yield the reads of a file that was changed since it was last known.

    Skip a read if the file is changed again later in the same turn, because the state after the turn is then another
    one.
    """
    taken = Timeline(session).applied_actions
    last = {(action.path, turn): at for at, (turn, action) in enumerate(taken) if isinstance(action, CHANGES)}
    own = {id(result) for message in session.messages() for result in message.results}
    changed: set[str] = set()
    for at, (turn, action) in enumerate(taken):
        if isinstance(action, CHANGES):
            changed.add(action.path)
        if not isinstance(action, FileReadAction) or id(action.link.result) not in own:
            continue
        shown = parse_read_result(action.link)
        if shown is None:
            continue
        if action.path in changed and last.get((action.path, turn), -1) < at:
            yield Case(action.path, turn, action.link, shown)
        if shown.is_whole:
            changed.discard(action.path)


def compare_state(session: Session, case: Case) -> str:
    """Compare the state without the read to the read."""
    state = Timeline(remove_read(session, case)).file_state_at(case.path, turn=case.turn)
    if not state.exact:
        return "gap named"
    if state.text is not None and shows(state.text, case.shown):
        return "equal"
    known = Timeline(session).file_state_at(case.path, turn=case.turn - 1)
    return "shown by the read" if not known.exact else "neither"


def shows(text: str, shown: SeenLines) -> bool:
    """Report whether a text contains the lines of a read; few tools show the final line end."""
    lines = text.rstrip("\n").split("\n")
    seen = shown.text.rstrip("\n").split("\n") if shown.reaches_end else shown.text.removesuffix("\n").split("\n")
    stop = None if shown.reaches_end else shown.first - 1 + len(seen)
    found = lines[shown.first - 1 : stop]
    return found == seen or "\n".join(found).rstrip("\n") == "\n".join(seen).rstrip("\n")


def remove_read(session: Session, case: Case) -> Session:
    """Return a session up to the end of the read's turn, without the content of the read."""
    history = History(tuple(session.messages()))
    later = [turn.start for turn in history.turns[case.turn :]]
    kept = history.messages[: later[0]] if later else history.messages
    messages = tuple(remove_content(message, case.link.result) for message in kept)
    begun = {call.id for message in kept for call in message.calls}
    children = tuple(child for child in session.children if child.call_id in begun)
    return structs.replace(session, segments=(History(messages),), children=children)


def remove_content(message: Message, result: ToolResult | None) -> Message:
    """Return a message without the content of one result."""
    if not any(part is result for part in message.parts):
        return message
    parts = (ToolResult(part.call_id) if part is result else part for part in message.parts)
    return structs.replace(message, parts=tuple(parts))


if __name__ == "__main__":
    main()
