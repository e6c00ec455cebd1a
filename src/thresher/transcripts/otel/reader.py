"""Agent traces as OpenTelemetry spans: the span of a model call contains the call's whole prompt.

Calls with the same agent span or conversation id are joined into conversations (`stitching`). The main conversation of
an agent is the one with the most calls. The agent's other conversations (side conversations, such as a call for a plan
or a summary) become children, and so do agents inside other agents. Messages that a side conversation repeats from its
parent are carried.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace

from thresher.errors import UnknownFormatError
from thresher.model import Author, History, Session, ToolCall
from thresher.transcripts.base import MAX_TITLE_CHARS, TranscriptFormat, make_session, title_from_prompt
from thresher.transcripts.coerce import text_at
from thresher.transcripts.content import mark_carried
from thresher.transcripts.model_calls import LoggedCall
from thresher.transcripts.otel.messages import OtelToolSpans, get_span_agent_name, make_model_call
from thresher.transcripts.otel.spans import OtelSpan, SpanTree, is_span_line, read_spans, sniff_spans
from thresher.transcripts.source import SourceFile
from thresher.transcripts.stitching import CallThread, ThreadStitcher

NAME = "otel"


def _read(source: SourceFile) -> list[Session]:
    """Read one session per conversation, with inner conversations as children."""
    tree = read_spans(source)
    conversations = _stitch_conversations(source, tree)
    if not conversations:
        raise UnknownFormatError(f"`{source.path}` contains {len(tree.spans)} spans, but no model messages")
    family = _ConversationTree(source, tree, conversations)
    sessions = [family.build_session(root) for root in conversations if root not in family.parents]
    sessions[0] = replace(sessions[0], problems=tuple(source.problems))
    return sessions


# Model calls


def _stitch_conversations(source: SourceFile, tree: SpanTree) -> list[CallThread]:
    """Join all model calls into conversations."""
    stitcher = ThreadStitcher(source.file)
    truncated = empty = 0
    covered: set[str] = set()
    for span in tree.spans:
        ancestors = [*tree.iter_ancestors(span)] if span.kind == "llm" else []
        if span.kind != "llm" or any(outer.key in covered and outer.kind == "llm" for outer in ancestors):
            continue
        call = _try_model_call(source, span, tree)
        if call and not (call.input_messages or call.output_messages):
            empty += 1
        elif call:
            truncated += call.is_truncated
            covered |= {span.key, *(outer.key for outer in ancestors)}
            stitcher.add(call)
    for call in reversed([*_iter_agent_level_calls(source, tree, covered)]):
        stitcher.add(call)
    if truncated:
        what = f"{truncated} model calls lost their first messages to a limit on attributes"
        source.report(what, "the messages are copied from earlier calls")
    if empty:
        source.report(f"{empty} model calls have no messages because content was not recorded", "skipped")
    return stitcher.merge_threads()


def _iter_agent_level_calls(source: SourceFile, tree: SpanTree, covered: set[str]) -> Iterator[LoggedCall]:
    """Yield a call for each agent span with messages whose model spans have no messages, the latest first."""
    for span in reversed(tree.spans):
        if span.kind != "agent" or span.key in covered:
            continue
        call = _try_model_call(source, span, tree)
        if call and (call.input_messages or call.output_messages):
            covered |= {outer.key for outer in tree.iter_ancestors(span)}
            yield call


def _try_model_call(source: SourceFile, span: OtelSpan, tree: SpanTree) -> LoggedCall | None:
    try:
        return make_model_call(span, tree)
    except RecursionError:
        source.report("a span is nested too deeply", "skipped", span.line)
        return None


# Parents and children


class _ConversationTree:
    """The conversations of a file, linked as parents and children by their agent spans."""

    def __init__(self, source: SourceFile, tree: SpanTree, conversations: Sequence[CallThread]) -> None:
        self._source = source
        self._tree = tree
        self._spans_by_number = {span.number: span for span in tree.spans}
        self._tools = OtelToolSpans(tree)
        self._main_by_agent = _select_main_conversations(conversations)
        self.parents: dict[CallThread, CallThread] = {}
        self._used_ids: set[str] = set()
        self._records: dict[str, Counter[str]] = defaultdict(Counter)
        for span in tree.spans:
            self._records[span.trace_id][span.kind or "other"] += 1
        self._roots_by_trace: dict[str, list[CallThread]] = defaultdict(list)
        for agent_key, main in self._main_by_agent.items():
            if agent_key in tree.by_key and not main.model_calls[0].enclosing_agents:
                self._roots_by_trace[main.model_calls[0].trace_id].append(main)
        self._children: dict[CallThread, list[CallThread]] = defaultdict(list)
        for conversation in conversations:
            parent = self._find_parent(conversation)
            if parent and not self._is_ancestor(conversation, parent):
                self.parents[conversation] = parent
                self._children[parent].append(conversation)

    def _find_parent(self, conversation: CallThread) -> CallThread | None:
        agent, main = self._find_agent_span(conversation), self._main_by_agent[conversation.agent_key]
        if agent and main is not conversation:
            return main
        if agent:
            outer_keys = (outer.key for outer in self._tree.enclosing_agents(agent)[1:])
            return next((self._main_by_agent[key] for key in outer_keys if key in self._main_by_agent), None)
        # If a trace has only one outermost agent, a conversation outside this agent (such as a call that formats the
        # agent's answer) becomes the agent's child.
        roots = self._roots_by_trace[conversation.model_calls[0].trace_id]
        return roots[0] if len(roots) == 1 else None

    def _is_ancestor(self, conversation: CallThread, descendant: CallThread | None) -> bool:
        while descendant is not None and descendant is not conversation:
            descendant = self.parents.get(descendant)
        return descendant is not None

    def build_session(self, conversation: CallThread, parent_id: str = "", call_id: str = "") -> Session:
        """Build the session of a conversation, with its children."""
        parent, agent = self.parents.get(conversation), self._find_agent_span(conversation)
        is_side = parent is not None and (self._main_by_agent[conversation.agent_key] is not conversation or not agent)
        if parent and is_side:
            _mark_repeated(conversation, parent)
        histories, calls_by_span = self._tools.attach_results(conversation)
        if parent:
            histories = [_set_prompt_author(history, "harness" if is_side else "model") for history in histories]
        id_ = self._assign_id(conversation, is_side=is_side)
        children = self._children[conversation]
        timeline = OtelCallTimeline(conversation, histories, calls_by_span) if children else None
        sessions = [self.build_session(child, id_, self._find_spawning_call(child, timeline)) for child in children]
        resource = self._spans_by_number[conversation.model_calls[0].number].resource
        name = get_span_agent_name(agent) if agent else ""
        spans = [self._spans_by_number[call.number] for call in conversation.model_calls] + ([agent] if agent else [])
        return make_session(
            NAME,
            self._source,
            id_,
            histories,
            branches=conversation.iter_rewound_branches(),
            children=sessions,
            records={"llm": len(conversation.model_calls)} if parent else self._count_records(conversation),
            title=(name if parent else "") or title_from_prompt(histories) or name or _first_user_text(histories),
            project=text_at(resource, "process.working_directory"),
            git_branch=text_at(resource, "vcs.ref.head.name"),
            version=text_at(resource, "service.version"),
            parent=parent_id,
            call_id=call_id,
            problems=(),
            times=(time for span in spans for time in (span.start, span.end)),
        )

    def _count_records(self, conversation: CallThread) -> dict[str, int]:
        """Count the spans in a conversation's traces by kind. Count each trace only for its first conversation."""
        traces = dict.fromkeys(call.trace_id for call in conversation.model_calls)
        return dict(sum((self._records.pop(trace, Counter()) for trace in traces), Counter()))

    def _find_agent_span(self, conversation: CallThread) -> OtelSpan | None:
        span = self._tree.by_key.get(conversation.agent_key)
        return span if span and span.kind == "agent" else None

    def _assign_id(self, conversation: CallThread, *, is_side: bool) -> str:
        """Return the first unused id of a conversation's candidates.

        The candidates are the conversation id and the trace id (not for children), then the id of the agent's span (not
        for side conversations), then the id of the first model call's span.
        """
        first = conversation.model_calls[0]
        span_id = self._spans_by_number[first.number].id
        agent = None if is_side else self._find_agent_span(conversation)
        outer_ids = [] if conversation in self.parents else [first.conversation_id, first.trace_id]
        candidates = [*outer_ids, agent.id if agent else span_id, span_id]
        chosen = next((id_ for id_ in candidates if id_ and id_ not in self._used_ids), f"{span_id}-{first.number}")
        self._used_ids.add(chosen)
        return chosen

    def _find_spawning_call(self, child: CallThread, timeline: "OtelCallTimeline | None") -> str:
        """Return the id of the call that started an agent, or an empty string.

        It is the call whose tool span contains the agent's span or, if there is none, a call directly before the agent.
        """
        agent = self._find_agent_span(child)
        if agent is None or timeline is None or self._main_by_agent[child.agent_key] is not child:
            return ""
        known = timeline.calls_by_span
        call_ids = (known[outer.key] for outer in self._tree.iter_ancestors(agent) if outer.key in known)
        return next(call_ids, "") or timeline.find_call_before(agent)


