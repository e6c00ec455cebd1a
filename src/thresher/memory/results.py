"""Result types of search and recall: sessions in ranking order, each with its best messages."""

from datetime import datetime

from msgspec import Struct


class SearchHit(Struct, frozen=True):
    """One matching message with the snippet to show."""

    role: str
    """Role of the message: `user` or `assistant`."""
    author: str
    """Actual author: human, model, tool, harness or recall."""
    kind: str
    """Kind of the text: human, agent, thinking, summary, input, commands, edits or output."""
    text: str
    """Snippet, one third before the best match and two thirds after it. Secrets are redacted."""
    marks: tuple[tuple[int, int], ...]
    """Start and end of each match in `text`."""
    at: int
    """Index of the message in the session, from 0, for `thresher show ID --around AT`."""
    line: int
    """Line in the file; 0 if the format is not line-based."""
    time: datetime | None
    score: float
    cut: tuple[bool, bool] = (False, False)
    """Flags for more text before and after the snippet."""


class SessionHit(Struct, frozen=True):
    """One matching session. Other sessions of its family appear only as ids."""

    id: str
    agent: str
    project: str
    branch: str
    title: str
    file: str
    line: int
    """Line of the best hit."""
    score: float
    matches: int
    """Number of matching messages."""
    time: datetime | None
    """Time of the last activity."""
    hits: tuple[SearchHit, ...]
    family: tuple[str, ...] = ()
    """Ids of other matching sessions in its family: forks, continuations and sub-agents."""
    parent: str = ""
    """Id of the parent session if this is a sub-agent."""
    gone: bool = False
    """The source file is gone, so the result comes from the archive."""
    resume: str = ""
    """Command that resumes the session in its agent, if available."""


class SearchResults(Struct, frozen=True):
    """One page of search results, with counts of excluded matches."""

    query: str
    sessions: tuple[SessionHit, ...]
    found: int
    """Number of matching sessions on all pages."""
    page: int = 1
    more: bool = False
    """True if there is a next page."""
    excluded: dict[str, int] = {}
    """Number of excluded matches by reason."""
    notes: tuple[str, ...] = ()
    """Notes for the user, for example that another sync is running or that no text contains a query word."""


class Excerpt(SearchHit, frozen=True):
    """A relevant passage of one session."""

    tokens: int = 0
    """Estimated tokens, including the citation."""


class RecallResult(Struct, frozen=True):
    """Answer to a question from one session."""

    session: SessionHit
    question: str
    excerpts: tuple[Excerpt, ...]
    """Excerpts in session order."""
    tokens: int
    answer: str = ""
    """Answer of the configured model, with citations like [12]; empty without a model."""
    found: bool = True
    """False if the session contains no answer."""
