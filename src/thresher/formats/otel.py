"""Traces of agents, as OpenTelemetry spans: each span of a model's call holds all that the model was given.

The calls below an agent's span, or of one conversation, are put together to conversations (`threads`). An agent's main
conversation is the one with the most calls; what else it asked a model for (a plan, a summary) is a child of it, and so
is an agent that works inside another. What a child repeats of its parent's conversation is marked as carried.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from thresher.errors import UnknownFormatError
from thresher.formats.loose import text
from thresher.formats.otel_messages import Tools, agent_of, conversation, definitions, model_of, told, usage_of
from thresher.formats.otel_spans import VOCABULARIES, Span, Tree, first_printed, is_span, read_spans, walk
from thresher.formats.source import SourceFile
from thresher.formats.threads import Ask, Thread, Threads
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, first_prompt
from thresher.model import Author, History, Session, ToolCall

NAME = "otel"
LOOKED_AT = 200
"""Spans that are looked at to tell what a file is."""


def read(source: SourceFile) -> list[Session]:
    """One session a conversation, with those inside it as its children."""
    tree = read_spans(source)
    threads = _threads(source, tree)
    if not threads:
        raise UnknownFormatError(f"`{source.path}` holds {len(tree.spans)} spans, and no messages of a model in them")
    family = _Family(source, tree, threads)
    sessions = [family.session(thread) for thread in threads if thread not in family.parents]
    sessions[0] = structs.replace(sessions[0], problems=tuple(source.problems))
    return sessions


# Model calls


def _threads(source: SourceFile, tree: Tree) -> list[Thread]:
    """The conversations in all calls of models."""
    threads = Threads(str(source.path))
    cut = silent = 0
    telling: set[str] = set()
    for span in tree.spans:
        if span.kind != "llm" or any(one.key in telling and one.kind == "llm" for one in tree.around(span)):
            continue
        try:
            ask = _ask(span, tree)
        except RecursionError:
            source.problem("a span is nested too deep to follow", "skipped", span.line)
            continue
        if not ask.given and not ask.said:
            silent += 1
            continue
        cut += ask.is_cut
        telling |= {span.key, *(one.key for one in tree.around(span))}
        threads.add(ask)
    for ask in reversed([*_whole_agents(source, tree, telling)]):
        threads.add(ask)
    if cut:
        what = f"{cut} calls of models lost the first messages to a limit on attributes"
        source.problem(what, "taken from the calls before")
    if silent:
        source.problem(f"{silent} calls of models tell no messages: content was not recorded", "left out")
    return threads.conversations()


def _whole_agents(source: SourceFile, tree: Tree, telling: set[str]) -> Iterator[Ask]:
    """Agents that tell what they were given and said themselves, and whose models do not; the latest first."""
    for span in reversed(tree.spans):
        if span.kind != "agent" or span.key in telling:
            continue
        try:
            ask = _ask(span, tree)
        except RecursionError:
            source.problem("a span is nested too deep to follow", "skipped", span.line)
            continue
        if ask.given or ask.said:
            telling |= {one.key for one in tree.around(span)}
            yield ask


def _ask(span: Span, tree: Tree) -> Ask:
    agents = [agent.key for agent in tree.agents(span)]
    found = told(span)
    talks = (conversation(one) for one in (span, *tree.around(span)))
    return Ask(
        span.place,
        span.line,
        agents[0] if agents else span.trace,
        frozenset(agents[1:]),
        next(filter(None, talks), ""),
        span.trace,
        found.given,
        found.said,
        found.is_cut,
        span.start,
        span.end,
        model_of(span),
        usage_of(span),
        definitions(span),
        found.others,
    )


# Whose conversation is whose


class _Family:
    """The conversations of a file by the agents that led them."""

    def __init__(self, source: SourceFile, tree: Tree, threads: Sequence[Thread]) -> None:
        self._file = str(source.path)
        self._tree = tree
        self._places = {span.place: span for span in tree.spans}
        self._tools = Tools(tree)
        self._main = _main_threads(threads)
        self.parents: dict[Thread, Thread] = {}
        self._ids: set[str] = set()
        self._records: dict[str, Counter[str]] = defaultdict(Counter)
        for span in tree.spans:
            self._records[span.trace][span.kind or "other"] += 1
        self._tops: dict[str, list[Thread]] = defaultdict(list)
        for scope, main in self._main.items():
            if scope in tree.by_key and not main.asks[0].around:
                self._tops[main.asks[0].trace].append(main)
        for thread in threads:
            parent = self._parent(thread)
            if parent and not self._is_above(thread, parent):
                self.parents[thread] = parent
        self._children: dict[Thread, list[Thread]] = defaultdict(list)
        for child, parent in self.parents.items():
            self._children[parent].append(child)

    def _parent(self, thread: Thread) -> Thread | None:
        agent, main = self._agent(thread), self._main[thread.scope]
        if agent and main is not thread:
            return main
        if agent:
            around = (one.key for one in self._tree.agents(agent)[1:])
            return next((self._main[key] for key in around if key in self._main), None)
        # What was asked beside the one agent of a trace (its answer put in form) belongs to that agent's work.
        tops = self._tops[thread.asks[0].trace]
        return tops[0] if len(tops) == 1 else None

    def _is_above(self, thread: Thread, parent: Thread) -> bool:
        at: Thread | None = parent
        while at is not None:
            if at is thread:
                return True
            at = self.parents.get(at)
        return False

    def session(self, thread: Thread, parent: str = "", call_id: str = "") -> Session:
        """A conversation, and those inside it."""
        above = self.parents.get(thread)
        is_side = above is not None and (self._main[thread.scope] is not thread or not self._agent(thread))
        if above and is_side:
            _carry(thread, above)
        histories, runs = self._tools.given_to(thread)
        if above:
            histories = [_told_by(history, "harness" if is_side else "model") for history in histories]
        id_ = self._id(thread, is_side=is_side)
        under_way = UnderWay(thread, histories, runs) if self._children[thread] else None
        inner = [self.session(child, id_, self._call(child, under_way)) for child in self._children[thread]]
        resource = self._places[thread.asks[0].place].resource
        agent = self._agent(thread)
        name = agent_of(agent) if agent else ""
        spans = [self._places[ask.place] for ask in thread.asks] + ([agent] if agent else [])
        times = [time for span in spans for time in (span.start, span.end) if time]
        return Session(
            agent=NAME,
            id=id_,
            file=self._file,
            segments=tuple(histories),
            branches=tuple(thread.taken_back()),
            children=tuple(inner),
            compactions=len(histories) - 1,
            records={"llm": len(thread.asks)} if above else self._records_of(thread),
            title=(name if above else "") or first_prompt(histories) or name or _first_words(histories),
            project=text(resource.get("process.working_directory")),
            git_branch=text(resource.get("vcs.ref.head.name")),
            version=text(resource.get("service.version")),
            parent=parent,
            call_id=call_id,
            started=min(times, default=None),
            ended=max(times, default=None),
        )

    def _records_of(self, thread: Thread) -> dict[str, int]:
        """The spans of its traces; where several conversations share one, the first has them."""
        traces = dict.fromkeys(ask.trace for ask in thread.asks)
        return dict(sum((self._records.pop(trace, Counter()) for trace in traces), Counter()))

    def _agent(self, thread: Thread) -> Span | None:
        found = self._tree.by_key.get(thread.scope)
        return found if found and found.kind == "agent" else None

    def _id(self, thread: Thread, *, is_side: bool) -> str:
        """The conversation, the trace, or the span that begins it: the first that no other has."""
        first = thread.asks[0]
        span = self._places[first.place].id
        agent = self._agent(thread)
        inner = [span] if is_side else [agent.id if agent else span]
        wanted = [*inner, span] if thread in self.parents else [first.talk, first.trace, *inner, span]
        found = next((id_ for id_ in wanted if id_ and id_ not in self._ids), f"{span}-{first.place}")
        self._ids.add(found)
        return found

    def _call(self, child: Thread, under_way: "UnderWay | None") -> str:
        """The call that an agent works for: the one whose tool it is in, or the only one under way."""
        agent = self._agent(child)
        if agent is None or under_way is None or self._main[child.scope] is not child:
            return ""
        runs = (under_way.runs[one.key] for one in self._tree.around(agent) if one.key in under_way.runs)
        return next(runs, "") or under_way.call_at(agent)


class UnderWay:
    """The calls of a conversation, by the time that they were made."""

    def __init__(self, thread: Thread, histories: Iterable[History], runs: Mapping[str, str]) -> None:
        """`runs`: the call that each span of a tool answers."""
        self.runs = runs
        self._starts = [ask.start for ask in thread.asks if ask.start]
        self._places = [ask.place for ask in thread.asks if ask.start]
        self._calls: dict[int, list[ToolCall]] = defaultdict(list)
        for message in (message for history in histories for message in history if not message.carried):
            if message.id in thread.answers:
                self._calls[thread.answers[message.id].place] += message.calls

    def call_at(self, agent: Span) -> str:
        """The call that an agent was started by: the only one of the last answer before, or the one of its name."""
        number = bisect_right(self._starts, agent.start) if agent.start else 0
        made = self._calls[self._places[number - 1]] if number else []
        named = [call for call in made if call.name == agent_of(agent)]
        return made[0].id if len(made) == 1 else named[0].id if len(named) == 1 else ""


def _main_threads(threads: Iterable[Thread]) -> dict[str, Thread]:
    """Each agent's main conversation: the one with the most calls, or the longest."""
    found: dict[str, tuple[int, int, Thread]] = {}
    for thread in threads:
        for scope, count in Counter(ask.scope for ask in thread.asks).items():
            if scope not in found or (count, len(thread.rows)) > found[scope][:2]:
                found[scope] = (count, len(thread.rows), thread)
    return {scope: thread for scope, (_, _, thread) in found.items()}