class OtelCallTimeline:
    """Model calls of a conversation in time order, each with its tool calls."""

    def __init__(
        self, conversation: CallThread, histories: Iterable[History], calls_by_span: Mapping[str, str]
    ) -> None:
        """Index the calls. `calls_by_span` maps the key of each tool span to the id of the call that it answers."""
        self.calls_by_span = calls_by_span
        self._model_calls = [call for call in conversation.model_calls if call.start]
        self._tool_calls: dict[int, list[ToolCall]] = defaultdict(list)
        for message in (message for history in histories for message in history if not message.carried):
            if message.id in conversation.calls_by_message_id:
                self._tool_calls[conversation.calls_by_message_id[message.id].number] += message.calls

    def find_call_before(self, agent: OtelSpan) -> str:
        """Return the id of the call in the last answer before an agent's start, or an empty string.

        If the answer has several calls, exactly one of them must have the agent's name. This call's id is returned.
        """
        count = bisect_right(self._model_calls, agent.start, key=attrgetter("start")) if agent.start else 0
        calls = self._tool_calls[self._model_calls[count - 1].number] if count else []
        named = [call for call in calls if call.name == get_span_agent_name(agent)]
        return calls[0].id if len(calls) == 1 else named[0].id if len(named) == 1 else ""


def _select_main_conversations(conversations: Iterable[CallThread]) -> dict[str, CallThread]:
    """Return each agent's main conversation: the one with most of its calls or, if equal, the longest."""
    best: dict[str, tuple[int, int, CallThread]] = {}
    for conversation in conversations:
        for agent_key, count in Counter(call.agent_key for call in conversation.model_calls).items():
            if agent_key not in best or (count, len(conversation.entries)) > best[agent_key][:2]:
                best[agent_key] = (count, len(conversation.entries), conversation)
    return {agent_key: conversation for agent_key, (_, _, conversation) in best.items()}


