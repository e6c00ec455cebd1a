"""The way through the tree of a Claude Code file: which records are the conversation, and which were left behind."""

from collections.abc import Iterable, Mapping, Sequence

from thresher.formats.claude_messages import message_id, messages_of
from thresher.formats.claude_rows import Node, answered_call, calls_of, texts_of
from thresher.formats.loose import text as text_or_empty
from thresher.formats.source import SourceFile
from thresher.formats.transcript import group_branches, way_to_root
from thresher.model import Branch, History


def conversation(
    source: SourceFile, nodes: Mapping[str, Node], main: Sequence[Node], steering: Sequence[Node]
) -> tuple[list[History], list[Branch], int]:
    """The segments in order, the branches, and how many segments begin with a compaction.

    The latest record is the leaf; its way to the root is the last segment. Where that root goes on from an
    earlier record, the way to that one's root is the segment before, and so on.
    """
    parents = {node.id: node.parent for node in nodes.values()}
    left = {node.id: node for node in main}
    used: set[str] = set()
    ways: list[list[Node]] = []
    strays: _Strays | None = None
    compactions = 0
    own = (node for node in reversed(main) if not (node.row.isMeta or node.row.teamName))
    leaf = next(own, main[-1] if main else None)
    while leaf is not None:
        ids, cycle = way_to_root(leaf.id, parents)
        if cycle:
            source.problem("records are each other's parents", "followed until the circle closes", leaf.line)
        way = [left.pop(id_) for id_ in ids if id_ in left]
        if left:
            strays = strays or _Strays(left.values())
            way = strays.bring_back(way, left)
        used.update(ids, (node.id for node in way))
        ways.append(way)
        root = nodes[ids[0]]
        compactions += root.row.subtype == "compact_boundary"
        leaf = _leaf_before(source, root, left, parents)
    ways.reverse()
    unsaid = _unsaid(steering, ways)
    segments = [
        History(messages_of(sorted([*way, *unsaid[n]], key=_line) if n in unsaid else way, source))
        for n, way in enumerate(ways)
    ]
    spoken = {node.id: message_id(node) for way in ways for node in way} if left else {}
    branches = [
        Branch(History(messages_of([left[id_] for id_ in ids], source)), _message_before(after, parents, spoken))
        for (after, _), ids in group_branches(list(left), used, parents).items()
    ]
    return segments, branches, compactions


def _line(node: Node) -> int:
    return node.line


def _message_before(at: str, parents: Mapping[str, str | None], spoken: Mapping[str, str]) -> str:
    """The id of the message that a record belongs to or follows."""
    return next((spoken[id_] for id_ in reversed(way_to_root(at, parents)[0]) if id_ in spoken), "")


def _leaf_before(
    source: SourceFile, root: Node, left: Mapping[str, Node], parents: Mapping[str, str | None]
) -> Node | None:
    """Where the segment before this root ended, if this root goes on from one."""
    boundary = root.row.subtype == "compact_boundary"
    if root.parent is None and not boundary:
        return None
    earlier = [node for node in left.values() if node.line < root.line]
    if root.parent is not None and root.parent not in parents:
        source.problem(
            f"the parent {root.parent} of a record is not in this file",
            "taken to go on from what stands before it" if earlier else "taken as the start",
            root.line,
        )
    named = text_or_empty(root.row.logicalParentUuid)
    ids = way_to_root(named, parents)[0] if named else []
    return next((left[id_] for id_ in reversed(ids) if id_ in left), earlier[-1] if earlier else None)


class _Strays:
    """Finds lines that belong to a way though the way does not pass through them.

    Parallel calls fork the tree: each result hangs off its own call's line, and only one of them has successors.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_message: dict[str, list[Node]] = {}
        self.by_call: dict[str, Node] = {}
        for node in nodes:
            if node.row.type == "assistant":
                self.by_message.setdefault(text_or_empty(node.row.message.id), []).append(node)
            elif node.row.type == "user" and (call := answered_call(node.row.message)):
                self.by_call.setdefault(call, node)
        self.by_message.pop("", None)

    def bring_back(self, way: list[Node], left: dict[str, Node]) -> list[Node]:
        """The way in the order of the file, with its strays."""
        spoken = [node for node in way if node.row.type == "assistant"]
        ids = dict.fromkeys(text_or_empty(node.row.message.id) for node in spoken)
        strays = [stray for id_ in ids for stray in self.by_message.get(id_, ()) if stray.id in left]
        answered = {answered_call(node.row.message) for node in way if node.row.type == "user"}
        asked = (call for node in [*spoken, *strays] for call in calls_of(node.row.message))
        results = (self.by_call.get(call) for call in asked if call not in answered)
        strays += [node for node in results if node is not None and node.id in left]
        for stray in strays:
            left.pop(stray.id, None)
        return sorted({node.id: node for node in [*way, *strays]}.values(), key=_line) if strays else way


def _unsaid(steering: Sequence[Node], ways: Sequence[Sequence[Node]]) -> dict[int, list[Node]]:
    """Queued prompts that no other record repeats, by the segment they fall into."""
    if not steering or not ways:
        return {}
    said = {text for way in ways for node in way for text in texts_of(node.row)}
    placed: dict[int, list[Node]] = {}
    for node in steering:
        if node.row.message.content.strip() not in said:
            ends = (n for n, way in enumerate(ways) if way and way[-1].line > node.line)
            placed.setdefault(next(ends, len(ways) - 1), []).append(node)
    return placed
