"""Result types of search and recall: sessions in ranking order, each with its best messages."""

from datetime import datetime

from msgspec import Struct


class SearchHit(Struct, frozen=True):
    """One matching message with the snippet to show."""

    role: str
    """Role of the message: `system`, `user`, `assistant` or `tool`."""
    author: str
    """Actual author: human, model, tool, harness or recall."""
    kind: str
    """Kind of the text: human, agent, thinking, summary, input, commands, edits or output."""
    text: str
    """Snippet around the best match. Secrets are redacted unless the caller asked to reveal them."""
    marks: tuple[tuple[int, int], ...]
    """Start and end of each match in `text`."""
    at: int
    """Index of the message in the session, from 0, for `thresher show ID --around AT`."""
    line: int
    """Line in the file; 0 if the format is not line-based."""
    time: datetime | None
    score: float
    cut: tuple[bool, bool] = (False, False)
    """Two flags: the first is True if text precedes the snippet, the second if text follows it."""


class SessionHit(Struct, frozen=True):
    """One matching session. Other sessions of its family appear only as ids."""

    id: str
    agent: str
    project: str
    branch: str
    title: str
    file: str
    line: int
    """Line of the best hit in the file; 0 if the format is not line-based."""
    score: float
    matches: int
    """Number of matching messages."""
    time: datetime | None
    """Time of the last activity."""
    hits: tuple[SearchHit, ...]
    family: tuple[str, ...] = ()
    """Ids of the other matching sessions in this session's family: forks, continuations and sub-agents."""
    parent: str = ""
    """Id of the parent session if this is a sub-agent whose parent is not archived."""
    subagent: str = ""
    """Id of the sub-agent that contains the hits, if the session itself does not. `file`, `line` and the indexes of the
    hits then refer to the sub-agent; everything else describes the session that started it."""
    gone: bool = False
    """True if the archive has the only copy of the session."""
    resume: str = ""
    """Command that resumes the session in its agent, if available."""

    @property
    def cited_id(self) -> str:
        """Id under which `show` and `recall` find the hits."""
        return self.subagent or self.id


class SearchResults(Struct, frozen=True):
    """One page of search results, with counts of excluded matches."""

    query: str
    sessions: tuple[SessionHit, ...]
    found: int
    """Number of matching sessions on all pages. A regex search counts only those that it found before it stopped."""
    page: int = 1
    more: bool = False
    """True if there is a next page."""
    excluded: dict[str, int] = {}
    """Number of excluded matches by reason."""
    confidence: float | None = None
    """Estimated probability that the first session is the one that the question is about; None if the query is not a
    plain question, for example because it has filters for messages or is a commit's subject."""
    notes: tuple[str, ...] = ()
    """Notes for the user, for example that another sync is running or that a query word is in no text."""
    indexed: float = 1.0
    """Share of the session files on disk, by size, that the index contained: below 1 during the first build."""


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
    """Answer of the configured model, with citations like [12]; empty without a model, or if the model found none."""
    found: bool = True
    """True if the session has relevant excerpts, and the model (if configured) found an answer in them."""
