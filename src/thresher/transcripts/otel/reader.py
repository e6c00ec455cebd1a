"""Traces of agents, as OpenTelemetry spans: each span of a model's call holds all that the model was given.

The calls below an agent's span, or of one conversation, are joined to conversations (`stitching`). An agent's main
conversation is the one with the most calls; what else it asked a model for (a plan, a summary) is a child of it, and so
is an agent that works inside another. What a child repeats of its parent's conversation is marked as carried.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from thresher.errors import UnknownFormatError
from thresher.model import Author, History, Session, ToolCall
from thresher.transcripts.base import MAX_TITLE_CHARS, TranscriptFormat, make_session, title_from_prompt
from thresher.transcripts.coerce import text_at
from thresher.transcripts.content import mark_carried
from thresher.transcripts.model_calls import LoggedCall
from thresher.transcripts.otel.messages import (
    OtelToolSpans,
    get_span_agent_name,
    get_span_conversation_id,
    get_span_model,
    get_span_tool_definitions,
    parse_span_messages,
    parse_span_usage,
)
from thresher.transcripts.otel.spans import (
    ATTRIBUTE_PREFIXES,
    OtelSpan,
    SpanTree,
    is_raw_span,
    iter_raw_spans,
    peek_printed_json,
    read_spans,
)
from thresher.transcripts.source import SourceFile
from thresher.transcripts.stitching import CallThread, ThreadStitcher

NAME = "otel"
MAX_SNIFFED_SPANS = 200
"""Spans that are looked at to tell what a file is."""


def _read(source: SourceFile) -> list[Session]:
    """One session a conversation, with those inside it as its children."""
    tree = read_spans(source)
    threads = _stitch_threads(source, tree)
    if not threads:
        raise UnknownFormatError(f"`{source.path}` holds {len(tree.spans)} spans, and no messages of a model in them")
    family = _ThreadFamily(source, tree, threads)
    sessions = [family.build_session(thread) for thread in threads if thread not in family.parent_threads]
    sessions[0] = replace(sessions[0], problems=tuple(source.problems))
    return sessions


# Model calls


def _stitch_threads(source: SourceFile, tree: SpanTree) -> list[CallThread]:
    """The conversations in all calls of models."""
    threads = ThreadStitcher(source.file)
    cut = silent = 0
    telling: set[str] = set()
    for span in tree.spans:
        if span.kind != "llm" or any(one.key in telling and one.kind == "llm" for one in tree.iter_ancestors(span)):
            continue
        try:
            ask = _make_model_call(span, tree)
        except RecursionError:
            source.report("a span is nested too deep to follow", "skipped", span.line)
            continue
        if not ask.input_messages and not ask.output_messages:
            silent += 1
            continue
        cut += ask.is_truncated
        telling |= {span.key, *(one.key for one in tree.iter_ancestors(span))}
        threads.add(ask)
    for ask in reversed([*_iter_agent_level_calls(source, tree, telling)]):
        threads.add(ask)
    if cut:
        what = f"{cut} calls of models lost the first messages to a limit on attributes"
        source.report(what, "taken from the calls before")
    if silent:
        source.report(f"{silent} calls of models tell no messages: content was not recorded", "left out")
    return threads.merge_threads()


def _iter_agent_level_calls(source: SourceFile, tree: SpanTree, telling: set[str]) -> Iterator[LoggedCall]:
    """Agents that tell what they were given and said themselves, and whose models do not; the latest first."""
    for span in reversed(tree.spans):
        if span.kind != "agent" or span.key in telling:
            continue
        try:
            ask = _make_model_call(span, tree)
        except RecursionError:
            source.report("a span is nested too deep to follow", "skipped", span.line)
            continue
        if ask.input_messages or ask.output_messages:
            telling |= {one.key for one in tree.iter_ancestors(span)}
            yield ask


def _make_model_call(span: OtelSpan, tree: SpanTree) -> LoggedCall:
    agents = [agent.key for agent in tree.enclosing_agents(span)]
    found = parse_span_messages(span)
    talks = (get_span_conversation_id(one) for one in (span, *tree.iter_ancestors(span)))
    return LoggedCall(
        span.number,
        span.line,
        agents[0] if agents else span.trace_id,
        frozenset(agents[1:]),
        next(filter(None, talks), ""),
        span.trace_id,
        found.input_messages,
        found.output_messages,
        found.is_truncated,
        span.start,
        span.end,
        get_span_model(span),
        parse_span_usage(span),
        get_span_tool_definitions(span),
        found.alternatives,
    )


# Whose conversation is whose


class _ThreadFamily:
    """The conversations of a file by the agents that led them."""

    def __init__(self, source: SourceFile, tree: SpanTree, threads: Sequence[CallThread]) -> None:
        self._source = source
        self._tree = tree
        self._spans_by_number = {span.number: span for span in tree.spans}
        self._tools = OtelToolSpans(tree)
        self._main_threads = _select_main_threads(threads)
        self.parent_threads: dict[CallThread, CallThread] = {}
        self._used_ids: set[str] = set()
        self._records: dict[str, Counter[str]] = defaultdict(Counter)
        for span in tree.spans:
            self._records[span.trace_id][span.kind or "other"] += 1
        self._top_threads: dict[str, list[CallThread]] = defaultdict(list)
        for scope, main in self._main_threads.items():
            if scope in tree.by_key and not main.model_calls[0].enclosing_agents:
                self._top_threads[main.model_calls[0].trace_id].append(main)
        for thread in threads:
            parent = self._find_parent(thread)
            if parent and not self._is_above(thread, parent):
                self.parent_threads[thread] = parent
        self._children: dict[CallThread, list[CallThread]] = defaultdict(list)
        for child, parent in self.parent_threads.items():
            self._children[parent].append(child)

    def _find_parent(self, thread: CallThread) -> CallThread | None:
        agent, main = self._find_agent_span(thread), self._main_threads[thread.agent_key]
        if agent and main is not thread:
            return main
        if agent:
            around = (one.key for one in self._tree.enclosing_agents(agent)[1:])
            return next((self._main_threads[key] for key in around if key in self._main_threads), None)
        # What was asked beside the one agent of a trace (its answer put in form) belongs to that agent's work.
        tops = self._top_threads[thread.model_calls[0].trace_id]
        return tops[0] if len(tops) == 1 else None

    def _is_above(self, thread: CallThread, parent: CallThread) -> bool:
        at: CallThread | None = parent
        while at is not None:
            if at is thread:
                return True
            at = self.parent_threads.get(at)
        return False

    def build_session(self, thread: CallThread, parent: str = "", call_id: str = "") -> Session:
        """A conversation, and those inside it."""
        above = self.parent_threads.get(thread)
        is_side = above is not None and (
            self._main_threads[thread.agent_key] is not thread or not self._find_agent_span(thread)
        )
        if above and is_side:
            _mark_replayed(thread, above)
        histories, runs = self._tools.attach_results(thread)
        if above:
            histories = [_set_prompt_author(history, "harness" if is_side else "model") for history in histories]
        id_ = self._assign_id(thread, is_side=is_side)
        under_way = OtelCallTimeline(thread, histories, runs) if self._children[thread] else None
        children = self._children[thread]
        inner = [self.build_session(child, id_, self._find_spawning_call(child, under_way)) for child in children]
        resource = self._spans_by_number[thread.model_calls[0].number].resource
        agent = self._find_agent_span(thread)
        name = get_span_agent_name(agent) if agent else ""
        spans = [self._spans_by_number[ask.number] for ask in thread.model_calls] + ([agent] if agent else [])
        return make_session(
            NAME,
            self._source,
            id_,
            histories,
            branches=thread.iter_rewound_branches(),
            children=inner,
            records={"llm": len(thread.model_calls)} if above else self._count_records(thread),
            title=(name if above else "") or title_from_prompt(histories) or name or _first_user_text(histories),
            project=text_at(resource, "process.working_directory"),
            git_branch=text_at(resource, "vcs.ref.head.name"),
            version=text_at(resource, "service.version"),
            parent=parent,
            call_id=call_id,
            problems=(),
            times=(time for span in spans for time in (span.start, span.end)),
        )

    def _count_records(self, thread: CallThread) -> dict[str, int]:
        """The spans of its traces; where several conversations share one, the first has them."""
        traces = dict.fromkeys(ask.trace_id for ask in thread.model_calls)
        return dict(sum((self._records.pop(trace, Counter()) for trace in traces), Counter()))

    def _find_agent_span(self, thread: CallThread) -> OtelSpan | None:
        found = self._tree.by_key.get(thread.agent_key)
        return found if found and found.kind == "agent" else None

    def _assign_id(self, thread: CallThread, *, is_side: bool) -> str:
        """The conversation, the trace, or the span that begins it: the first that no other has."""
        first = thread.model_calls[0]
        span = self._spans_by_number[first.number].id
        agent = self._find_agent_span(thread)
        inner = [span] if is_side else [agent.id if agent else span]
        wanted = (
            [*inner, span] if thread in self.parent_threads else [first.conversation_id, first.trace_id, *inner, span]
        )
        found = next((id_ for id_ in wanted if id_ and id_ not in self._used_ids), f"{span}-{first.number}")
        self._used_ids.add(found)
        return found

    def _find_spawning_call(self, child: CallThread, under_way: "OtelCallTimeline | None") -> str:
        """The call that an agent works for: the one whose tool it is in, or the only one under way."""
        agent = self._find_agent_span(child)
        if agent is None or under_way is None or self._main_threads[child.agent_key] is not child:
            return ""
        known = under_way.calls_by_tool_span
        runs = (known[one.key] for one in self._tree.iter_ancestors(agent) if one.key in known)
        return next(runs, "") or under_way.find_call_at(agent)


class OtelCallTimeline:
    """The calls of a conversation, by the time that they were made."""

    def __init__(self, thread: CallThread, histories: Iterable[History], runs: Mapping[str, str]) -> None:
        """`runs`: the call that each span of a tool answers."""
        self.calls_by_tool_span = runs
        self._call_starts = [ask.start for ask in thread.model_calls if ask.start]
        self._call_numbers = [ask.number for ask in thread.model_calls if ask.start]
        self._tool_calls: dict[int, list[ToolCall]] = defaultdict(list)
        for message in (message for history in histories for message in history if not message.carried):
            if message.id in thread.calls_by_message_id:
                self._tool_calls[thread.calls_by_message_id[message.id].number] += message.calls

    def find_call_at(self, agent: OtelSpan) -> str:
        """The call that an agent was started by: the only one of the last answer before, or the one of its name."""
        number = bisect_right(self._call_starts, agent.start) if agent.start else 0
        made = self._tool_calls[self._call_numbers[number - 1]] if number else []
        named = [call for call in made if call.name == get_span_agent_name(agent)]
        return made[0].id if len(made) == 1 else named[0].id if len(named) == 1 else ""


def _select_main_threads(threads: Iterable[CallThread]) -> dict[str, CallThread]:
    """Each agent's main conversation: the one with the most calls, or the longest."""
    found: dict[str, tuple[int, int, CallThread]] = {}
    for thread in threads:
        for scope, count in Counter(ask.agent_key for ask in thread.model_calls).items():
            if scope not in found or (count, len(thread.entries)) > found[scope][:2]:
                found[scope] = (count, len(thread.entries), thread)
    return {scope: thread for scope, (_, _, thread) in found.items()}


