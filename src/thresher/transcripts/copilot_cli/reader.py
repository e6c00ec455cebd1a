"""GitHub Copilot CLI: `events.jsonl`, one event a line; an event of a sub-agent's names the agent it is of.

What a person typed stands beside what was made of it for the model: the reminders around their words are the
harness's. The system prompt is written before every prompt, so it is kept once. A compaction runs while work goes on:
what came after its start stays in view.

Only the tokens that a model gave are told for each call. Rewinding cuts the file, so nothing shows it; the event that
tells of it is for the screen, and is followed where it was kept all the same.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, Message, Session, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import MAX_TITLE_CHARS, SessionFolder, TranscriptFormat, make_session, parse_time
from thresher.transcripts.coerce import (
    as_count,
    as_dict,
    as_text,
    count_at,
    dict_at,
    first_text,
    list_at,
    text_at,
    value_at,
)
from thresher.transcripts.content import json_text, text_parts
from thresher.transcripts.copilot_cli.agent_transcript import CopilotAgent
from thresher.transcripts.source import SourceFile

NAME = "copilot-cli"
HUMAN_SOURCES = ("", "user", "immediate-prompt", "command", "other")
"""Where a user's message comes from when a person is behind it; all others are put there by the harness."""
_EVENT_TYPE = re.compile(r"(?:session|user|assistant|tool|system|subagent|skill|hook|abort)\b")


class CopilotEvent(Struct, gc=False):
    """The fields of an event that are looked at."""

    type: Any = None
    data: Any = None
    id: Any = None
    timestamp: Any = None
    agentId: Any = None


_DECODER = msgspec.json.Decoder(CopilotEvent)


