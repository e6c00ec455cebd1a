"""What a search gives back, as plain values: sessions in order, each with its best messages and where they stand."""

from datetime import datetime

from msgspec import Struct


class SearchHit(Struct, frozen=True):
    """One matching message, as far as it is shown."""

    role: str
    """`user` or `assistant`, as the message has it."""
    author: str
    """Who really wrote it: human, model, tool, harness, recall."""
    kind: str
    """What the words are: human, agent, thinking, summary, input, commands, output."""
    text: str
    """A third of it before the best match, two thirds after; secrets are redacted."""
    marks: tuple[tuple[int, int], ...]
    """Where in the text the words stand."""
    at: int
    """Which message of the session it is, counted from 0: `thresher show ID --around AT`."""
    line: int
    """Its line in the file; 0 where the format has no lines."""
    time: datetime | None
    score: float
    cut: tuple[bool, bool] = (False, False)
    """Whether there is more before, and after."""


class SessionHit(Struct, frozen=True):
    """One session that matches; others of its family are named, not listed."""

    id: str
    agent: str
    project: str
    branch: str
    title: str
    file: str
    line: int
    """Of the best hit."""
    score: float
    matches: int
    """How many of its messages match."""
    time: datetime | None
    """When it last went on."""
    hits: tuple[SearchHit, ...]
    family: tuple[str, ...] = ()
    """Ids of other sessions of its family that match too: forks, continuations, sub-agents."""
    parent: str = ""
    """Whose sub-agent it is."""
    gone: bool = False
    """The agent has deleted its file; what is shown comes from the archive."""
    resume: str = ""
    """The command that goes on with it in its agent, if there is one."""


class SearchResults(Struct, frozen=True):
    """What was found, and what was left out."""

    query: str
    sessions: tuple[SessionHit, ...]
    found: int
    """How many sessions match in all; `page` says which of them these are."""
    page: int = 1
    more: bool = False
    """There is another page."""
    excluded: dict[str, int] = {}
    """Why messages were left out that match too → how many."""
    notes: tuple[str, ...] = ()
    """What a person should know: that another sync is at work, that a word of the query is nowhere."""


class Excerpt(SearchHit, frozen=True):
    """A piece of one session that bears on a question."""

    tokens: int = 0
    """What it weighs, with its citation."""


class RecallResult(Struct, frozen=True):
    """What one session says about a question."""

    session: SessionHit
    question: str
    excerpts: tuple[Excerpt, ...]
    """In the order of the session."""
    tokens: int
    answer: str = ""
    """A model's, with citations like [12]; empty where none is configured."""
    found: bool = True
    """False: the session does not speak of it."""
