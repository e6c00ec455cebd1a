"""GitHub Copilot CLI: `events.jsonl`, one event per line. A sub-agent's events contain the sub-agent's id.

A user message contains two texts: the text that the user typed, and the text that the model gets, with the harness's
reminders. The file repeats the system prompt before every user prompt. The reader keeps only the last version. A
compaction runs in the background: messages that arrive after its start stay in the context.

The only recorded usage is the output tokens of each model call. A rewind truncates the file and normally leaves no
trace. If the file does contain a rewind event, the reader applies it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, Message, Session, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import MAX_TITLE_CHARS, SessionFolder, TranscriptFormat, make_session, parse_time
from thresher.transcripts.coerce import as_dict, as_text, count_at, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, text_parts
from thresher.transcripts.copilot_cli.agent_transcript import CopilotAgent
from thresher.transcripts.source import SourceFile

NAME = "copilot-cli"
HUMAN_SOURCES = ("", "user", "immediate-prompt", "command", "other")
"""Sources of user messages that a human wrote. A model wrote those from `agent-…`. The harness wrote the rest."""
_EVENT_TYPE = re.compile(r"(?:session|user|assistant|tool|system|subagent|skill|hook|abort)\b")


class CopilotEvent(Struct, gc=False):
    """Fields of an event that the reader uses."""

    type: Any = None
    data: Any = None
    id: Any = None
    timestamp: Any = None
    agentId: Any = None


_DECODER = msgspec.json.Decoder(CopilotEvent)


class CopilotReader:
    """Builder of a session from its events."""

    def __init__(self, source: SourceFile) -> None:
        """Start with an empty main agent and no sub-agents."""
        self.source = source
        self.records: Counter[str] = Counter()
        self.main_agent = CopilotAgent()
        self.subagents: dict[str, CopilotAgent] = {}
        self.assets: dict[str, Image] = {}
        self.session_fields: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        self.seen_records: dict[str, bytes] = {}
        self.system_prompt_changes = 0
        self.times: list[Any] = []

    def read_event(self, line: int, record: bytes, row: CopilotEvent) -> None:
        """Add one event. Skip an event that exactly repeats an earlier one."""
        kind, data, id_ = as_text(row.type) or "?", as_dict(row.data), as_text(row.id)
        if id_ and self.seen_records.setdefault(id_, record) is not record:
            if self.seen_records[id_] == record:
                self.records["repeated"] += 1
                return
            id_ = f"{id_}-{line}"
        self.records[kind] += 1
        time = parse_time(row.timestamp)
        self.times += [time] if time else []
        agent = self._find_agent(kind, as_text(row.agentId), data)
        agent.event_positions[id_] = len(agent.messages)
        blank = Message("user", id=id_ or f"{line}", time=time, source=self.source.at(line), records=(record,))
        if kind.startswith("session."):
            self._read_session_event(agent, kind, data, blank)
        else:
            self._read_conversation_event(agent, kind, data, blank)

    def _find_agent(self, kind: str, agent_id: str, data: dict[str, Any]) -> CopilotAgent:
        """Return the agent of an event, by agent id or, in older files, by the call that started the agent."""
        call = text_at(data, "toolCallId" if kind.startswith("subagent.") else "parentToolCallId")
        names = [name for name in (agent_id, call) if name and not kind.startswith("session.start")]
        if not names or kind in ("subagent.selected", "subagent.deselected"):
            return self.main_agent
        known = (self.subagents[name] for name in names if name in self.subagents)
        agent = next(known, None) or CopilotAgent(names[0], call)
        self.subagents |= dict.fromkeys(names, agent)
        if kind == "subagent.started":
            agent.call_id = call or agent.call_id
            agent.title = first_text(data, "agentDisplayName", "agentName")
            agent.parent = text_at(data, "parentId")
        return agent

    def _read_session_event(self, agent: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind.removeprefix("session."):
            case "start" | "resume":
                self.session_fields = {**data, **self.session_fields}
                self.context = {**dict_at(data, "context"), **self.context}
                agent.model = text_at(data, "selectedModel") or agent.model
            case "context_changed":
                self.context = {**data, **self.context}
            case "model_change":
                agent.model = text_at(data, "newModel") or agent.model
            case "title_changed":
                agent.title = text_at(data, "title") or agent.title
            case "binary_asset":
                self.assets[text_at(data, "assetId")] = Image(text_at(data, "mimeType"), text_at(data, "data"))
            case "handoff":
                self.session_fields["handed"] = data.get("remoteSessionId")
                agent.messages += _harness_messages(blank, data.get("summary"), Summary)
            case "mode_notice_delivered":
                agent.messages += _harness_messages(blank, data.get("content"))
            case "compaction_start":
                agent.compaction_start = len(agent.messages)
            case "compaction_complete" if data.get("success") is not False:
                self._apply_compaction(agent, data, blank)
            case "context_cleared":
                agent.begin_segment(*_harness_messages(blank, data.get("initialMessage")))
            case "snapshot_rewind" if not agent.rewind_to(text_at(data, "upToEventId")):
                self._report_problem("a rewind names an event that does not exist", "the rewind is ignored", blank)

    def _apply_compaction(self, agent: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        summary = _harness_messages(blank, data.get("summaryContent"), Summary)
        if summary:
            agent.compactions += 1
            agent.begin_segment(*summary, kept=agent.compaction_start)
        else:
            self._report_problem("a compaction has no summary", "the compaction is ignored", blank)

    def _report_problem(self, problem: str, action: str, blank: Message) -> None:
        self.source.report(problem, action, blank.source.line if blank.source else 0)

    def _read_conversation_event(self, agent: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind:
            case "system.message" if text_at(data, "content"):
                prompt = replace(blank, role="system", parts=(Text(data["content"]),), author="harness")
                self.system_prompt_changes += agent.replace_system_prompt(prompt)
            case "user.message":
                self._read_user_message(agent, data, blank)
            case "system.notification":
                agent.messages += _harness_messages(blank, data.get("content"))
                agent.last_notice = text_at(data, "content").strip()
            case "assistant.reasoning":
                agent.pending_reasoning = text_at(data, "content")
            case "assistant.message":
                self._read_assistant_message(agent, data, blank)
            case "tool.user_requested" | "tool.execution_start":
                self._read_tool_start(agent, kind, data, blank)
            case "tool.execution_complete":
                result = _parse_result(data, self.assets)
                message = replace(blank, role="tool", parts=(result,), author="tool")
                agent.add_result(result.call_id, message)

    def _read_user_message(self, agent: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        typed, sent, origin = (text_at(data, key) for key in ("content", "transformedContent", "source"))
        text = sent if typed in sent else typed
        attachments = map(as_dict, list_at(data, "attachments"))
        parts: tuple[Part, ...] = (*text_parts(text), *_parse_images(attachments, self.assets))
        author: Author = infer_message_author("user", (Text(typed),)) if typed else infer_message_author("user", parts)
        is_automatic = origin not in HUMAN_SOURCES and not origin.startswith("agent-")
        if is_automatic or data.get("isAutopilotContinuation") is True:
            author = "harness"
        elif author == "human" and (agent is not self.main_agent or origin.startswith("agent-")):
            author = "model"
        notice = agent.last_notice if agent.last_notice in text else ""
        if notice and agent.messages and agent.messages[-1].text.strip() == notice:
            agent.messages.pop()  # the user message repeats the notification, so remove the notification
        agent.title = agent.title or (typed.strip()[:MAX_TITLE_CHARS] if author in ("human", "model") else "")
        agent.messages += [replace(blank, parts=parts, author=author)] if parts else []

    def _read_assistant_message(self, agent: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        thought = text_at(data, "reasoningText") or agent.pending_reasoning
        signature = first_text(data, "reasoningOpaque", "encryptedContent")
        requests = enumerate(map(as_dict, list_at(data, "toolRequests")), 1)
        calls = [_parse_call(wire, f"{blank.id}-{number}") for number, wire in requests]
        thinking = (Thinking(thought, signature),) if thought or signature else ()
        parts: tuple[Part, ...] = (*thinking, *text_parts(text_at(data, "content")), *calls)
        for call in calls:
            agent.note_requested_call(call.id)
        request, model = text_at(data, "apiCallId"), text_at(data, "model") or agent.model
        usage = Usage(output=output) if (output := count_at(data, "outputTokens")) else None
        if request and request == agent.last_request_id and agent.messages and agent.messages[-1].author == "model":
            agent.continuation_ids.add(blank.id)
        message = replace(blank, role="assistant", parts=parts, author="model", model=model, usage=usage)
        agent.messages += [message] if parts else []
        agent.pending_reasoning, agent.last_request_id = "", request if parts else ""

    def _read_tool_start(self, agent: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        """Add a call that has no request yet: a user's command, or a model's call that starts before its request."""
        call = _parse_call({**data, "name": data.get("toolName")}, blank.id)
        if agent.call_counts[call.id]:
            return
        agent.call_counts[call.id] += 1
        agent.early_call_messages[call.id] = blank.id
        author: Author = "harness" if kind == "tool.user_requested" else "model"
        agent.messages.append(replace(blank, role="assistant", parts=(call,), author=author))

    def build_session(self) -> Session:
        """Return the session of all events read so far, with sub-agents as children."""
        if self.system_prompt_changes:
            self.source.report(f"the system prompt changed {self.system_prompt_changes} times", "the last one is kept")
        stem = self.source.stem
        folder = self.source.path.parent.name if stem == "events" else ""
        id_ = text_at(self.session_fields, "sessionId") or folder or stem
        parent = first_text(self.session_fields, "handed", "detachedFromSpawningParentSessionId")
        main = self._build_agent_session(self.main_agent, id_, parent)
        agents = {id(agent): agent for agent in self.subagents.values() if agent.messages or agent.segments}.values()
        children = [self._build_agent_session(agent, agent.id, agent.parent or id_) for agent in agents]
        return replace(
            main,
            children=tuple(children),
            problems=tuple(self.source.problems),
            records=dict(self.records),
            started=parse_time(self.session_fields.get("startTime")) or min(self.times, default=None),
            ended=max(self.times, default=None),
        )

    def _build_agent_session(self, agent: CopilotAgent, id_: str, parent: str) -> Session:
        return make_session(
            NAME,
            self.source,
            id_,
            agent.build_histories(),
            branches=agent.branches,
            compactions=agent.compactions,
            project=text_at(self.context, "cwd"),
            git_branch=text_at(self.context, "branch"),
            title=agent.title,
            version=text_at(self.session_fields, "copilotVersion"),
            parent=parent,
            call_id=agent.call_id,
            problems=(),
        )


def _harness_messages(blank: Message, text: Any, part: type[Text | Summary] = Text) -> list[Message]:
    return [replace(blank, parts=(part(text),), author="harness")] if as_text(text) else []


def _parse_call(wire: dict[str, Any], fallback_id: str) -> ToolCall:
    call_id = text_at(wire, "toolCallId") or fallback_id
    return ToolCall(call_id, text_at(wire, "name"), json_text(wire.get("arguments", {})))


def _parse_result(data: dict[str, Any], assets: Mapping[str, Image]) -> ToolResult:
    """Return a result as the model gets it: the short text (the error if there is no text), then the images."""
    result, failed = dict_at(data, "result"), data.get("success") is False
    text = text_at(result, "content") or text_at(data, "error", "message") or text_at(data, "result")
    exit_codes = [value_at(content, "exitCode") for content in list_at(result, "contents")]
    images = _parse_images(map(as_dict, list_at(result, "binaryResultsForLlm")), assets)
    return ToolResult(text_at(data, "toolCallId"), (Text(text), *images), is_error=failed or any(exit_codes))


def _parse_images(wires: Iterable[dict[str, Any]], assets: Mapping[str, Image]) -> Iterator[Image | Unknown]:
    """Yield images with inline data or an asset id. Skip other attachments: the prompt's text contains them."""
    for wire in wires:
        if text_at(wire, "data"):
            yield Image(text_at(wire, "mimeType"), wire["data"])
        elif asset_id := text_at(wire, "assetId"):
            yield assets.get(asset_id) or Unknown(text_at(wire, "type"), dump_json(wire))