class CopilotReader:
    """A session while it is read."""

    def __init__(self, source: SourceFile) -> None:
        """Nothing yet."""
        self.source = source
        self.file = source.file
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
        """One event."""
        kind, data, id_ = as_text(row.type) or "?", as_dict(row.data), as_text(row.id)
        if id_ and self.seen_records.setdefault(id_, record) is not record:
            if self.seen_records[id_] == record:
                self.records["repeated"] += 1
                return
            id_ = f"{id_}-{line}"
        self.records[kind] += 1
        time = parse_time(row.timestamp)
        self.times += [time] if time else []
        talk = self._find_agent_transcript(kind, as_text(row.agentId), data)
        talk.event_positions[id_] = len(talk.messages)
        blank = Message("user", id=id_ or f"{line}", time=time, source=self.source.at(line), records=(record,))
        if kind.startswith("session."):
            self._read_session_event(talk, kind, data, blank)
        else:
            self._read_conversation_event(talk, kind, data, blank)

    def _find_agent_transcript(self, kind: str, agent: str, data: dict[str, Any]) -> CopilotAgent:
        """Whose event it is. An agent is known by its id, in older files by the call that started it."""
        call = text_at(data, "toolCallId" if kind.startswith("subagent.") else "parentToolCallId")
        names = [name for name in (agent, call) if name and not kind.startswith("session.start")]
        if not names or kind in ("subagent.selected", "subagent.deselected"):
            return self.main_agent
        known = (self.subagents[name] for name in names if name in self.subagents)
        talk = next(known, None) or CopilotAgent(names[0], call)
        self.subagents |= dict.fromkeys(names, talk)
        if kind == "subagent.started":
            talk.call_id = call or talk.call_id
            talk.title = first_text(data, "agentDisplayName", "agentName")
            talk.parent = text_at(data, "parentId")
        return talk

    def _read_session_event(self, talk: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind.removeprefix("session."):
            case "start" | "resume":
                self.session_fields = {**data, **self.session_fields}
                self.context = {**dict_at(data, "context"), **self.context}
                talk.model = text_at(data, "selectedModel") or talk.model
            case "context_changed":
                self.context = {**data, **self.context}
            case "model_change":
                talk.model = text_at(data, "newModel") or talk.model
            case "title_changed":
                talk.title = text_at(data, "title") or talk.title
            case "binary_asset":
                self.assets[text_at(data, "assetId")] = Image(text_at(data, "mimeType"), text_at(data, "data"))
            case "handoff":
                self.session_fields["handed"] = data.get("remoteSessionId")
                talk.messages += _summary_messages(blank, data.get("summary"))
            case "mode_notice_delivered" if text_at(data, "content"):
                talk.messages.append(replace(blank, parts=(Text(data["content"]),), author="harness"))
            case "compaction_start":
                talk.compaction_start = len(talk.messages)
            case "compaction_complete" if data.get("success") is not False:
                self._apply_compaction(talk, data, blank)
            case "context_cleared":
                talk.begin_segment(*_harness_messages(blank, data.get("initialMessage")))
            case "snapshot_rewind" if not talk.rewind_to(text_at(data, "upToEventId")):
                self._report_problem("the event that was gone back to is not here", "nothing was taken back", blank)

    def _apply_compaction(self, talk: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        summary = _summary_messages(blank, data.get("summaryContent"))
        if summary:
            talk.compactions += 1
            talk.begin_segment(*summary, kept=talk.compaction_start)
        else:
            self._report_problem("a compaction does not tell its summary", "what was before it stays in view", blank)

    def _report_problem(self, what: str, done: str, blank: Message) -> None:
        self.source.report(what, done, blank.source.line if blank.source else 0)

    def _read_conversation_event(self, talk: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind:
            case "system.message" if text_at(data, "content"):
                prompt = replace(blank, role="system", parts=(Text(data["content"]),), author="harness")
                self.system_prompt_changes += talk.replace_system_prompt(prompt)
            case "user.message":
                self._read_user_message(talk, data, blank)
            case "system.notification":
                talk.messages += _harness_messages(blank, data.get("content"))
                talk.last_notice = text_at(data, "content").strip()
            case "assistant.reasoning":
                talk.pending_reasoning = text_at(data, "content")
            case "assistant.message":
                self._read_assistant_message(talk, data, blank)
            case "tool.user_requested" | "tool.execution_start":
                self._read_tool_start(talk, kind, data, blank)
            case "tool.execution_complete":
                result = _parse_result(data, self.assets)
                message = replace(blank, role="tool", parts=(result,), author="tool")
                talk.add_result(result.call_id, message)

    def _read_user_message(self, talk: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        typed, seen, origin = (text_at(data, key) for key in ("content", "transformedContent", "source"))
        shown = seen if typed in seen else typed
        pictures = [part for one in list_at(data, "attachments") if (part := _parse_image(as_dict(one), self.assets))]
        parts: tuple[Part, ...] = (*text_parts(shown), *pictures)
        author: Author = infer_message_author("user", (Text(typed),)) if typed else infer_message_author("user", parts)
        if data.get("isAutopilotContinuation") is True or (
            origin not in HUMAN_SOURCES and not origin.startswith("agent-")
        ):
            author = "harness"
        elif author == "human" and (talk is not self.main_agent or origin.startswith("agent-")):
            author = "model"
        notice = talk.last_notice if talk.last_notice in shown else ""
        if notice and talk.messages and talk.messages[-1].text.strip() == notice:
            talk.messages.pop()  # what the screen was told is told to the model now
        talk.title = talk.title or (typed.strip()[:MAX_TITLE_CHARS] if author in ("human", "model") else "")
        talk.messages += [replace(blank, parts=parts, author=author)] if parts else []

    def _read_assistant_message(self, talk: CopilotAgent, data: dict[str, Any], blank: Message) -> None:
        thought = text_at(data, "reasoningText") or talk.pending_reasoning
        proof = first_text(data, "reasoningOpaque", "encryptedContent")
        calls = [_parse_call(as_dict(one), f"{blank.id}-{n}") for n, one in enumerate(list_at(data, "toolRequests"), 1)]
        thoughts = (Thinking(thought, proof),) if thought or proof else ()
        parts: tuple[Part, ...] = (*thoughts, *text_parts(text_at(data, "content")), *calls)
        for call in calls:
            talk.note_requested_call(call.id)
        request, model = text_at(data, "apiCallId"), text_at(data, "model") or talk.model
        usage = Usage(output=as_count(data["outputTokens"])) if count_at(data, "outputTokens") else None
        if request and request == talk.last_request_id and talk.messages and talk.messages[-1].author == "model":
            talk.continuation_ids.add(blank.id)
        made = replace(blank, role="assistant", parts=parts, author="model", model=model, usage=usage)
        talk.messages += [made] if parts else []
        talk.pending_reasoning, talk.last_request_id = "", request if parts else ""

    def _read_tool_start(self, talk: CopilotAgent, kind: str, data: dict[str, Any], blank: Message) -> None:
        """A call that nobody has asked for yet: a person's own, or one whose request is still to come."""
        call = _parse_call({**data, "name": data.get("toolName")}, blank.id)
        if talk.call_counts[call.id]:
            return
        talk.call_counts[call.id] += 1
        talk.early_call_messages[call.id] = blank.id
        author: Author = "harness" if kind == "tool.user_requested" else "model"
        talk.messages.append(replace(blank, role="assistant", parts=(call,), author=author))

    def build_session(self) -> Session:
        """What came of it."""
        if self.system_prompt_changes:
            what = f"the system prompt was changed {self.system_prompt_changes} times"
            self.source.report(what, "the last one is kept")
        stem = self.source.stem
        folder = self.source.path.parent.name if stem == "events" else ""
        id_ = text_at(self.session_fields, "sessionId") or folder or stem
        parent = first_text(self.session_fields, "handed", "detachedFromSpawningParentSessionId")
        main = self._build_agent_session(self.main_agent, id_, parent)
        talks = {id(talk): talk for talk in self.subagents.values()}.values()
        spoken = [talk for talk in talks if talk.messages or talk.segments]
        children = [self._build_agent_session(talk, talk.id, talk.parent or id_) for talk in spoken]
        return replace(
            main,
            children=tuple(children),
            problems=tuple(self.source.problems),
            records=dict(self.records),
            started=parse_time(self.session_fields.get("startTime")) or min(self.times, default=None),
            ended=max(self.times, default=None),
        )

    def _build_agent_session(self, talk: CopilotAgent, id_: str, parent: str) -> Session:
        segments = talk.build_histories()
        return make_session(
            NAME,
            self.source,
            id_,
            segments,
            branches=talk.branches,
            compactions=talk.compactions,
            project=text_at(self.context, "cwd"),
            git_branch=text_at(self.context, "branch"),
            title=talk.title,
            version=text_at(self.session_fields, "copilotVersion"),
            parent=parent,
            call_id=talk.call_id,
            problems=(),
        )


def _harness_messages(blank: Message, said: Any) -> list[Message]:
    return [replace(blank, parts=(Text(said),), author="harness")] if as_text(said) else []


def _summary_messages(blank: Message, said: Any) -> list[Message]:
    return [replace(blank, parts=(Summary(said),), author="harness")] if as_text(said) else []


def _parse_call(wire: dict[str, Any], place: str) -> ToolCall:
    return ToolCall(text_at(wire, "toolCallId") or place, text_at(wire, "name"), json_text(wire.get("arguments", {})))


def _parse_result(data: dict[str, Any], assets: Mapping[str, Image]) -> ToolResult:
    """What a tool gave the model: its short text, the error where there is none, and pictures."""
    result, failed = dict_at(data, "result"), data.get("success") is False
    said = text_at(result, "content") or text_at(data, "error", "message") or text_at(data, "result")
    exits = [value_at(one, "exitCode") for one in list_at(result, "contents")]
    pictures = [_parse_image(as_dict(one), assets) for one in list_at(result, "binaryResultsForLlm")]
    content: list[ResultPart] = [Text(said), *(part for part in pictures if part)]
    return ToolResult(text_at(data, "toolCallId"), tuple(content), is_error=failed or any(exits))


def _parse_image(wire: dict[str, Any], assets: Mapping[str, Image]) -> Image | Unknown | None:
    """A picture, by itself or by its name; what is in the prompt's own text already is none."""
    if text_at(wire, "data"):
        return Image(text_at(wire, "mimeType"), wire["data"])
    if text_at(wire, "assetId"):
        return assets.get(wire["assetId"]) or Unknown(text_at(wire, "type"), dump_json(wire))
    return None


def _read(source: SourceFile) -> list[Session]:
    """One session."""
    reading = CopilotReader(source)
    for line, record, row in source.records(_DECODER):
        try:
            reading.read_event(line, record, row)
        except RecursionError:
            source.report("an event is nested too deep to follow", "skipped", line)
    return [reading.build_session()]


def _sniff(source: SourceFile) -> int:
    """The first event of a session, or any of its kind."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("data"), dict) and isinstance(row.get("type"), str):
            if row["type"] == "session.start" and isinstance(row["data"].get("sessionId"), str):
                return 3
            if "." in row["type"] and _EVENT_TYPE.match(row["type"]) and "parentId" in row:
                return 2
    return 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """`COPILOT_HOME`, else `~/.copilot`; older builds kept it where XDG says, and sessions without a folder each."""
    moved = [environment[name] for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME") if environment.get(name)]
    root = Path(environment.get("COPILOT_HOME") or home / ".copilot")
    roots = dict.fromkeys((root, *(Path(folder) / ".copilot" for folder in moved)))
    names = [(root / kind) for root in roots for kind in ("session-state", "history-session-state")]
    return [SessionFolder(folder, pattern) for folder in names for pattern in ("*/events.jsonl", "*.jsonl")]


FORMAT = TranscriptFormat(
    NAME,
    "GitHub Copilot CLI",
    _sniff,
    _read,
    _homes,
    resume="copilot --resume={id}",
    layouts="`events.jsonl` of a session, and the older files without a folder",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="1.0.64 to 1.0.68; newer events as the SDK's types tell them",
)
