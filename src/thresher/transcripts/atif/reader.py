"""ATIF: Harbor's Agent Trajectory Interchange Format, versions 1.0 to 1.7, one JSON document per run.

An agent step is one model call with the results of its tool calls. A result without a call id, such as a terminal's
output, answers the step's last open call. A system step that replaces the context starts a segment. The segment begins
with the step's summary or, if the step has none, with the text of the next user step. Steps copied from an earlier run
become carried messages.

A sub-agent's run is embedded in its parent's document or stored in a file of the same folder. The line of a source
location is the step's number.
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
"""Maximum depth of nested sub-agents."""
_CONTINUATION_ID = re.compile(r"(.+?)-cont-(\d{1,6})")
"""Pattern of the session id that Harbor's own agent gives a run that continues another run."""


class AtifKin(NamedTuple):
    """Relation of a sub-agent's run to its parent."""

    parent: str
    call_id: str
    fallback_id: str
    """Session id to use if the run has no id."""
    depth: int
    is_embedded: bool
    """True if the run is part of its parent's document."""


NO_PARENT = AtifKin("", "", "", 0, is_embedded=False)


def _read(source: SourceFile) -> list[Session]:
    """Read one run with its sub-agents."""
    document = source.read_document()
    if not _is_run(document):
        raise ReadError(f"`{source.path}` has no list of `steps`: is it an ATIF trajectory?")
    return [AtifRunReader(source).build_session(source, document)]


def _is_run(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("steps"), list)


class AtifRunReader:
    """Reader of a run and its sub-agents. Reads each file only once."""

    def __init__(self, source: SourceFile) -> None:
        """Mark the file of the main run as opened."""
        self._opened_paths = {source.path.resolve()}

    def build_session(self, source: SourceFile, document: dict[str, Any], kin: AtifKin = NO_PARENT) -> Session:
        """Build the session of one run; `kin` links a sub-agent to its parent."""
        agent, is_root = dict_at(document, "agent"), kin.depth == 0
        reader = AtifStepReader(source, document, "human" if is_root else "model")
        segments = [History(tuple(segment)) for segment in reader.build_segments()]
        own_id = "" if is_root else text_at(document, "trajectory_id")
        names = (own_id, text_at(document, "session_id"), kin.fallback_id, source.stem)
        id_ = next(filter(None, names))
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
        """Yield the sessions of embedded sub-agents, then the sessions in files that the steps reference."""
        if depth > MAX_SUBAGENT_DEPTH and (delegated or document.get("subagent_trajectories")):
            source.report(
                f"sub-agents are nested more than {MAX_SUBAGENT_DEPTH} levels deep", "deeper sub-agents are skipped"
            )
            return
        callers = {text_at(ref, "trajectory_id"): call for ref, call in delegated}
        embedded: set[str] = set()
        for number, run in enumerate(list_at(document, "subagent_trajectories"), 1):
            if not _is_run(run):
                source.report("a sub-agent's run has no list of `steps`", "skipped")
                continue
            name = first_text(run, "trajectory_id", "session_id")
            embedded.add(name)
            kin = AtifKin(parent, callers.get(name, "") if name else "", f"{parent}-{number}", depth, is_embedded=True)
            yield self.build_session(source, run, kin)
        external = [
            delegation for delegation in delegated if text_at(delegation.ref, "trajectory_id") not in embedded - {""}
        ]
        folder = source.path.parent
        files = [
            (ref, call_id, resolve_file_below(folder, text_at(ref, "trajectory_path"))) for ref, call_id in external
        ]
        if missing := sum(path is None for _, _, path in files):
            source.report(f"{missing} sub-agent runs are not in the file or its folder", "skipped")
        for ref, call_id, path in files:
            if path and path not in self._opened_paths:
                kin = AtifKin(parent, call_id, text_at(ref, "session_id"), depth, is_embedded=False)
                yield from self._read_subagent_file(SourceFile(path, source.limits), kin)

    def _read_subagent_file(self, source: SourceFile, kin: AtifKin) -> Iterator[Session]:
        self._opened_paths.add(source.path)
        try:
            document = source.read_document()
        except ReadError:
            return
        if _is_run(document):
            yield self.build_session(source, document, kin)


def _first_string(values: Any) -> str:
    return next((value for value in as_list(values) if isinstance(value, str)), "")


def _previous_run_id(id_: str) -> str:
    """Return the id of the run that the run `id_` continues, or an empty string."""
    match = _CONTINUATION_ID.fullmatch(id_)
    if not match:
        return ""
    return match[1] if int(match[2]) < 2 else f"{match[1]}-cont-{int(match[2]) - 1}"


def _sniff(source: SourceFile) -> int:
    """Match a document with an ATIF `schema_version`, or one with an agent's name and steps in ATIF's schema."""
    document = source.document
    if not _is_run(document):
        return 0
    if text_at(document, "schema_version").startswith("ATIF"):
        return 3
    steps = [step for step in document["steps"][:3] if isinstance(step, dict)]
    has_steps = any({"step_id", "source", "message"} <= step.keys() for step in steps)
    return 2 if has_steps and text_at(document, "agent", "name") else 0


def find_atif_homes(environment: Mapping[str, str], home: Path, platform: str = "") -> list[SessionFolder]:
    """Return the session folder of Devin's CLI. Harbor has no such folder: it writes each run to a job's folder."""
    if (platform or sys.platform) == "win32":
        root = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        root = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    return [SessionFolder(root / "devin" / "cli" / "transcripts", "*.json")]


FORMAT = TranscriptFormat(
    NAME,
    "ATIF (Harbor)",
    _sniff,
    _read,
    find_atif_homes,
    layouts="`trajectory.json` of Harbor's agents; sub-agents inside it or next to it; Devin's CLI",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="ATIF 1.7",
)
