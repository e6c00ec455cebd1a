"""Build index documents: one for each kind of text in a message.

The kinds are `human`, `agent`, `thinking`, `summary`, `commands` (shell commands), `edits` (text written into
files), `input` (arguments of other tools) and `output`. Excluded texts get separate documents, by reason. All kinds
share one index field, so that a word has the same weight in each. Only tool output, which is two thirds of all text
and optional in a search, has its own field: without stemming and positions, and limited to the beginning and end of
a long text. Subjects of the commits that git lists there are indexed separately, as exact terms.

The document of a call also contains the `paths` it touches as words, and as `file` each full path with all its
suffixes (`a/b/c.py`, `b/c.py`, `c.py`). Paths are in no other field, so that words match text only. The title, with
the words of the branch, is a document in a block of its own, whose id is the negated session key.

Messages that a compaction repeats are archived but not indexed. Every text is redacted before it is truncated,
because a truncated secret cannot be recognized. A title is often a truncated prompt, so it is rebuilt from that
prompt.
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
"""Maximum characters of tool output to index from its beginning and its end."""


def attribute_session(session: Session) -> list[list[AttributedText]]:
    """Return the attributed texts of each message in storage order; none for repeated messages."""
    found: list[list[AttributedText]] = []
    for history in _linear_histories(session):
        said = dict(attribute_texts([message for message in history if not message.carried]))
        numbers = count()
        found += [[] if message.carried else said.get(next(numbers), []) for message in history]
    return found


def _linear_histories(session: Session) -> Iterator[list[Message]]:
    """Yield linear conversations: all segments joined, then each abandoned branch."""
    yield [message for segment in session.segments for message in segment]
    yield from ([*branch.history] for branch in session.branches)


def encode_exclusions(found: Iterable[list[AttributedText]]) -> bytes:
    """Encode the exclusion reasons for a block's digest, since a later message can change them."""
    told = (f"{piece.reason}{'+' if piece.derived else ''}" for said in found for piece in said)
    return ",".join(told).encode()


def build_documents(
    messages: Sequence[Message], found: Sequence[list[AttributedText]], number: int, *, made_by: str
) -> Iterator[IndexDocument]:
    """Build the documents of one block from all messages of its session."""
    for at in range(number * MESSAGES_PER_BLOCK, min((number + 1) * MESSAGES_PER_BLOCK, len(messages))):
        for doc in _build_message_documents(messages[at], found[at], at):
            yield doc._replace(reason=RECALL_REASON, commits=CommitSubjects()) if made_by else doc


def build_title_document(facts: ArchivedSession) -> IndexDocument:
    """Build the document of a session's title and branch."""
    text = separate_words(f"{_clean(facts.title, printed=True)}\n{redact(facts.branch)}")
    return IndexDocument(-1, "title", [text], RECALL_REASON if facts.made_by else 0)


def clean_title(session: Session) -> str:
    """Return a session's title without secrets and recalled text."""
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
    """Return the commit subjects from complete outputs, before truncation."""
    told = [extract_commit_subjects(piece.text) for piece in found if piece.field == "output" and not piece.reason]
    return told[0] if len(told) == 1 else CommitSubjects(*(sum(each, ()) for each in zip(*told, strict=True)))


def _classify_tool_use(use: ToolCallDetails) -> TextKind:
    if use.command:
        return "commands"
    return "edits" if use.category == "file_edit" else "input"


def _separate_text(piece: AttributedText, use: ToolCallDetails | None) -> str:
    """Redact a text and separate its words for the index."""
    text = piece.text
    if piece.field == "output":
        text = redact(text)
        return separate_unspaced_scripts(f"{text[:HEAD]}\n{text[-TAIL:]}" if len(text) > HEAD + TAIL else text)
    if use is not None and use.path:
        text = "\n".join([line for line in text.split("\n") if line != use.path])
    return separate_words(redact(text))