def _mark_replayed(thread: CallThread, main: CallThread) -> None:
    """Mark what a call beside an agent's conversation repeats of it."""
    for place, row in enumerate(thread.entries):
        if row.text_fingerprint in main.known_fingerprints and not any(
            message.usage or message.model for message in row.messages
        ):
            thread.entries[place] = row._replace(messages=tuple(mark_carried(row.messages)))


def _set_prompt_author(history: History, author: Author) -> History:
    """What is asked of a child is asked by a model, or by the program around it; no person does."""
    said = (replace(m, author=author) if m.author == "human" and m.role == "user" else m for m in history)
    return replace(history, messages=tuple(said))


def _first_user_text(histories: Iterable[History]) -> str:
    said = (m.text.strip() for history in histories for m in history if m.role == "user" and not m.carried)
    return next(filter(None, said), "")[:MAX_TITLE_CHARS]


# The format


def _sniff(source: SourceFile) -> int:
    """Spans: certain where one speaks a vocabulary of models, likely where they could."""
    document = source.document
    values = [document] if document is not None else [value for value in source.head if isinstance(value, dict)]
    values = values or ([] if source.is_database else peek_printed_json(source))
    found = 0
    for value in values:
        for number, (wire, _) in enumerate(iter_raw_spans(value)):
            if is_raw_span(wire):
                found = max(found, 1)
                if any(name.startswith(ATTRIBUTE_PREFIXES) for name in _attribute_names(wire)):
                    return 3
            if number > MAX_SNIFFED_SPANS:
                break
    return 2 if found and any(_is_otlp_export(value) for value in values) else 0


def _is_otlp_export(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in ("resourceSpans", "resource_spans"))


def _attribute_names(wire: Mapping[str, Any]) -> Iterator[str]:
    """The names of a span's attributes."""
    for key in ("span_attributes", "attributes"):
        told_here = wire.get(key)
        if isinstance(told_here, list):
            yield from (text_at(entry, "key") for entry in told_here if isinstance(entry, dict))
        elif isinstance(told_here, dict):
            yield from (f"{name}." for name in told_here)
    yield from (key.removeprefix("attributes.") for key in wire if key.startswith("attributes."))
    if text_at(wire, "type") in ("GENERATION", "AGENT", "TOOL") and "traceId" in wire:
        yield "langfuse.observation"


FORMAT = TranscriptFormat(
    NAME,
    "OpenTelemetry traces",
    _sniff,
    _read,
    layouts="OTLP JSON, trees of spans, spans as Phoenix, Langfuse and the console exporter write them",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="OpenInference (TRAIL), GenAI conventions up to 1.38",
)
