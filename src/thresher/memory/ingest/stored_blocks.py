"""Index blocks that are already in the archive: after an interruption, or to rebuild an index."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from thresher.memory.archive import placement
from thresher.memory.archive.block_codec import flatten_messages, text_size
from thresher.memory.archive.protocol import Archive, BlockRow
from thresher.memory.index.documents import encode_document
from thresher.memory.index.tantivy_index import TantivyIndex
from thresher.memory.ingest.document_builder import attribute_session, build_documents
from thresher.memory.records import MESSAGES_PER_BLOCK

BLOCKS_PER_STEP = 128
"""Minimum number of blocks to index between two checks whether to stop."""


def split_into_steps(missing: Sequence[BlockRow]) -> Iterator[list[BlockRow]]:
    """Split blocks into steps, in the order of their ids, since the index stores only its highest block.

    The archive decodes a whole session to index one of its blocks. So a step ends between two sessions.
    """
    blocks = sorted(missing, key=attrgetter("id"))
    start = 0
    while start < len(blocks):
        end = start + BLOCKS_PER_STEP
        while end < len(blocks) and blocks[end].session == blocks[end - 1].session:
            end += 1
        yield blocks[start:end]
        start = end


def index_step(archive: Archive, index: TantivyIndex, step: Iterable[BlockRow]) -> int:
    """Add the blocks of one step to the index; return the number of characters."""
    rows = sorted(step, key=attrgetter("session", "number"))
    by_session = groupby(rows, key=attrgetter("session"))
    return sum(
        index_stored_blocks(archive, index, key, [(row.number, row.id) for row in blocks]) for key, blocks in by_session
    )


def index_stored_blocks(archive: Archive, index: TantivyIndex, key: int, blocks: Iterable[tuple[int, int]]) -> int:
    """Read blocks of a session, by number and id, and add them to the index; return the number of characters."""
    facts, session = placement.read_session(archive, key, children=False)
    messages, attributed = flatten_messages(session), attribute_session(session)
    characters = 0
    for number, block in blocks:
        documents = build_documents(messages, attributed, number, made_by=facts.made_by)
        index.add_documents(key, block, map(encode_document, documents))
        start = number * MESSAGES_PER_BLOCK
        characters += text_size(messages[start : start + MESSAGES_PER_BLOCK])
    return characters
