"""What the readers of transcripts share: the format's row in the table, times, and the tree of records.

Agents that let a person rewind write a tree: each record names its parent. The conversation is the way from the
latest leaf to its root; what hangs off that way was taken back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from msgspec import Struct

from thresher.model import AbandonedBranch, History, Message, Problem, Session, Usage
from thresher.transcripts.coerce import count_at
from thresher.transcripts.source import SourceFile

MAX_TITLE_CHARS = 120
"""Characters of a title that is made up from a prompt."""


class SessionFolder(NamedTuple):
    """A folder where an agent keeps its sessions, and the glob that finds them in it."""

    folder: Path
    pattern: str
    skip: str = ""
    """Files that belong to another session: a sub-agent's beside its parent's."""
    newer: str = ""
    """What a newer version made of a file: how the name ends that it has now, or a path from the folder it is in."""


Capability = Literal["thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"]
"""What a file may tell beside words, calls and results. `edits`: which file a call changes."""


class TranscriptFormat(Struct, frozen=True):
    """One agent's way of keeping its sessions on disk."""

    name: str
    title: str
    sniff: Callable[[SourceFile], int]
    """How sure it is that a file is in this format: 0 no, 1 could be, 2 likely, 3 certain."""
    read: Callable[[SourceFile], list[Session]]
    homes: Callable[[Mapping[str, str], Path], Sequence[SessionFolder]] = lambda _environment, _home: ()
    """Where its sessions are, by environment and home directory; none where files lie wherever their user put them."""
    resume: str = ""
    """The command that goes on with a session, with `{id}` or `{file}` in it."""
    wire: str = "openai-chat"
    """The API that a session is written for when nothing is said: the one its agent speaks."""
    layouts: str = ""
    """Which of the agent's files are read, in a few words."""
    holds: tuple[Capability, ...] = ()
    """What they tell; each is shown by the format's fixture."""
    seen: str = ""
    """The versions whose files were read."""
    listed: Callable[[SourceFile], Mapping[str, str]] | None = None
    """For a store of many sessions: the id of each, with a mark that changes when the session does. Such a format
    reads only what `source.is_wanted`. A file that is no store has none."""
    kind: Literal["transcript"] = "transcript"


def parse_time(value: Any) -> datetime | None:
    """ISO text, seconds or milliseconds since 1970 to a time with a zone; anything else to None."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


class SessionFacts(TypedDict, total=False):
    """What a format tells of a session beside its messages; each is a field of `Session`."""

    branches: Iterable[AbandonedBranch]
    children: Iterable[Session]
    problems: tuple[Problem, ...]
    spilled: dict[str, str]
    files: tuple[str, ...]
    compactions: int
    records: Mapping[str, int]
    project: str
    git_branch: str
    title: str
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

    Unless the facts say otherwise: every segment but the first begins with a compaction, the problems are all of the
    source's, the title is the first prompt, and the session lasts from the first to the last of `times`, else of the
    messages' times.
    """
    histories = tuple(one if isinstance(one, History) else History(tuple(one)) for one in segments)
    told: dict[str, Any] = {"problems": tuple(source.problems), "compactions": max(len(histories) - 1, 0), **facts}
    found = [message.time for history in histories for message in history] if times is None else times
    known = [*filter(None, found)]
    told = {"started": min(known, default=None), "ended": max(known, default=None)} | told
    told |= {name: tuple(told.get(name, ())) for name in ("branches", "children")}
    told["records"] = dict(told.get("records", {}))
    told["title"] = told["title"] if "title" in told else title_from_prompt(histories)
    return Session(agent, id_, source.file, histories, **told)


def title_from_prompt(histories: Iterable[Iterable[Message]]) -> str:
    """What a person asked first: a title for a session that has none."""
    said = (message for history in histories for message in history if message.author == "human")
    prompts = (message.text.strip() for message in said if message.role == "user")
    return next(filter(None, prompts), "")[:MAX_TITLE_CHARS]


def parse_openai_chat_usage(usage: Any) -> Usage | None:
    """A bill as OpenAI Chat has it, and LiteLLM for all others: what a cache served is a share of the prompt."""
    if not isinstance(usage, dict):
        return None
    return usage_with_cached_input(
        count_at(usage, "prompt_tokens"),
        count_at(usage, "completion_tokens"),
        count_at(usage, "prompt_tokens_details", "cached_tokens") or count_at(usage, "cache_read_input_tokens"),
        count_at(usage, "cache_creation_input_tokens"),
        count_at(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def usage_with_cached_input(given: int, output: int, read: int, written: int = 0, reasoning: int = 0) -> Usage:
    """Usage of a provider whose input includes what its cache served and took."""
    return Usage(max(given - read - written, 0), output, read, written, reasoning=reasoning)


def trace_path(leaf: str, parents: Mapping[str, str | None]) -> tuple[list[str], bool]:
    """The ids from the root down to a leaf, and whether the walk ended in a cycle."""
    way: list[str] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at in parents:
        if at in seen:
            return way[::-1], True
        seen.add(at)
        way.append(at)
        at = parents[at]
    return way[::-1], False


def group_branches(
    left: Sequence[str], used: set[str], parents: Mapping[str, str | None]
) -> dict[tuple[str, str], list[str]]:
    """Group what is off the way by where it left it: (the last id on the way, the first one off it) → ids."""
    tops: dict[str, tuple[str, str]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in left:
        trail: dict[str, None] = {}
        at: str | None = node
        # One that is on the trail already closes a cycle among the records that were left.
        while at is not None and at in parents and at not in used and at not in tops and at not in trail:
            trail[at] = None
            at = parents[at]
        top = tops[at] if at in tops else (at if at in used else "", next(reversed(trail), node))
        for passed in trail:
            tops[passed] = top
        groups.setdefault(top, []).append(node)
    return groups
