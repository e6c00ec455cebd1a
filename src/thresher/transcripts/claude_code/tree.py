"""Split the tree of records in a Claude Code file into the conversation and rewound branches."""

from collections.abc import Iterable, Mapping, Sequence

from thresher.model import AbandonedBranch, History
from thresher.transcripts.base import group_branches, trace_path
from thresher.transcripts.claude_code.messages import build_claude_messages, resolve_message_id
from thresher.transcripts.claude_code.records import ClaudeNode, answered_call_id, record_call_ids, record_texts
from thresher.transcripts.coerce import as_text
from thresher.transcripts.source import SourceFile


def linearize_record_tree(
    source: SourceFile,
    nodes: Mapping[str, ClaudeNode],
    main: Sequence[ClaudeNode],
    steering: Sequence[ClaudeNode],
) -> tuple[list[History], list[AbandonedBranch], int]:
    """Return the segments in order, the branches, and the number of segments that begin with a compaction.

    The path from a root to the latest record is the last segment. If this root continues from an earlier record, the
    path to the earlier record is the previous segment, and so on.
    """
    parents = {node.id: node.parent for node in nodes.values()}
    remaining = {node.id: node for node in main}
    used: set[str] = set()
    paths: list[list[ClaudeNode]] = []
    off_path: _OffPathNodes | None = None
    compactions = 0
    candidates = (node for node in reversed(main) if not (node.row.isMeta or node.row.teamName))
    leaf = next(candidates, main[-1] if main else None)
    while leaf is not None:
        ids, is_cyclic = trace_path(leaf.id, parents)
        if is_cyclic:
            source.report("the parents of records form a cycle", "followed until the first repeated record", leaf.line)
        path = [remaining.pop(id_) for id_ in ids if id_ in remaining]
        if remaining:
            off_path = off_path or _OffPathNodes(remaining.values())
            path = off_path.restore_to_path(path, remaining)
        used.update(ids, (node.id for node in path))
        paths.append(path)
        root = nodes[ids[0]]
        compactions += root.row.subtype == "compact_boundary"
        leaf = _find_previous_leaf(source, root, remaining, parents)
    paths.reverse()
    for n, prompts in _place_unrepeated_prompts(steering, paths).items():
        paths[n] = sorted([*paths[n], *prompts], key=_line_number)
    segments = [History(build_claude_messages(path, source)) for path in paths]
    message_ids = {node.id: resolve_message_id(node) for path in paths for node in path} if remaining else {}
    branches: list[AbandonedBranch] = []
    for (after, _), ids in group_branches(list(remaining), used, parents).items():
        history = History(build_claude_messages([remaining[id_] for id_ in ids], source))
        earlier = reversed(trace_path(after, parents)[0])
        branches.append(AbandonedBranch(history, next((message_ids[id_] for id_ in earlier if id_ in message_ids), "")))
    return segments, branches, compactions


def _line_number(node: ClaudeNode) -> int:
    return node.line


def _find_previous_leaf(
    source: SourceFile, root: ClaudeNode, remaining: Mapping[str, ClaudeNode], parents: Mapping[str, str | None]
) -> ClaudeNode | None:
    """Return the last record of the previous segment, if the root continues from one."""
    if root.parent is None and root.row.subtype != "compact_boundary":
        return None
    earlier = [node for node in remaining.values() if node.line < root.line]
    if root.parent is not None and root.parent not in parents:
        what = f"the parent {root.parent} of a record is not in this file"
        source.report(
            what,
            "linked to an earlier record" if earlier else "read as the start of the session",
            root.line,
        )
    logical_parent = as_text(root.row.logicalParentUuid)
    ids = trace_path(logical_parent, parents)[0] if logical_parent else []
    return next((remaining[id_] for id_ in reversed(ids) if id_ in remaining), earlier[-1] if earlier else None)


class _OffPathNodes:
    """Records outside of a path that may still belong to messages on the path.

    Parallel calls fork the tree. The parent of a result is the line of its call, and only one result has children.
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

    def restore_to_path(self, path: list[ClaudeNode], remaining: dict[str, ClaudeNode]) -> list[ClaudeNode]:
        """Add the missing lines of the messages on a path, and the results of the calls in these messages.

        Return the records in file order.
        """
        assistant_nodes = [node for node in path if node.row.type == "assistant"]
        ids = dict.fromkeys(as_text(node.row.message.id) for node in assistant_nodes)
        restored = [node for id_ in ids for node in self.by_message.get(id_, ()) if node.id in remaining]
        answered = {answered_call_id(node.row.message) for node in path if node.row.type == "user"}
        calls = (call for node in [*assistant_nodes, *restored] for call in record_call_ids(node.row.message))
        results = (self.results_by_call.get(call) for call in calls if call not in answered)
        restored += [node for node in results if node is not None and node.id in remaining]
        for node in restored:
            remaining.pop(node.id, None)
        return sorted({node.id: node for node in [*path, *restored]}.values(), key=_line_number) if restored else path


def _place_unrepeated_prompts(
    steering: Sequence[ClaudeNode], paths: Sequence[Sequence[ClaudeNode]]
) -> dict[int, list[ClaudeNode]]:
    """Return the queued prompts whose text no record on the paths repeats, by the index of their segment."""
    if not steering or not paths:
        return {}
    texts = {text for path in paths for node in path for text in record_texts(node.row)}
    placed: dict[int, list[ClaudeNode]] = {}
    for node in steering:
        if node.row.message.content.strip() not in texts:
            segments = (n for n, path in enumerate(paths) if path and path[-1].line > node.line)
            placed.setdefault(next(segments, len(paths) - 1), []).append(node)
    return placed