def _read(source: SourceFile) -> list[Session]:
    """Read one session."""
    reader = CopilotReader(source)
    for line, record, row in source.records(_DECODER):
        try:
            reader.read_event(line, record, row)
        except RecursionError:
            source.report("an event is nested too deeply", "skipped", line)
    return [reader.build_session()]


def _sniff(source: SourceFile) -> int:
    """Match the first event of a session, or any event with a known type and a `parentId`."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("data"), dict) and isinstance(row.get("type"), str):
            if row["type"] == "session.start" and isinstance(row["data"].get("sessionId"), str):
                return 3
            if "." in row["type"] and _EVENT_TYPE.match(row["type"]) and "parentId" in row:
                return 2
    return 0


def _owns_line(row: Any) -> bool:
    kind = row.get("type") if isinstance(row, dict) and isinstance(row.get("data"), dict) else None
    return isinstance(kind, str) and "." in kind and _EVENT_TYPE.match(kind) is not None


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the session folders in `COPILOT_HOME` or `~/.copilot`, and in the XDG folders that older builds use."""
    xdg_folders = [environment[name] for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME") if environment.get(name)]
    root = Path(environment.get("COPILOT_HOME") or home / ".copilot")
    roots = dict.fromkeys((root, *(Path(folder) / ".copilot" for folder in xdg_folders)))
    folders = [root / kind for root in roots for kind in ("session-state", "history-session-state")]
    return [SessionFolder(folder, pattern) for folder in folders for pattern in ("*/events.jsonl", "*.jsonl")]


FORMAT = TranscriptFormat(
    NAME,
    "GitHub Copilot CLI",
    _sniff,
    _read,
    _homes,
    resume="copilot --resume={id}",
    layouts="`events.jsonl` of a session, and the older files without a folder",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="1.0.64 to 1.0.68; newer events by the types of the SDK",
    owns_line=_owns_line,
)
