"""A search, from the question to what is shown of the answer.

What may answer is settled before anything is counted or cut off: the session that asks and its family, sub-agents,
and all that a filter rules out never take a place. Then sessions are ranked, and only of those on the page are
messages fetched from the archive, for the pieces that are shown.

A session that only asked the same question holds its words better than any that answers it. So where a session's best
message is little more than the question, nothing else in it bears on it and nothing was done about it, it goes behind
the best of the others.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from thresher.errors import FormatError
from thresher.formats import TranscriptFormat, find_format
from thresher.memory.base import Question, Store
from thresher.memory.hits import Answer, Hit, SessionHit
from thresher.memory.index import Found
from thresher.memory.making import weighed
from thresher.memory.provenance import Piece, pieces
from thresher.memory.query import MOST_WORDS, Query, telling
from thresher.memory.ranking import DERIVED, TEXTS, Scored, ordered, scores
from thresher.memory.recalls import recall_of
from thresher.memory.secrets import redact
from thresher.memory.snippets import Finder, Mark, Snippet, snippet, unspaced
from thresher.memory.values import KINDS, REASONS, ROLES, Facts, Kind
from thresher.memory.words import words
from thresher.model import Message
from thresher.model.tools import tool_use

FIELD_OF = {"commands": "input", "edits": "input"}
"""Kinds that are told apart only in the index."""
_TELLS: dict[Kind, float] = {"human": 1.2, "agent": 1.1, "thinking": 0.8, "commands": 0.7, "output": 0.3}
WORTH = [_TELLS.get(kind, 0.6 if FIELD_OF.get(kind, kind) == "input" else 1.0) for kind in KINDS]
"""How much a text of each kind tells a person, of those that match alike."""
CANDIDATES = 120
"""Sessions, best first, that are looked at one by one."""
AHEAD = 10
"""Sessions beyond the page that may move up into it."""
LIKE = 0.6
"""The share of a prompt's words that are the question's, from which it is the question."""
ANSWERED = 0.5
"""How well something else in a session must match, beside the question, for it to be more than asked."""
EACH = 12
"""Messages a session, on average, that are looked at at once."""
ASKED = 0.4
"""What a session is worth that only asked."""
BEHIND = 0.95
"""The share of the best other session's worth that it may have at most."""
TOO_LITTLE = 0.1
"""What another session must be worth to go before it."""
FOLLOWED = 12
"""Messages after a prompt in which it is looked for what was done."""


class View(NamedTuple):
    """How much of an answer is shown."""

    sessions: int = 10
    messages: int = 5
    context: int = 300
    page: int = 1
    reveal: bool = False


def find(store: Store, query: Query, view: View) -> Answer:
    """The sessions that answer a query, one page of them."""
    with store.one_by_one() as message:  # all along: who closes a database last has to tidy it up
        scope = Scope(store, query)
        asked = store.ask(query, only=scope.only, without=scope.without)
        if asked is None:
            return Answer(query=query.words, sessions=(), found=0, page=view.page, notes=("nothing is remembered yet",))
        matches = asked.counts()
        if query.rank == "matches":
            matches, _ = asked.messages(matches.keys())
        texts = asked.best(TEXTS)
        found, makers, why = weighed(scores(asked, matches, texts), asked, store)
        best = sorted(found, key=Counter(matches).__getitem__, reverse=True)
        best.sort(key=found.__getitem__, reverse=True)
        if query.rank == "matches":
            best = sorted(matches, key=matches.__getitem__, reverse=True)
        start = (view.page - 1) * view.sessions
        looked_at = max(CANDIDATES, start + 2 * view.sessions)
        ranked = ordered(store.facts(best[:looked_at]), found, matches, asked)
        shower = Shower(message, asked, view)
        page = shower.ranked_again(ranked, start + view.sessions, texts, makers)[start : start + view.sessions]
        exact = shower.fetch([one.facts.key for one in page])
        shown = tuple(shower.session(one._replace(matches=exact.get(one.facts.key, 0))) for one in page)
        return Answer(
            query=query.words,
            sessions=shown,
            found=len(ranked) if len(best) <= looked_at else len(best),
            more=len(ranked) > start + view.sessions,
            page=view.page,
            excluded=_excluded(asked, scope),
            notes=(*scope.notes, *why, *_unknown(store, query)),
        )


def _unknown(store: Store, query: Query) -> list[str]:
    """A word on words that nothing here has: often they are typed wrong."""
    spoken = [word for word in query.words.split() if words(word)]
    missing = [word for word in spoken[:MOST_WORDS] if not any(map(store.frequency, words(word)))]
    return [f"no text here has {', '.join(f'`{word}`' for word in missing[:5])}"] if missing else []


