"""Prepare a source file for the archive: read it, encode its sessions and build index documents.

`prepare_file` depends only on the file and on its last known state, so it returns the same result in this process
and in a worker process. The result is small: compressed blocks, the documents of new blocks, and metadata, but no
decoded messages. The session store only has to write this result.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from thresher.errors import ReadError, UnknownFormatError
from thresher.memory.archive.block_codec import compress, encode_layout, encode_value, flatten_messages, text_size
from thresher.memory.archive.families import compute_origin_id
from thresher.memory.archive.placement import SessionName, StoredDigests, count_same_digests
from thresher.memory.archive.protocol import EncodedBlock, EncodedSession
from thresher.memory.index.documents import encode_document
from thresher.memory.ingest.change_detection import (
    FileChange,
    classify_change,
    fingerprint_file,
    fingerprint_sessions,
    read_file_stat,
)
from thresher.memory.ingest.document_builder import attribute_session, build_documents, clean_title, encode_exclusions
from thresher.memory.ingest.memory_tools import detect_memory_tool
from thresher.memory.ingest.provenance import AttributedText
from thresher.memory.records import MESSAGES_PER_BLOCK, ArchivedSession, FileStat, SourceRecord, to_storable_text
from thresher.model import Message, Session
from thresher.store.errors import StoreError
from thresher.transcripts import list_session_versions, read_all

UNSURE_NS = 20_000_000
"""Tolerance for file system clocks: a file with a change time this close before the read may have changed during it."""
MAX_FAILURE_CHARS = 300
"""Maximum length of an unforeseen error in the problem of a file."""
MAX_SESSIONS_PER_READ = 128
"""Maximum number of sessions to read from a multi-session file at a time."""

SessionReader = Callable[..., Sequence[Session]]
"""Callable with the signature of `read_all`."""
IngestStatus = Literal[FileChange, "foreign", "failed", "vanished"]


class IngestJob(NamedTuple):
    """A new or changed file to read."""

    path: Path
    format: str
    stat: FileStat
    source: SourceRecord | None
    only_parts_changed: bool = False
    """True if the file itself is unchanged, but one of its parts changed."""
    whole: str = ""
    """Deleted main file with which this file was last read; empty if there is none."""
    stored: Mapping[SessionName, StoredDigests] = {}
    """Block digests of the sessions that the archive has from this file."""
    already_read: frozenset[str] = frozenset()
    """Ids of sessions in a multi-session file that this sync already read, including those that it did not store."""
    most_sessions: int = MAX_SESSIONS_PER_READ


class PreparedSession(NamedTuple):
    """An encoded session, ready to be stored."""

    encoded: EncodedSession
    ordinal: int
    """Position among the file's sessions with the same name."""
    owner: int
    """Position of this sub-agent's owner among the sessions of the file; -1 without an owner."""
    documents: dict[int, list[str]]
    """Encoded documents of each new block, by block number."""


class PreparedFile(NamedTuple):
    """Result of reading a file; `sessions` contains each owner before its sub-agents."""

    source: SourceRecord
    status: IngestStatus
    sessions: tuple[PreparedSession, ...] = ()
    parts: tuple[SourceRecord, ...] = ()
    """Files that were read with this one, and their folders."""
    unchanged_ids: frozenset[str] = frozenset()
    """Ids of unchanged sessions in a multi-session file, which were not read."""
    already_read: frozenset[str] = frozenset()
    """Ids of the sessions in a multi-session file that this sync has already read."""
    remaining: int = 0
    """Number of changed sessions that are still to be read."""


def prepare_file(job: IngestJob, read: SessionReader = read_all) -> PreparedFile:
    """Read a file, unless only its metadata changed. After a failure, `source.problem` contains the reason."""
    source = SourceRecord(str(job.path), job.stat, format=job.format, whole=job.whole)
    began = time.time_ns() - UNSURE_NS
    try:
        versions = list_session_versions(job.path, format=job.format or None)
        fingerprint = fingerprint_file(job.path, job.stat.size) if versions is None else fingerprint_sessions(versions)
        source = source._replace(offset=fingerprint.offset, prefix=fingerprint.prefix)
        change = classify_change(job.path, job.source, fingerprint)
        if change == "touched" and not job.only_parts_changed:
            return PreparedFile(source, "touched")
        selected, remaining = _select_changed(job, versions or {})
        is_wanted = selected.__contains__ if versions else None
        sessions = read(job.path, format=job.format or None, is_wanted=is_wanted)
        prepared = tuple(prepare_sessions(sessions, job.stored, versions))
    except UnknownFormatError:
        return PreparedFile(source._replace(state="foreign", prefix=b""), "foreign")
    except (ReadError, OSError) as error:
        is_gone = read_file_stat(job.path) is None
        return PreparedFile(source, "vanished") if is_gone else build_failed_file(source, str(error))
    except MemoryError:
        return build_failed_file(source, f"{job.path}: not enough memory to read the file")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the others must be read
        return build_failed_file(source, describe_failure(job.path, error))
    parts = tuple(_find_companion_files(source.path, sessions, began))
    if remaining:  # if the sync stops here, the next one considers the file changed
        source = source._replace(stat=job.stat._replace(size=-1), prefix=b"")
    change = "grown" if change == "touched" else change
    unchanged = frozenset(versions or ()) - selected
    return PreparedFile(source, change, prepared, parts, unchanged, job.already_read | selected, remaining)


