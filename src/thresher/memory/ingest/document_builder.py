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

from thresher.memory.index.documents import RECALL_REASON, CommitSubjects, IndexDocument
from thresher.memory.index.tokenizer import separate_unspaced_scripts, separate_words
from thresher.memory.ingest.git_commits import extract_commit_subjects
from thresher.memory.ingest.memory_tools import strip_recalls
from thresher.memory.ingest.provenance import AttributedText, attribute_texts
from thresher.memory.ingest.redaction import redact
from thresher.memory.records import EXCLUSION_REASONS, MESSAGES_PER_BLOCK, ROLES, ArchivedSession, TextKind
from thresher.model import Message, Session, ToolCall
from thresher.model.tool_calls import ToolCallDetails, describe_tool_call, list_touched_files
from thresher.transcripts.base import MAX_TITLE_CHARS

HEAD, TAIL = 4000, 1000
"""Characters of an output that are taken from its beginning and its end."""


def attribute_session(session: Session) -> list[list[AttributedText]]:
    """The pieces of each message, in the order that messages are kept in; none for what is repeated."""
    found: list[list[AttributedText]] = []
    for history in _linear_histories(session):
        said = dict(attribute_texts([message for message in history if not message.carried]))
        numbers = count()
        found += [[] if message.carried else said.get(next(numbers), []) for message in history]
    return found


def _linear_histories(session: Session) -> Iterator[list[Message]]:
    """What was said in one go: all segments together, each way that was taken back from for itself."""
    yield [message for segment in session.segments for message in segment]
    yield from ([*branch.history] for branch in session.branches)


def encode_exclusions(found: Iterable[list[AttributedText]]) -> bytes:
    """What is left out and why: a later message can change it for an earlier one."""
    told = (f"{piece.reason}{'+' if piece.derived else ''}" for said in found for piece in said)
    return ",".join(told).encode()


def build_documents(
    messages: Sequence[Message], found: Sequence[list[AttributedText]], number: int, *, made_by: str
) -> Iterator[IndexDocument]:
    """The entries of one block of a session, given all its messages and their pieces."""
    for at in range(number * MESSAGES_PER_BLOCK, min((number + 1) * MESSAGES_PER_BLOCK, len(messages))):
        for doc in _build_message_documents(messages[at], found[at], at):
            yield doc._replace(reason=RECALL_REASON, commits=CommitSubjects()) if made_by else doc


def build_title_document(facts: ArchivedSession) -> IndexDocument:
    """The entry of a session's name."""
    text = separate_words(f"{_clean(facts.title, printed=True)}\n{redact(facts.branch)}")
    return IndexDocument(-1, "title", [text], RECALL_REASON if facts.made_by else 0)


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
    return session.title if clean.startswith(found[0]) else clean[: max(MAX_TITLE_CHARS, len(session.title))]


_ELLIPSIS = re.compile(r"(?:…|\.\.\.)\s*\Z")


def _clean(title: str, *, printed: bool) -> str:
    return redact(strip_recalls(title, printed=printed))


def _build_message_documents(message: Message, found: list[AttributedText], at: int) -> Iterator[IndexDocument]:
    if not found:
        return
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    matched = [piece.field for piece in found].count("input") == len(calls)
    each = iter(calls if matched else ())
    groups: dict[tuple[TextKind, str, bool], tuple[list[str], list[str]]] = {}
    for piece in found:
        kind: TextKind = piece.field
        use: ToolCallDetails | None = None
        named: tuple[str, ...] = ()
        if kind == "input" and (call := next(each, None)) is not None:
            use, named = describe_tool_call(call), list_touched_files(call)
            kind = _classify_tool_use(use)
        key = (kind, piece.reason, piece.derived)
        if key not in groups:
            groups[key] = ([], [])
        texts, paths = groups[key]
        texts.append(_separate_text(piece, use))
        paths += named
    if not matched:
        next(iter(groups.values()))[1].extend(path for call in calls for path in list_touched_files(call))
    role, time = ROLES.index(message.role), int(message.time.timestamp()) if message.time else 0
    for (kind, reason, derived), (texts, paths) in groups.items():
        told = tuple(map(redact, paths))
        commits = _commits(found) if kind == "output" and not reason else CommitSubjects()
        yield IndexDocument(at, kind, texts, EXCLUSION_REASONS.index(reason), derived, role, time, told, commits)


def _commits(found: Iterable[AttributedText]) -> CommitSubjects:
    """What git says in outputs, all of them: beginnings and ends are for words."""
    told = [extract_commit_subjects(piece.text) for piece in found if piece.field == "output" and not piece.reason]
    return told[0] if len(told) == 1 else CommitSubjects(*(sum(each, ()) for each in zip(*told, strict=True)))


def _classify_tool_use(use: ToolCallDetails) -> TextKind:
    if use.command:
        return "commands"
    return "edits" if use.category == "file_edit" else "input"


def _separate_text(piece: AttributedText, use: ToolCallDetails | None) -> str:
    """A piece as the index takes it: without secrets, its words apart."""
    text = piece.text
    if piece.field == "output":
        text = redact(text)
        return separate_unspaced_scripts(f"{text[:HEAD]}\n{text[-TAIL:]}" if len(text) > HEAD + TAIL else text)
    if use is not None and use.path:
        text = "\n".join([line for line in text.split("\n") if line != use.path])
    return separate_words(redact(text))
