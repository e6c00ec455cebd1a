"""What of a session goes into the index: one entry for each kind of words in a message.

The kinds are `human`, `agent`, `thinking`, `summary`, `commands` (what was run), `edits` (what was written into files),
`input` (what other tools were given) and `output`; words that are left out for a reason are an entry of their own
beside those that are not. All lie in one field of the index, so that a word weighs the same whoever says it. Only
outputs, two thirds of all text and searched when asked for, have another: endings stay, no positions are kept, and of a
long one only the beginning and the end are taken. The commits that git names there are kept whole beside it.

A call's entry also names the `paths` it touches as words, and as `file` each path whole and every end of it
(`a/b/c.py`, `b/c.py`, `c.py`). A path stands in no other field, so that words find text. The title, with the words of
the branch, is an entry in a block of its own: minus the session's key.

Messages that a compaction repeats are in the archive and not here. Every text passes through `redact` before anything
is cut off it: half a secret has no shape. A title is often the beginning of a prompt and is cut already, so it is made
again from that prompt.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from thresher.formats.transcript import TITLE
from thresher.memory.commits import Commits, told_commits
from thresher.memory.packing import BLOCK
from thresher.memory.provenance import Piece, pieces
from thresher.memory.recalls import without_recalls
from thresher.memory.secrets import redact
from thresher.memory.values import REASONS, ROLES, Facts, Kind
from thresher.memory.words import parted, spaced
from thresher.model import Message, Session, ToolCall
from thresher.model.tools import ToolUse, tool_use, touched

VERSION = 4
"""How entries are made: another number makes all indexes be built anew."""
HEAD, TAIL = 4000, 1000
"""Characters of an output that are taken from its beginning and its end."""
MOST_FOLDERS = 24
RECALL = REASONS.index("recall")


class Doc(NamedTuple):
    """One entry."""

    at: int
    """The place of the message in the session; -1 for a title."""
    kind: Kind
    texts: list[str]
    reason: int
    derived: bool = False
    role: int = 0
    time: int = 0
    paths: tuple[str, ...] = ()
    commits: Commits = Commits()


def read_pieces(session: Session) -> list[list[Piece]]:
    """The pieces of each message, in the order that messages are kept in; none for what is repeated."""
    found: list[list[Piece]] = []
    for history in _ways(session):
        said = dict(pieces([message for message in history if not message.carried]))
        numbers = count()
        found += [[] if message.carried else said.get(next(numbers), []) for message in history]
    return found


def _ways(session: Session) -> Iterator[list[Message]]:
    """What was said in one go: all segments together, each way that was taken back from for itself."""
    yield [message for segment in session.segments for message in segment]
    yield from ([*branch.history] for branch in session.branches)


def signature(found: Iterable[list[Piece]]) -> bytes:
    """What is left out and why: a later message can change it for an earlier one."""
    told = (f"{piece.reason}{'+' if piece.derived else ''}" for said in found for piece in said)
    return ",".join(told).encode()


def docs_of(messages: Sequence[Message], found: Sequence[list[Piece]], number: int, *, made_by: str) -> Iterator[Doc]:
    """The entries of one block of a session, given all its messages and their pieces."""
    for at in range(number * BLOCK, min((number + 1) * BLOCK, len(messages))):
        for doc in _message_docs(messages[at], found[at], at):
            yield doc._replace(reason=RECALL, commits=Commits()) if made_by else doc


def title_doc(facts: Facts) -> Doc:
    """The entry of a session's name."""
    text = parted(f"{_clean(facts.title, printed=True)}\n{redact(facts.branch)}")
    return Doc(-1, "title", [text], RECALL if facts.made_by else 0)


def clean_title(session: Session) -> str:
    """A session's name without secrets and without what a memory tool said."""
    words = _ELLIPSIS.sub("", session.title).split()
    if not words:
        return ""
    beginning = re.compile(r"\s+".join(map(re.escape, words)))
    prompts = (message.text for message in session.messages() if message.role == "user")
    found = next(filter(None, map(beginning.search, prompts)), None)
    if found is None:
        return _clean(session.title, printed=True)
    clean = _clean(found.string[found.start() :], printed=False)
    return session.title if clean.startswith(found[0]) else clean[: max(TITLE, len(session.title))]


_ELLIPSIS = re.compile(r"(?:…|\.\.\.)\s*\Z")


def _clean(title: str, *, printed: bool) -> str:
    return redact(without_recalls(title, printed=printed))


def _message_docs(message: Message, found: list[Piece], at: int) -> Iterator[Doc]:
    if not found:
        return
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    matched = [piece.field for piece in found].count("input") == len(calls)
    each = iter(calls if matched else ())
    groups: dict[tuple[Kind, str, bool], tuple[list[str], list[str]]] = {}
    for piece in found:
        kind: Kind = piece.field
        use: ToolUse | None = None
        named: tuple[str, ...] = ()
        if kind == "input" and (call := next(each, None)) is not None:
            use, named = tool_use(call), touched(call)
            kind = _kind(use)
        key = (kind, piece.reason, piece.derived)
        if key not in groups:
            groups[key] = ([], [])
        texts, paths = groups[key]
        texts.append(_words(piece, use))
        paths += named
    if not matched:
        next(iter(groups.values()))[1].extend(path for call in calls for path in touched(call))
    role, time = ROLES.index(message.role), int(message.time.timestamp()) if message.time else 0
    for (kind, reason, derived), (texts, paths) in groups.items():
        told = tuple(map(redact, paths))
        commits = _commits(found) if kind == "output" and not reason else Commits()
        yield Doc(at, kind, texts, REASONS.index(reason), derived, role, time, told, commits)


def _commits(found: Iterable[Piece]) -> Commits:
    """What git says in outputs, all of them: beginnings and ends are for words."""
    told = [told_commits(piece.text) for piece in found if piece.field == "output" and not piece.reason]
    return told[0] if len(told) == 1 else Commits(*(sum(each, ()) for each in zip(*told, strict=True)))


def _kind(use: ToolUse) -> Kind:
    if use.command:
        return "commands"
    return "edits" if use.category == "file_edit" else "input"


def _words(piece: Piece, use: ToolUse | None) -> str:
    """A piece as the index takes it: without secrets, its words apart."""
    text = piece.text
    if piece.field == "output":
        text = redact(text)
        return spaced(f"{text[:HEAD]}\n{text[-TAIL:]}" if len(text) > HEAD + TAIL else text)
    if use is not None and use.path:
        text = "\n".join([line for line in text.split("\n") if line != use.path])
    return parted(redact(text))


def ends(path: str) -> list[str]:
    """A path, and every end of it that begins with a name; in lower case, with slashes."""
    clean = path.encode("utf-8", "replace").decode().replace("\\", "/").lower()
    names = [name for name in clean.split("/") if name not in ("", ".")]
    return ["/".join(names[place:]) for place in range(len(names))][-MOST_FOLDERS:]