def _select_changed(job: IngestJob, versions: Mapping[str, str]) -> tuple[frozenset[str], int]:
    """Return the ids of changed sessions to read now from a multi-session file, and the number left for later."""
    stored = {id: digests.source_version for (_, id, _, _), digests in job.stored.items()}
    changed = [id for id, version in versions.items() if stored.get(id) != version and id not in job.already_read]
    return frozenset(changed[: job.most_sessions]), max(0, len(changed) - job.most_sessions)


def describe_failure(path: Path, error: Exception) -> str:
    """Return the problem of a file that failed in a way that no reader foresees."""
    detail = to_storable_text(f"{type(error).__name__}: {error}")[:MAX_FAILURE_CHARS]
    return f"`{path}` cannot be taken in ({detail}); all other files are. Please report this problem"


def is_storage_failure(error: Exception) -> bool:
    """Return True if the archive or the index failed, False if a value of the file cannot be stored in them."""
    return isinstance(error, StoreError) and not isinstance(error.__cause__, UnicodeError | OverflowError)


def build_failed_file(source: SourceRecord, problem: str) -> PreparedFile:
    """Return the result for a file that cannot be read."""
    return PreparedFile(source._replace(state="failed", prefix=b"", problem=problem), "failed")


def prepare_sessions(
    sessions: Sequence[Session], stored: Mapping[SessionName, StoredDigests], versions: Mapping[str, str] | None = None
) -> Iterator[PreparedSession]:
    """Prepare the sessions of a file, each before its sub-agents.

    `versions` are the versions of the sessions in a multi-session file, as the file records them.
    """
    ordinals: dict[tuple[str, str, str], int] = {}
    queue = [(session, -1) for session in reversed(sessions)]
    position = 0
    while queue:
        session, owner = queue.pop()
        facts = _describe_session(session, is_child=owner >= 0)
        name = (facts.agent, facts.id, facts.file)
        ordinal = ordinals[name] = ordinals.get(name, -1) + 1
        prepared = _prepare_session(session, facts, ordinal, owner, stored.get((*name, ordinal)))
        yield prepared._replace(encoded=prepared.encoded._replace(source_version=(versions or {}).get(session.id, "")))
        queue += [(child, position) for child in reversed(session.children)]
        position += 1


def _prepare_session(
    session: Session, facts: ArchivedSession, ordinal: int, owner: int, stored: StoredDigests | None
) -> PreparedSession:
    messages, attributed = flatten_messages(session), attribute_session(session)
    blocks = _blocks(messages, attributed)
    text = text_size(message for message in messages if not message.carried)
    is_comparable = stored is not None and stored.made_by == facts.made_by
    unchanged = count_same_digests(stored.digests, blocks) if stored is not None and is_comparable else 0
    new_blocks = range(unchanged, len(blocks))
    documents = {
        n: [encode_document(document) for document in build_documents(messages, attributed, n, made_by=facts.made_by)]
        for n in new_blocks
    }
    encoded = EncodedSession(facts, compute_origin_id(session), encode_layout(session), text, blocks)
    return PreparedSession(encoded, ordinal, owner, documents)


def _blocks(messages: Sequence[Message], attributed: Sequence[list[AttributedText]]) -> list[EncodedBlock]:
    blocks = []
    for start in range(0, len(messages), MESSAGES_PER_BLOCK):
        chunk = messages[start : start + MESSAGES_PER_BLOCK]
        body = encode_value(chunk)
        digest = blake2b(body, digest_size=16)
        digest.update(encode_exclusions(attributed[start : start + MESSAGES_PER_BLOCK]))
        blocks.append(EncodedBlock(digest.digest(), len(chunk), compress(body)))
    return blocks


def _describe_session(session: Session, *, is_child: bool) -> ArchivedSession:
    return ArchivedSession(
        key=0,
        id=to_storable_text(session.id),
        agent=session.agent,
        file=to_storable_text(session.file),
        project=to_storable_text(session.project),
        branch=to_storable_text(session.git_branch),
        title=to_storable_text(clean_title(session)),
        version=to_storable_text(session.version),
        parent=to_storable_text(session.parent),
        subagent=is_child or session.is_subagent,
        call=to_storable_text(session.call_id),
        started=session.started,
        ended=session.ended,
        messages=sum(len(history) for history in (*session.segments, *(branch.history for branch in session.branches))),
        compactions=session.compactions,
        made_by=detect_memory_tool(session),
    )


def _find_companion_files(path: str, sessions: Sequence[Session], began: int) -> Iterator[SourceRecord]:
    """Yield records of the files that were read with this one, and of their folders, where new files may appear."""
    children = [child for session in sessions for child in _descendants(session)]
    other_files = (file for session in (*sessions, *children) for file in session.files)
    files = {*(child.file for child in children), *other_files} - {path}
    folders = {str(Path(file).parent) for file in files} - {str(Path(path).parent)}
    for part in sorted(map(to_storable_text, files | folders)):  # a name that is not text has no record
        stat = read_file_stat(part)
        if stat is not None:
            # If the file may have changed during the read, store an impossible size to read it again.
            seen = stat._replace(size=-1) if stat.mtime_ns >= began else stat
            yield SourceRecord(part, seen, "part", whole=path)


def _descendants(session: Session) -> Iterator[Session]:
    for child in session.children:
        yield child
        yield from _descendants(child)
