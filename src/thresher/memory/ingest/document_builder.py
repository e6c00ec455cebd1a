"""Build index documents: one for each kind of text in a message.

The kinds are `human`, `agent`, `thinking`, `summary`, `commands` (shell commands), `edits` (text written into
files), `input` (arguments of other tools) and `output`. Excluded texts get separate documents, by reason. All kinds
except `output` share one index field, so that a word has the same weight in each. Tool output is two thirds of all
text, and a search covers it only on request. So it has its own field, without stemming and positions, which contains
only the beginning and end of a long text. Commit subjects in git output are also indexed as exact terms.

The document of a call has two more fields. `paths` contains the words of each path that the call touches. `file`
contains the path and all its suffixes (`a/b/c.py`, `b/c.py`, `c.py`) as exact terms. Paths are in no other field, so
that words match text only. The title and branch of a session form a document in a separate block, whose id is the
negated session key.

Messages that a compaction repeats are archived but not indexed. Every text is redacted before it is truncated,
because a truncated secret cannot be recognized. A title is often a truncated prompt, so it is rebuilt from that
prompt before redaction.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count

from thresher.memory.annotation_file import Annotation
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

NO_COMMITS = CommitSubjects()
HEAD, TAIL = 4000, 1000
"""Maximum characters of tool output to index from its beginning and its end."""


def attribute_session(session: Session) -> list[list[AttributedText]]:
    """Return the attributed texts of each message in storage order; a repeated message has none."""
    attributed: list[list[AttributedText]] = []
    for history in _linear_histories(session):
        texts_by_index = dict(attribute_texts([message for message in history if not message.carried]))
        numbers = count()
        attributed += [[] if message.carried else texts_by_index.get(next(numbers), []) for message in history]
    return attributed


def _linear_histories(session: Session) -> Iterator[list[Message]]:
    """Yield linear conversations: all segments joined, then each abandoned branch."""
    yield [message for segment in session.segments for message in segment]
    yield from ([*branch.history] for branch in session.branches)


def encode_exclusions(attributed: Iterable[list[AttributedText]]) -> bytes:
    """Encode exclusion reasons for the digest of a block, because a later message can change them."""
    reasons = (f"{text.reason}{'+' if text.derived else ''}" for texts in attributed for text in texts)
    return ",".join(reasons).encode()


def build_documents(
    messages: Sequence[Message], attributed: Sequence[list[AttributedText]], number: int, *, made_by: str
) -> Iterator[IndexDocument]:
    """Build the documents of one block from all messages of its session."""
    for index in range(number * MESSAGES_PER_BLOCK, min((number + 1) * MESSAGES_PER_BLOCK, len(messages))):
        for document in _build_message_documents(messages[index], attributed[index], index):
            yield document._replace(reason=RECALL_REASON, commits=NO_COMMITS) if made_by else document


def build_title_document(facts: ArchivedSession) -> IndexDocument:
    """Build the document of a session's title and branch."""
    text = separate_words(f"{_clean(facts.title, printed=True)}\n{redact(facts.branch)}")
    return IndexDocument(-1, "title", [text], RECALL_REASON if facts.made_by else 0)


def build_annotation_documents(annotations: Iterable[Annotation]) -> Iterator[IndexDocument]:
    """Build a document for each annotation of a session, at the message with which its piece of work begins."""
    for one in annotations:
        yield IndexDocument(one.message, "annotation", [separate_words(one.line)], 0, role=ROLES.index("assistant"))


def clean_title(session: Session) -> str:
    """Return a session's title without secrets and recalled text."""
    words = _ELLIPSIS.sub("", session.title).split()
    if not words:
        return ""
    beginning = re.compile(r"\s+".join(map(re.escape, words)))
    prompts = (message.text for message in session.messages() if message.role == "user")
    match = next(filter(None, map(beginning.search, prompts)), None)
    if match is None:
        return _clean(session.title, printed=True)
    cleaned = _clean(match.string[match.start() :], printed=False)
    return session.title if cleaned.startswith(match[0]) else cleaned[: max(MAX_TITLE_CHARS, len(session.title))]


_ELLIPSIS = re.compile(r"(?:…|\.\.\.)\s*\Z")


def _clean(title: str, *, printed: bool) -> str:
    return redact(strip_recalls(title, printed=printed))


def _build_message_documents(message: Message, attributed: list[AttributedText], at: int) -> Iterator[IndexDocument]:
    if not attributed:
        return
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    is_matched = [attributed_text.field for attributed_text in attributed].count("input") == len(calls)
    remaining_calls = iter(calls if is_matched else ())
    groups: dict[tuple[TextKind, str, bool], tuple[list[str], list[str]]] = {}
    for attributed_text in attributed:
        kind: TextKind = attributed_text.field
        details: ToolCallDetails | None = None
        touched_files: tuple[str, ...] = ()
        if kind == "input" and (call := next(remaining_calls, None)) is not None:
            details, touched_files = describe_tool_call(call), list_touched_files(call)
            kind = _classify_tool_use(details)
        key = (kind, attributed_text.reason, attributed_text.derived)
        if key not in groups:
            groups[key] = ([], [])
        texts, paths = groups[key]
        texts.append(_separate_text(attributed_text, details))
        paths += touched_files
    if not is_matched:
        next(iter(groups.values()))[1].extend(path for call in calls for path in list_touched_files(call))
    role, time = ROLES.index(message.role), int(message.time.timestamp()) if message.time else 0
    for (kind, reason, derived), (texts, paths) in groups.items():
        clean_paths = tuple(map(_clean_path, paths)) if paths else ()
        commits = _commits(attributed) if kind == "output" and not reason else NO_COMMITS
        yield IndexDocument(at, kind, texts, EXCLUSION_REASONS.index(reason), derived, role, time, clean_paths, commits)


@lru_cache(maxsize=4096)
def _clean_path(path: str) -> str:
    """Redact a path; a session touches the same ones often."""
    return redact(path)


def _commits(texts: Iterable[AttributedText]) -> CommitSubjects:
    """Return the commit subjects in the complete outputs of a message, before they are truncated for the index."""
    found = [extract_commit_subjects(text.text) for text in texts if text.field == "output" and not text.reason]
    return found[0] if len(found) == 1 else CommitSubjects(*(sum(groups, ()) for groups in zip(*found, strict=True)))


def _classify_tool_use(details: ToolCallDetails) -> TextKind:
    if details.command:
        return "commands"
    return "edits" if details.category == "file_edit" else "input"


def _separate_text(attributed: AttributedText, details: ToolCallDetails | None) -> str:
    """Redact a text and separate its words for the index."""
    text = attributed.text
    if attributed.field == "output":
        text = redact(text)
        return separate_unspaced_scripts(f"{text[:HEAD]}\n{text[-TAIL:]}" if len(text) > HEAD + TAIL else text)
    if details is not None and details.path:
        text = "\n".join([line for line in text.split("\n") if line != details.path])
    return separate_words(redact(text))