class Scope:
    """Which sessions may answer."""

    def __init__(self, store: Store, query: Query) -> None:
        self.only: set[int] | None = None
        self.notes: list[str] = []
        self._store, self._query = store, query
        if query.agent or query.project or query.branch:
            self.only = {one.key for one in self._matching()}
        hidden = not (query.subagents or query.everything)
        self.subagents = store.subagents() if hidden else frozenset()
        self.family: frozenset[int] = frozenset()
        if query.current and not query.everything:
            self.family = _family(store, query.current)
            if not self.family:
                self.notes.append(
                    f"the current session {query.current} is not known here yet, so nothing of it is left out"
                )

    def _matching(self) -> list[Facts]:
        agent, project, branch = map(storable, (self._query.agent, self._query.project, self._query.branch))
        return self._store.facts(agent=agent, project=project, branch=branch)

    def facts(self) -> list[Facts]:
        """All of them, the newest first."""
        known = (one for one in self._matching() if one.key not in self.without)
        kept = (one for one in known if self._query.everything or not one.made_by)
        return sorted(kept, key=lambda one: one.ended.timestamp() if one.ended else 0.0, reverse=True)

    @property
    def without(self) -> frozenset[int]:
        """Sessions that may not answer."""
        return self.subagents | self.family


def _family(store: Store, id: str) -> frozenset[int]:
    families = {(one.agent, one.root) for one in store.facts(id=storable(id)) if one.id == id}
    return frozenset(one.key for agent, root in families for one in store.facts(agent=agent, root=root))


def storable(text: str) -> str:
    """Text as a table can hold it: half a character has no place there."""
    return text.encode("utf-8", "replace").decode()


def _excluded(asked: Question, scope: Scope) -> dict[str, int]:
    """What matches too and was left out, by the reason."""
    told: dict[str, int] = {}
    if not asked.query.everything:
        told |= {REASONS[code]: many for code, many in asked.left_out().items()}
    for name, sessions in (("sub-agent", scope.subagents), ("current session", scope.family)):
        if sessions:
            told[name] = asked.within(sessions)
    told["before a recall"] = asked.cut_off()
    return {reason: many for reason, many in told.items() if many}


class Shown(NamedTuple):
    """A message that matches, with the piece of it that does best."""

    found: Found
    message: Message
    piece: Piece
    marks: list[Mark]


