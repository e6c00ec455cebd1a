"""The way through the tree of a Claude Code file: which records are the conversation, and which were left behind."""

from collections.abc import Iterable, Mapping, Sequence

from thresher.model import AbandonedBranch, History
from thresher.transcripts.base import group_branches, trace_path
from thresher.transcripts.claude_code.messages import build_claude_messages, resolve_message_id
from thresher.transcripts.claude_code.records import (
    ClaudeNode,
    answered_call_id,
    record_call_ids,
    record_texts,
)
from thresher.transcripts.coerce import as_text
from thresher.transcripts.source import SourceFile


def linearize_record_tree(
    source: SourceFile,
    nodes: Mapping[str, ClaudeNode],
    main: Sequence[ClaudeNode],
    steering: Sequence[ClaudeNode],
) -> tuple[list[History], list[AbandonedBranch], int]:
    """The segments in order, the branches, and how many segments begin with a compaction.

    The latest record is the leaf; its way to the root is the last segment. Where that root goes on from an
    earlier record, the way to that one's root is the segment before, and so on.
    """
    parents = {node.id: node.parent for node in nodes.values()}
    left = {node.id: node for node in main}
    used: set[str] = set()
    ways: list[list[ClaudeNode]] = []
    strays: _OffPathNodes | None = None
    compactions = 0
    own = (node for node in reversed(main) if not (node.row.isMeta or node.row.teamName))
    leaf = next(own, main[-1] if main else None)
    while leaf is not None:
        ids, cycle = trace_path(leaf.id, parents)
        if cycle:
            source.report("records are each other's parents", "followed until the circle closes", leaf.line)
        way = [left.pop(id_) for id_ in ids if id_ in left]
        if left:
            strays = strays or _OffPathNodes(left.values())
            way = strays.restore_to_path(way, left)
        used.update(ids, (node.id for node in way))
        ways.append(way)
        root = nodes[ids[0]]
        compactions += root.row.subtype == "compact_boundary"
        leaf = _find_previous_leaf(source, root, left, parents)
    ways.reverse()
    unsaid = _place_unrepeated_prompts(steering, ways)
    segments = [
        History(build_claude_messages(sorted([*way, *unsaid[n]], key=_line_number) if n in unsaid else way, source))
        for n, way in enumerate(ways)
    ]
    spoken = {node.id: resolve_message_id(node) for way in ways for node in way} if left else {}
    branches = [
        AbandonedBranch(
            History(build_claude_messages([left[id_] for id_ in ids], source)),
            _find_message_id_before(after, parents, spoken),
        )
        for (after, _), ids in group_branches(list(left), used, parents).items()
    ]
    return segments, branches, compactions


def _line_number(node: ClaudeNode) -> int:
    return node.line


def _find_message_id_before(at: str, parents: Mapping[str, str | None], spoken: Mapping[str, str]) -> str:
    """The id of the message that a record belongs to or follows."""
    return next((spoken[id_] for id_ in reversed(trace_path(at, parents)[0]) if id_ in spoken), "")


def _find_previous_leaf(
    source: SourceFile, root: ClaudeNode, left: Mapping[str, ClaudeNode], parents: Mapping[str, str | None]
) -> ClaudeNode | None:
    """Where the segment before this root ended, if this root goes on from one."""
    boundary = root.row.subtype == "compact_boundary"
    if root.parent is None and not boundary:
        return None
    earlier = [node for node in left.values() if node.line < root.line]
    if root.parent is not None and root.parent not in parents:
        source.report(
            f"the parent {root.parent} of a record is not in this file",
            "taken to go on from what stands before it" if earlier else "taken as the start",
            root.line,
        )
    named = as_text(root.row.logicalParentUuid)
    ids = trace_path(named, parents)[0] if named else []
    return next((left[id_] for id_ in reversed(ids) if id_ in left), earlier[-1] if earlier else None)


class _OffPathNodes:
    """Finds lines that belong to a way though the way does not pass through them.

    Parallel calls fork the tree: each result hangs off its own call's line, and only one of them has successors.
    """

    def __init__(self, nodes: Iterable[ClaudeNode]) -> None:
        self.by_message: dict[str, list[ClaudeNode]] = {}
        self.results_by_call: dict[str, ClaudeNode] = {}
        for node in nodes:
            if node.row.type == "assistant":
                self.by_message.setdefault(as_text(node.row.message.id), []).append(node)
            elif node.row.type == "user" and (call := answered_call_id(node.row.message)):
                self.results_by_call.setdefault(call, node)
        self.by_message.pop("", None)

    def restore_to_path(self, way: list[ClaudeNode], left: dict[str, ClaudeNode]) -> list[ClaudeNode]:
        """The way in the order of the file, with its strays."""
        spoken = [node for node in way if node.row.type == "assistant"]
        ids = dict.fromkeys(as_text(node.row.message.id) for node in spoken)
        strays = [stray for id_ in ids for stray in self.by_message.get(id_, ()) if stray.id in left]
        answered = {answered_call_id(node.row.message) for node in way if node.row.type == "user"}
        asked = (call for node in [*spoken, *strays] for call in record_call_ids(node.row.message))
        results = (self.results_by_call.get(call) for call in asked if call not in answered)
        strays += [node for node in results if node is not None and node.id in left]
        for stray in strays:
            left.pop(stray.id, None)
        return sorted({node.id: node for node in [*way, *strays]}.values(), key=_line_number) if strays else way


def _place_unrepeated_prompts(
    steering: Sequence[ClaudeNode], ways: Sequence[Sequence[ClaudeNode]]
) -> dict[int, list[ClaudeNode]]:
    """Queued prompts that no other record repeats, by the segment they fall into."""
    if not steering or not ways:
        return {}
    said = {text for way in ways for node in way for text in record_texts(node.row)}
    placed: dict[int, list[ClaudeNode]] = {}
    for node in steering:
        if node.row.message.content.strip() not in said:
            ends = (n for n, way in enumerate(ways) if way and way[-1].line > node.line)
            placed.setdefault(next(ends, len(ways) - 1), []).append(node)
    return placed
