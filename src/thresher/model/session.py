"""A session: a conversation on disk with its metadata.

A compaction does not end a session. It starts a new segment, in which the model continues from a summary. `segments`
holds all segments in order; `history` is the last segment, the context of the next model call. `branches` holds rewound
work, `children` the sub-agents' sessions.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from thresher.model.history import History
from thresher.model.message import Message
from thresher.model.turns import is_prompt


class Problem(Struct, frozen=True, gc=False):
    """An error or oddity in the input, and how it was handled."""

    what: str
    done: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{location}{self.what}; {self.done}"


class AbandonedBranch(Struct, frozen=True):
    """Messages that the user abandoned by rewinding the session."""

    history: History
    after_message_id: str = ""
    """Id of the message before the branch; empty if the branch starts the session."""


class Session(Struct, frozen=True):
    """One conversation as an agent recorded it."""

    agent: str
    id: str
    file: str
    segments: tuple[History, ...] = ()
    branches: tuple[AbandonedBranch, ...] = ()
    children: tuple["Session", ...] = ()
    problems: tuple[Problem, ...] = ()
    spilled: dict[str, str] = {}
    """Files with the complete output of tool calls, by call id, where the transcript holds only the beginning."""
    files: tuple[str, ...] = ()
    """Additional files that the session was read from, without the children's files."""
    compactions: int = 0
    """Number of compactions."""
    records: dict[str, int] = {}
    """Number of records of each kind in the file, including those outside the conversation."""
    project: str = ""
    """The working directory."""
    git_branch: str = ""
    title: str = ""
    version: str = ""
    """Version of the agent."""
    parent: str = ""
    """Id of the session that started this one, or that this one forks or continues."""
    call_id: str = ""
    """Id of the parent's tool call that started this sub-agent, if known."""
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def is_subagent(self) -> bool:
        """True if a tool call started this session: the transcript names the call, or a model wrote the first prompt.

        Forks and continuations also have a parent.
        """
        first = next(filter(is_prompt, self.messages()), None)
        is_prompted_by_model = first is not None and first.author == "model"
        return bool(self.call_id) or (bool(self.parent) and is_prompted_by_model)

    @property
    def history(self) -> History:
        """The last segment, which is the context of the next model call."""
        return self.segments[-1] if self.segments else History()

    def messages(self, *, branches: bool = False) -> Iterator[Message]:
        """Yield every message once, in order; with `branches`, also yield those of abandoned branches at the end."""
        for segment in self.segments:
            yield from (message for message in segment if not message.carried)
        if branches:
            for branch in self.branches:
                yield from branch.history
