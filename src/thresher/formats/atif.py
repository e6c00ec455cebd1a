"""ATIF, Harbor's Agent Trajectory Interchange Format: one JSON document a run of any agent, from version 1.0 to 1.7.

A step of the agent is one model call with its results. What ran in a terminal may answer several calls at once, and
names none of them: it is taken for the answer of the last. A system step may say that it replaces the context: a new
segment begins, with the summary that it shows, or with the next words of the user's role where it shows none. Steps
that were copied from an earlier run are carried, not said again.

Sub-agents are documents inside the document, or files beside it. A document has no lines: a message's place is the
number of its step.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from thresher.errors import ReadError
from thresher.formats.atif_steps import Delegated, Reader, below
from thresher.formats.loose import at, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, first_prompt
from thresher.model import History, Session

NAME = "atif"
DEEPEST = 8
"""How far sub-agents of sub-agents are followed."""
_CONTINUED = re.compile(r"(.+?)-cont-(\d{1,6})")
"""How Harbor's own agent names a run that goes on from another."""


class Kin(NamedTuple):
    """Whose sub-agent a run is."""

    parent: str
    call_id: str
    id: str
    """What its parent calls it."""
    depth: int
    is_inside: bool
    """Whether it stands in its parent's file."""


ROOT = Kin("", "", "", 0, is_inside=False)


def read(source: SourceFile) -> list[Session]:
    """One run, with its sub-agents."""
    document = source.take_document()
    if not _is_run(document):
        raise ReadError(f"`{source.path}` holds no list of `steps`; is it an ATIF trajectory?")
    return [Family(source).session(source, document)]


def _is_run(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("steps"), list)


class Family:
    """A run and its sub-agents; each file is read once."""

    def __init__(self, source: SourceFile) -> None:
        """Begin with the file that was asked for."""
        self._opened = {source.path.resolve()}

    def session(self, source: SourceFile, document: dict[str, Any], kin: Kin = ROOT) -> Session:
        """One run; `kin` tells of a sub-agent."""
        agent, is_root = fields(document.get("agent")), kin.depth == 0
        reader = Reader(source, document, "human" if is_root else "model")
        segments = [History(tuple(segment)) for segment in reader.segments()]
        own = () if is_root else (text(document.get("trajectory_id")),)
        names = (*own, text(document.get("session_id")), kin.id, source.path.name.split(".")[0])
        id_ = next(name for name in names if name)
        children = tuple(self._children(source, document, id_, reader.delegated, kin.depth + 1))
        times = [message.time for segment in segments for message in segment if message.time and not message.carried]
        title = (text(agent.get("name")), first_prompt(segments))
        extra = fields(agent.get("extra")) or fields(document.get("extra"))
        return Session(
            agent=NAME,
            id=id_,
            file=str(source.path),
            segments=tuple(segments),
            children=children,
            problems=() if kin.is_inside else tuple(source.problems),
            files=tuple(reader.images),
            compactions=len(segments) - 1,
            records=dict(Counter(text(fields(step).get("source")) or "?" for step in items(document.get("steps")))),
            project=text(extra.get("cwd")) or _first(extra.get("cwds")),
            git_branch=_first(extra.get("git_branches")),
            title=": ".join(filter(None, title))[:TITLE],
            version=text(agent.get("version")),
            parent=kin.parent or _continued(id_),
            call_id=kin.call_id,
            started=min(times, default=None),
            ended=max(times, default=None),
        )

    def _children(
        self, source: SourceFile, document: dict[str, Any], parent: str, delegated: Sequence[Delegated], depth: int
    ) -> Iterator[Session]:
        """The runs inside the document, and those that its steps name beside it."""
        if depth > DEEPEST and (delegated or document.get("subagent_trajectories")):
            source.problem(f"sub-agents of sub-agents, more than {DEEPEST} times over", "not followed further")
            return
        callers = {text(ref.get("trajectory_id")): call for ref, call in delegated}
        inside: set[str] = set()
        for number, one in enumerate(items(document.get("subagent_trajectories")), 1):
            if not _is_run(one):
                source.problem("a sub-agent's run has no list of `steps`", "skipped")
                continue
            name = text(one.get("trajectory_id")) or text(one.get("session_id"))
            inside.add(name)
            kin = Kin(parent, callers.get(name, "") if name else "", f"{parent}-{number}", depth, is_inside=True)
            yield self.session(source, one, kin)
        named = [one for one in delegated if text(one.ref.get("trajectory_id")) not in inside - {""}]
        files = [(one, below(source.path.parent, text(one.ref.get("trajectory_path")))) for one in named]
        missing = sum(path is None for _, path in files)
        if missing:
            source.problem(f"{missing} runs of sub-agents are neither in the file nor beside it", "left out")
        for one, path in files:
            if path and path not in self._opened:
                yield from self._beside(SourceFile(path, source.limits), parent, one, depth)

    def _beside(self, source: SourceFile, parent: str, one: Delegated, depth: int) -> Iterator[Session]:
        self._opened.add(source.path)
        try:
            document = source.take_document()
        except ReadError:
            document = None
        if _is_run(document):
            kin = Kin(parent, one.call_id, text(one.ref.get("session_id")), depth, is_inside=False)
            yield self.session(source, document, kin)


def _first(values: Any) -> str:
    return next((value for value in items(values) if isinstance(value, str)), "")


def _continued(id_: str) -> str:
    """The run that this one goes on from, by its name."""
    found = _CONTINUED.fullmatch(id_)
    if not found:
        return ""
    return found[1] if int(found[2]) < 2 else f"{found[1]}-cont-{int(found[2]) - 1}"


def sniff(source: SourceFile) -> int:
    """A document that names its version, or has an agent and numbered steps, each with a source."""
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return 0
    if text(document.get("schema_version")).startswith("ATIF"):
        return 3
    steps = [step for step in document["steps"][:3] if isinstance(step, dict)]
    shaped = any({"step_id", "source", "message"} <= step.keys() for step in steps)
    return 2 if shaped and text(at(document, "agent", "name")) else 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """Devin's CLI keeps its sessions so; Harbor writes each run into the folder of its job."""
    if sys.platform == "win32":
        root = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        root = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    return [Home(root / "devin" / "cli" / "transcripts", "*.json")]


FORMAT = TranscriptFormat(
    NAME,
    "ATIF (Harbor)",
    sniff,
    read,
    homes,
    layouts="`trajectory.json` of Harbor's agents; sub-agents inside it or beside it; Devin's CLI",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="ATIF 1.7",
)