def _carry(thread: Thread, main: Thread) -> None:
    """Mark what a call beside an agent's conversation repeats of it."""
    for place, row in enumerate(thread.rows):
        if row.words in main.known and not any(message.usage or message.model for message in row.messages):
            carried = tuple(structs.replace(message, carried=True) for message in row.messages)
            thread.rows[place] = row._replace(messages=carried)


def _told_by(history: History, author: Author) -> History:
    """What is asked of a child is asked by a model, or by the program around it; no person does."""
    said = (structs.replace(m, author=author) if m.author == "human" and m.role == "user" else m for m in history)
    return structs.replace(history, messages=tuple(said))


def _first_words(histories: Iterable[History]) -> str:
    said = (m.text.strip() for history in histories for m in history if m.role == "user" and not m.carried)
    return next(filter(None, said), "")[:TITLE]


# The format


def sniff(source: SourceFile) -> int:
    """Spans: certain where one speaks a vocabulary of models, likely where they could."""
    document = source.document
    values = [document] if document is not None else [value for value in source.head if isinstance(value, dict)]
    values = values or ([] if source.is_database else first_printed(source))
    found = 0
    for value in values:
        for number, (wire, _) in enumerate(walk(value)):
            if is_span(wire):
                found = max(found, 1)
                if any(name.startswith(VOCABULARIES) for name in _names(wire)):
                    return 3
            if number > LOOKED_AT:
                break
    return 2 if found and any(_is_export(value) for value in values) else 0


def _is_export(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in ("resourceSpans", "resource_spans"))


def _names(wire: Mapping[str, Any]) -> Iterator[str]:
    """The names of a span's attributes."""
    for key in ("span_attributes", "attributes"):
        told_here = wire.get(key)
        if isinstance(told_here, list):
            yield from (text(entry.get("key")) for entry in told_here if isinstance(entry, dict))
        elif isinstance(told_here, dict):
            yield from (f"{name}." for name in told_here)
    yield from (key.removeprefix("attributes.") for key in wire if key.startswith("attributes."))
    if text(wire.get("type")) in ("GENERATION", "AGENT", "TOOL") and "traceId" in wire:
        yield "langfuse.observation"


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:  # noqa: ARG001 - a format's homes depend on both
    """None: traces stand where their user put them."""
    return []


FORMAT = TranscriptFormat(
    NAME,
    "OpenTelemetry traces",
    sniff,
    read,
    homes,
    layouts="OTLP JSON, trees of spans, spans as Phoenix, Langfuse and the console exporter write them",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="OpenInference (TRAIL), GenAI conventions up to 1.38",
)