def _mark_repeated(conversation: CallThread, parent: CallThread) -> None:
    """Mark messages of a side conversation as carried if they repeat messages of its parent."""
    for index, entry in enumerate(conversation.entries):
        is_answer = any(message.usage or message.model for message in entry.messages)
        if entry.text_fingerprint in parent.known_fingerprints and not is_answer:
            conversation.entries[index] = entry._replace(messages=tuple(mark_carried(entry.messages)))


def _set_prompt_author(history: History, author: Author) -> History:
    """Set the author of a child's prompts, which no human wrote."""
    messages = (replace(m, author=author) if m.author == "human" and m.role == "user" else m for m in history)
    return replace(history, messages=tuple(messages))


def _first_user_text(histories: Iterable[History]) -> str:
    texts = (m.text.strip() for history in histories for m in history if m.role == "user" and not m.carried)
    return next(filter(None, texts), "")[:MAX_TITLE_CHARS]


FORMAT = TranscriptFormat(
    NAME,
    "OpenTelemetry traces",
    sniff_spans,
    _read,
    layouts="OTLP JSON; trees of spans; spans as exported by Phoenix, Langfuse and the console exporter",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "rewinds", "compactions"),
    seen="OpenInference (TRAIL), GenAI conventions up to 1.38",
    owns_line=is_span_line,
)
