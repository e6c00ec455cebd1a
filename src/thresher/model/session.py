"""A session: a conversation on disk, with its facts.

A compaction does not end a session, it begins a new segment: the model starts again from a summary. So a session
is a row of segments; `history` is the last, what the model would see next. Work that was rewound is kept in
`branches`, the work of sub-agents in `children`.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from thresher.model.history import History
from thresher.model.message import Message
from thresher.model.turns import is_prompt


class Problem(Struct, frozen=True, gc=False):
    """Something that was not as it should be, and what was done about it."""

    what: str
    done: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.what}; {self.done}"


class AbandonedBranch(Struct, frozen=True):
    """A way the conversation went and was taken back from."""

    history: History
    after_message_id: str = ""
    """The id of the message it left from; empty at the very start."""


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
    """Tool call → the file that holds its whole output, where the transcript has only its beginning."""
    files: tuple[str, ...] = ()
    """Other files that it was read from, its children's aside."""
    compactions: int = 0
    """How often the conversation was replaced by a summary."""
    records: dict[str, int] = {}
    """How many records of each kind the file holds, those that are no part of the conversation too."""
    project: str = ""
    """The working directory."""
    git_branch: str = ""
    title: str = ""
    version: str = ""
    """The agent's version."""
    parent: str = ""
    """The session that this one was started by, forked from, or goes on from."""
    call_id: str = ""
    """The parent's tool call that started it, for a sub-agent."""
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def is_subagent(self) -> bool:
        """Whether a call of its parent started it: told, or since a model wrote its first prompt.

        Forks and continuations have a parent, too.
        """
        first = next(filter(is_prompt, self.messages()), None)
        is_given = first is not None and first.author == "model"
        return bool(self.call_id) or (bool(self.parent) and is_given)

    @property
    def history(self) -> History:
        """What the model would see next."""
        return self.segments[-1] if self.segments else History()

    def messages(self, *, branches: bool = False) -> Iterator[Message]:
        """Every message once, in order; with `branches`, the abandoned ones after them."""
        for segment in self.segments:
            yield from (message for message in segment if not message.carried)
        if branches:
            for branch in self.branches:
                yield from branch.history
