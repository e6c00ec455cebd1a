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
from thresher.model import History, Session
from thresher.transcripts.atif.steps import AtifDelegation, AtifStepReader, resolve_file_below
from thresher.transcripts.base import MAX_TITLE_CHARS, SessionFolder, TranscriptFormat, make_session, title_from_prompt
from thresher.transcripts.coerce import as_list, dict_at, first_text, list_at, text_at
from thresher.transcripts.source import SourceFile

NAME = "atif"
MAX_SUBAGENT_DEPTH = 8
"""How far sub-agents of sub-agents are followed."""
_CONTINUATION_ID = re.compile(r"(.+?)-cont-(\d{1,6})")
"""How Harbor's own agent names a run that goes on from another."""


class AtifKin(NamedTuple):
    """Whose sub-agent a run is."""

    parent: str
    call_id: str
    given_id: str
    """What its parent calls it."""
    depth: int
    is_embedded: bool
    """Whether it stands in its parent's file."""


NO_PARENT = AtifKin("", "", "", 0, is_embedded=False)


def _read(source: SourceFile) -> list[Session]:
    """One run, with its sub-agents."""
    document = source.read_document()
    if not _is_run(document):
        raise ReadError(f"`{source.path}` holds no list of `steps`; is it an ATIF trajectory?")
    return [AtifRunReader(source).build_session(source, document)]


def _is_run(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("steps"), list)


class AtifRunReader:
    """A run and its sub-agents; each file is read once."""

    def __init__(self, source: SourceFile) -> None:
        """Begin with the file that was asked for."""
        self._opened_paths = {source.path.resolve()}

    def build_session(self, source: SourceFile, document: dict[str, Any], kin: AtifKin = NO_PARENT) -> Session:
        """One run; `kin` tells of a sub-agent."""
        agent, is_root = dict_at(document, "agent"), kin.depth == 0
        reader = AtifStepReader(source, document, "human" if is_root else "model")
        segments = [History(tuple(segment)) for segment in reader.build_segments()]
        own = () if is_root else (text_at(document, "trajectory_id"),)
        names = (*own, text_at(document, "session_id"), kin.given_id, source.stem)
        id_ = next(name for name in names if name)
        children = tuple(self._read_subagents(source, document, id_, reader.delegations, kin.depth + 1))
        title = (text_at(agent, "name"), title_from_prompt(segments))
        extra = dict_at(agent, "extra") or dict_at(document, "extra")
        return make_session(
            NAME,
            source,
            id_,
            segments,
            children=children,
            problems=() if kin.is_embedded else tuple(source.problems),
            files=tuple(reader.images),
            records=Counter(text_at(step, "source") or "?" for step in list_at(document, "steps")),
            project=text_at(extra, "cwd") or _first_string(extra.get("cwds")),
            git_branch=_first_string(extra.get("git_branches")),
            title=": ".join(filter(None, title))[:MAX_TITLE_CHARS],
            version=text_at(agent, "version"),
            parent=kin.parent or _previous_run_id(id_),
            call_id=kin.call_id,
            times=(message.time for segment in segments for message in segment if not message.carried),
        )

    def _read_subagents(
        self, source: SourceFile, document: dict[str, Any], parent: str, delegated: Sequence[AtifDelegation], depth: int
    ) -> Iterator[Session]:
        """The runs inside the document, and those that its steps name beside it."""
        if depth > MAX_SUBAGENT_DEPTH and (delegated or document.get("subagent_trajectories")):
            what = f"sub-agents of sub-agents, more than {MAX_SUBAGENT_DEPTH} times over"
            source.report(what, "not followed further")
            return
        callers = {text_at(ref, "trajectory_id"): call for ref, call in delegated}
        inside: set[str] = set()
        for number, one in enumerate(list_at(document, "subagent_trajectories"), 1):
            if not _is_run(one):
                source.report("a sub-agent's run has no list of `steps`", "skipped")
                continue
            name = first_text(one, "trajectory_id", "session_id")
            inside.add(name)
            kin = AtifKin(parent, callers.get(name, "") if name else "", f"{parent}-{number}", depth, is_embedded=True)
            yield self.build_session(source, one, kin)
        named = [one for one in delegated if text_at(one.ref, "trajectory_id") not in inside - {""}]
        files = [(one, resolve_file_below(source.path.parent, text_at(one.ref, "trajectory_path"))) for one in named]
        if missing := sum(path is None for _, path in files):
            source.report(f"{missing} runs of sub-agents are neither in the file nor beside it", "left out")
        for one, path in files:
            if path and path not in self._opened_paths:
                yield from self._read_subagent_file(SourceFile(path, source.limits), parent, one, depth)

    def _read_subagent_file(
        self, source: SourceFile, parent: str, one: AtifDelegation, depth: int
    ) -> Iterator[Session]:
        self._opened_paths.add(source.path)
        try:
            document = source.read_document()
        except ReadError:
            document = None
        if _is_run(document):
            kin = AtifKin(parent, one.call_id, text_at(one.ref, "session_id"), depth, is_embedded=False)
            yield self.build_session(source, document, kin)


def _first_string(values: Any) -> str:
    return next((value for value in as_list(values) if isinstance(value, str)), "")


def _previous_run_id(id_: str) -> str:
    """The run that this one goes on from, by its name."""
    found = _CONTINUATION_ID.fullmatch(id_)
    if not found:
        return ""
    return found[1] if int(found[2]) < 2 else f"{found[1]}-cont-{int(found[2]) - 1}"


def _sniff(source: SourceFile) -> int:
    """A document that names its version, or has an agent and numbered steps, each with a source."""
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return 0
    if text_at(document, "schema_version").startswith("ATIF"):
        return 3
    steps = [step for step in document["steps"][:3] if isinstance(step, dict)]
    shaped = any({"step_id", "source", "message"} <= step.keys() for step in steps)
    return 2 if shaped and text_at(document, "agent", "name") else 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Devin's CLI keeps its sessions so; Harbor writes each run into the folder of its job."""
    if sys.platform == "win32":
        root = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        root = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    return [SessionFolder(root / "devin" / "cli" / "transcripts", "*.json")]


FORMAT = TranscriptFormat(
    NAME,
    "ATIF (Harbor)",
    _sniff,
    _read,
    _homes,
    layouts="`trajectory.json` of Harbor's agents; sub-agents inside it or beside it; Devin's CLI",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="ATIF 1.7",
)
