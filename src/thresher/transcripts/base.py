"""Shared parts of the transcript readers: the description of a format, times, usage, and the tree of records.

Agents that let a person rewind write a tree: each record names its parent. The conversation is the path from the root
to the latest leaf. Records off that path were rewound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from msgspec import Struct

from thresher.model import AbandonedBranch, History, Message, Problem, Session, Usage
from thresher.transcripts.coerce import as_dict, bounded_time, count_at
from thresher.transcripts.source import SourceFile

MAX_TITLE_CHARS = 120
"""Maximum length of a title derived from a prompt."""


class SessionFolder(NamedTuple):
    """A folder where an agent keeps its sessions, and the glob that matches their files."""

    folder: Path
    pattern: str
    skip: str = ""
    """Glob for file names to ignore. These files belong to another session, such as a sub-agent's file."""
    newer: str = ""
    """Suffix of a newer version of a matching file, or its path relative to the matching file's folder.

    If the newer version exists, `discover` ignores the matching file.
    """


Capability = Literal["thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"]
"""A kind of fact that a format can record besides text, tool calls and results.

`edits` means that tool calls name the files that they change.
"""


class TranscriptFormat(Struct, frozen=True):
    """An agent's file format for sessions."""

    name: str
    title: str
    sniff: Callable[[SourceFile], int]
    """Score how well a file matches this format: 0 no, 1 possible, 2 likely, 3 certain."""
    read: Callable[[SourceFile], list[Session]]
    homes: Callable[[Mapping[str, str], Path], Sequence[SessionFolder]] = lambda _environment, _home: ()
    """Return the agent's session folders, given the environment variables and the home directory.

    The result is empty if users choose the location of each file.
    """
    resume: str = ""
    """Command that resumes a session, with `{id}` or `{file}` in it; empty if the agent has none."""
    wire: str = "openai-chat"
    """Dialect of the agent's requests. It is the default dialect when a session of the agent is converted."""
    layouts: str = ""
    """Short description of the file layouts that the reader supports."""
    holds: tuple[Capability, ...] = ()
    """Facts that files of this format record. The format's fixture has an example of each fact."""
    seen: str = ""
    """Agent versions whose files the reader was tested with."""
    listed: Callable[[SourceFile], Mapping[str, str]] | None = None
    """Map each session id in a database to a version mark that changes with the session.

    The reader of a format with this function reads only the sessions that `source.is_wanted` accepts. A format
    without databases has None.
    """
    owns_line: Callable[[Any], bool] = lambda _row: False
    """Return whether a decoded line is a record of this format, for line-based formats.

    If another format owns a few lines of a file, the other lines decide how the file is read.
    """
    kind: Literal["transcript"] = "transcript"


def parse_time(value: Any) -> datetime | None:
    """Parse ISO 8601 text, or a number of seconds or milliseconds since 1970. Return None for any other value.

    The result has a time zone, which is UTC if the text has none. A time that some time zone cannot represent is None.
    """
    try:
        if isinstance(value, str):
            return bounded_time(datetime.fromisoformat(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return bounded_time(datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC))
    except (ValueError, OverflowError, OSError):
        pass
    return None


class SessionFacts(TypedDict, total=False):
    """Fields of `Session` that a reader sets in addition to the messages."""

    branches: Iterable[AbandonedBranch]
    children: Iterable[Session]
    problems: tuple[Problem, ...]
    spilled: dict[str, str]
    files: tuple[str, ...]
    compactions: int
    records: Mapping[str, int]
    project: str
    git_branch: str
    title: str | None
    version: str
    parent: str
    call_id: str
    started: datetime | None
    ended: datetime | None


def make_session(
    agent: str,
    source: SourceFile,
    id_: str,
    segments: Iterable[Iterable[Message]],
    times: Iterable[datetime | None] | None = None,
    **facts: Unpack[SessionFacts],
) -> Session:
    """Build a session from the messages of its segments.

    A fact that is not passed gets a default. By default, each segment after the first counts as one compaction, the
    problems are the problems of `source`, and the title is the first prompt. The session starts at the earliest of
    `times` and ends at the latest. If `times` is None, the times of the messages count.
    """
    histories = tuple(messages if isinstance(messages, History) else History(tuple(messages)) for messages in segments)
    if times is None:
        times = (message.time for history in histories for message in history)
    known_times = [*filter(None, times)]
    fields: dict[str, Any] = {
        "problems": tuple(source.problems),
        "compactions": max(len(histories) - 1, 0),
        "started": min(known_times, default=None),
        "ended": max(known_times, default=None),
        **facts,
    }
    fields |= {name: tuple(fields.get(name, ())) for name in ("branches", "children")}
    fields["records"] = dict(fields.get("records", {}))
    if fields.get("title") is None:
        fields["title"] = title_from_prompt(histories)
    return Session(agent, id_, source.file, histories, **fields)


def title_from_prompt(histories: Iterable[Iterable[Message]]) -> str:
    """Return the first prompt of a person, truncated, as a default title."""
    messages = (message for history in histories for message in history if message.author == "human")
    prompts = (message.text.strip() for message in messages if message.role == "user")
    return next(filter(None, prompts), "")[:MAX_TITLE_CHARS]


def parse_openai_chat_usage(usage: Any) -> Usage | None:
    """Parse a usage object of OpenAI Chat, or of LiteLLM for any provider. The prompt count includes cached tokens."""
    if not isinstance(usage, dict):
        return None
    return usage_with_cached_input(
        count_at(usage, "prompt_tokens"),
        count_at(usage, "completion_tokens"),
        count_at(usage, "prompt_tokens_details", "cached_tokens") or count_at(usage, "cache_read_input_tokens"),
        count_at(usage, "cache_creation_input_tokens"),
        count_at(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def parse_chat_usage(usage: Any) -> Usage | None:
    """Parse a usage object with `input_tokens`, or a usage object of OpenAI Chat."""
    if "input_tokens" in as_dict(usage):
        return Usage(count_at(usage, "input_tokens"), count_at(usage, "output_tokens"))
    return parse_openai_chat_usage(usage)


def usage_with_cached_input(given: int, output: int, read: int, written: int = 0, reasoning: int = 0) -> Usage:
    """Return the usage of a provider whose input count includes cache reads and writes."""
    return Usage(max(given - read - written, 0), output, read, written, reasoning=reasoning)


def trace_path(leaf: str, parents: Mapping[str, str | None]) -> tuple[list[str], bool]:
    """Return the ids from the root to a leaf, and whether the parents form a cycle."""
    path: dict[str, None] = {}
    id_: str | None = leaf
    while id_ is not None and id_ in parents and id_ not in path:
        path[id_] = None
        id_ = parents[id_]
    return [*reversed(path)], id_ in path


def group_branches(
    ids: Sequence[str], on_path: set[str], parents: Mapping[str, str | None]
) -> dict[tuple[str, str], list[str]]:
    """Group the ids that are not on the path by branch.

    The key of a branch is a pair: the id on the path where the branch starts (empty if there is none), and the first id
    of the branch.
    """
    branch_points: dict[str, tuple[str, str]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in ids:
        trail: dict[str, None] = {}
        id_: str | None = node
        # If an id is already on the trail, the parents form a cycle.
        while (
            id_ is not None and id_ in parents and id_ not in on_path and id_ not in branch_points and id_ not in trail
        ):
            trail[id_] = None
            id_ = parents[id_]
        if id_ in branch_points:
            point = branch_points[id_]
        else:
            point = (id_ if id_ in on_path else "", next(reversed(trail), node))
        branch_points |= dict.fromkeys(trail, point)
        groups.setdefault(point, []).append(node)
    return groups