class Shower:
    """Fetches what is shown of sessions, each message once."""

    def __init__(self, message: Callable[[int, int], Message], asked: Question, view: View) -> None:
        """`message` gives one by its session and place."""
        self._read, self._asked, self._view = message, asked, view
        query = asked.query
        spoken = (query.words, *query.phrases, *query.require, *query.prefixes)
        terms = [*asked.terms, *(word for text in (*query.require, *query.prefixes) for word in words(text))]
        self._finder = Finder(terms, [sign for text in spoken for sign in unspaced(text)], words)
        self._each = 3 * view.messages
        self._best: dict[int, list[Found]] = {}
        self._shown: dict[Found, Shown] = {}

    def ranked_again(
        self, ranked: Sequence[Scored], wanted: int, texts: Sequence[Found], makers: Collection[int]
    ) -> list[Scored]:
        """The same sessions; those that only asked, by the texts that match best, are behind, but for `makers`."""
        if self._asked.query.rank == "matches":
            return list(ranked)
        near = ranked[: wanted + AHEAD]
        facts = {one.facts.key: one.facts for one in near}
        best: dict[int, list[Found]] = {key: [] for key in facts}
        for text in _by_worth(text for text in texts if text.session in best):
            best[text.session].append(text)
        asking = {key for key in best.keys() - makers if self._only_asked(facts[key], best[key])}
        highest = max((one.score for one in near if one.facts.key not in asking), default=0.0)
        most = BEHIND * highest if highest > TOO_LITTLE else 1.0
        looked = [one._replace(score=min(most, ASKED * one.score)) if one.facts.key in asking else one for one in near]
        return [*sorted(looked, key=lambda one: -one.score), *ranked[wanted + AHEAD :]]

    def _only_asked(self, facts: Facts, best: Sequence[Found]) -> bool:
        """Whether the question itself is what matches: a prompt is best by far, and nothing but a recall came of it."""
        prompts = [one for one in best[:2] if ROLES[one.role] == "user" and one.at >= 0]
        others = max((one.score for one in best if ROLES[one.role] != "user" and not one.derived), default=0.0)
        return any(
            others < ANSWERED * one.score
            and self.is_question(self._message(one))
            and not self._is_acted_on(one, facts.messages)
            for one in prompts
        )

    def _is_acted_on(self, prompt: Found, messages: int) -> bool:
        """Whether something was changed or run for a prompt, before the next one."""
        for at in range(prompt.at + 1, min(prompt.at + 1 + FOLLOWED, messages)):
            message = self._read(prompt.session, at)
            if message.role == "user" and message.author == "human":
                return False
            if any(
                tool_use(call).category in ("file_edit", "execution") for call in message.calls if not recall_of(call)
            ):
                return True
        return False

    def is_question(self, shown: Shown) -> bool:
        """Whether a prompt says little more than the question does.

        One or two words are in many an order; there it must ask, too.
        """
        if shown.message.author != "human" or shown.message.role != "user":
            return False
        if len(self._asked.terms) < 3 and not shown.piece.text.rstrip().endswith(("?", "？")):
            return False
        said = telling(words(shown.piece.text[:2000]))
        return len(frozenset(said) & frozenset(self._asked.terms)) >= LIKE * len(said)

    def messages(self, key: int, matches: int) -> list[Shown]:
        """The best messages of a session that match, best first; so many match in all."""
        if key not in self._best:
            self._best[key] = _by_worth(self._asked.best(self._each, [key]))
        by_message: dict[int, Found] = {}
        for one in self._best[key]:
            if one.at >= 0:
                by_message.setdefault(one.at, one)
        return [self._message(one) for one in islice(by_message.values(), min(self._view.messages, matches))]

    def fetch(self, keys: Collection[int]) -> Mapping[int, int]:
        """Look for the best messages of several sessions at once; gives back how many match in each."""
        most = EACH * len(keys)
        matches, texts = self._asked.messages(keys, most, self._each)
        best, own = _by_session(texts[:most]), _by_session(texts)
        for key in keys:
            is_enough = len({one.at for one in best[key]}) >= min(self._view.messages, matches.get(key, 0))
            self._best[key] = _by_worth(best[key] if is_enough else own[key][: self._each])
        return matches

    def _message(self, found: Found) -> Shown:
        if found not in self._shown:
            self._shown[found] = self._fitted(found, self._read(found.session, found.at))
        return self._shown[found]

    def _fitted(self, found: Found, message: Message) -> Shown:
        own = [piece for _, said in pieces([message]) for piece in said]
        field = FIELD_OF.get(KINDS[found.kind], KINDS[found.kind])
        fitting = [piece for piece in own if piece.field == field and REASONS.index(piece.reason) == found.reason]
        kept = [piece if self._view.reveal else piece._replace(text=redact(piece.text)) for piece in fitting or own]
        marked = [(piece, self._finder.marks(piece.text)) for piece in kept] or [(Piece("human", ""), [])]
        piece, marks = max(marked, key=lambda pair: len({mark.word for mark in pair[1]}))
        return Shown(found, message, piece, marks)

    def session(self, one: Scored) -> SessionHit:
        """A session as it is shown."""
        hits = tuple(self._hit(shown) for shown in self.messages(one.facts.key, one.matches))
        return session_hit(one, hits, self._view)

    def _hit(self, shown: Shown) -> Hit:
        piece = snippet(shown.piece.text, shown.marks, self._view.context)
        found = shown.found
        return hit_of(shown.message, found.at, KINDS[found.kind], piece, round(found.score, 4))


def hit_of(message: Message, at: int, kind: str, piece: Snippet, score: float) -> Hit:
    """A message with the piece of it that is shown."""
    return Hit(
        role=message.role,
        author=message.author,
        kind=kind,
        text=piece.text,
        marks=piece.marks,
        at=at,
        line=message.source.line if message.source else 0,
        time=message.time,
        score=score,
        cut=piece.cut,
    )


def _by_session(found: Iterable[Found]) -> Mapping[int, list[Found]]:
    texts: dict[int, list[Found]] = defaultdict(list)
    for one in found:
        texts[one.session].append(one)
    return texts


def _by_worth(found: Iterable[Found]) -> list[Found]:
    """What is said tells more than what is done; what was said out of a recall counts less."""
    return sorted(found, key=lambda one: one.score * WORTH[one.kind] * (DERIVED if one.derived else 1.0), reverse=True)


def session_hit(one: Scored, hits: tuple[Hit, ...], view: View) -> SessionHit:
    """A session with what is shown of it."""
    facts = one.facts
    told = str if view.reveal else redact
    return SessionHit(
        id=facts.id,
        agent=facts.agent,
        project=told(facts.project),
        branch=told(facts.branch),
        title=told(facts.title),
        file=told(facts.file),
        line=hits[0].line if hits else 0,
        score=round(one.score, 4),
        matches=one.matches,
        time=facts.ended or facts.started,
        hits=hits,
        family=one.family,
        parent=facts.parent if facts.subagent else "",
        gone=facts.gone,
        resume=told(_resume(facts)),
    )


def _resume(facts: Facts) -> str:
    """The command that goes on with a session, where its agent has one and the file is still there."""
    try:
        found = find_format(facts.agent)
    except FormatError:  # of a package that is not installed any more
        return ""
    template = found.resume if isinstance(found, TranscriptFormat) else ""
    if not template or facts.gone or facts.subagent:
        return ""
    command = template.format(id=shlex.quote(facts.id), file=shlex.quote(facts.file))
    return f"cd {shlex.quote(facts.project)} && {command}" if facts.project else command
