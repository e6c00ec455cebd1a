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
from msgspec import Struct, structs

from thresher.formats.copilot_cli_talk import Talk
from thresher.formats.dialect import author_for
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, timestamp
from thresher.model import (
    Author,
    Image,
    Message,
    Session,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
)
from thresher.model.jsontext import dump
from thresher.model.parts import Part, ResultPart

NAME = "copilot-cli"
HUMAN = ("", "user", "immediate-prompt", "command", "other")
"""Where a user's message comes from when a person is behind it; all others are put there by the harness."""
_KIND = re.compile(r"(?:session|user|assistant|tool|system|subagent|skill|hook|abort)\b")


class Row(Struct, gc=False):
    """The fields of an event that are looked at."""

    type: Any = None
    data: Any = None
    id: Any = None
    timestamp: Any = None
    agentId: Any = None


_DECODER = msgspec.json.Decoder(Row)


class Reading:
    """A session while it is read."""

    def __init__(self, source: SourceFile) -> None:
        """Nothing yet."""
        self.source = source
        self.file = str(source.path)
        self.records: Counter[str] = Counter()
        self.main = Talk()
        self.agents: dict[str, Talk] = {}
        self.assets: dict[str, Image] = {}
        self.facts: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        self.seen: dict[str, bytes] = {}
        self.others = 0
        self.times: list[Any] = []

    def take(self, line: int, record: bytes, row: Row) -> None:
        """One event."""
        kind, data, id_ = text(row.type) or "?", fields(row.data), text(row.id)
        if id_ and self.seen.setdefault(id_, record) is not record:
            if self.seen[id_] == record:
                self.records["repeated"] += 1
                return
            id_ = f"{id_}-{line}"
        self.records[kind] += 1
        time = timestamp(row.timestamp)
        self.times += [time] if time else []
        talk = self._talk(kind, text(row.agentId), data)
        talk.places[id_] = len(talk.messages)
        blank = Message("user", id=id_ or f"{line}", time=time, source=Source(self.file, line), records=(record,))
        if kind.startswith("session."):
            self._session(talk, kind, data, blank)
        else:
            self._said(talk, kind, data, blank)

    def _talk(self, kind: str, agent: str, data: dict[str, Any]) -> Talk:
        """Whose event it is. An agent is known by its id, in older files by the call that started it."""
        call = text(data.get("toolCallId" if kind.startswith("subagent.") else "parentToolCallId"))
        names = [name for name in (agent, call) if name and not kind.startswith("session.start")]
        if not names or kind in ("subagent.selected", "subagent.deselected"):
            return self.main
        talk = next((self.agents[name] for name in names if name in self.agents), None) or Talk(names[0], call)
        self.agents |= dict.fromkeys(names, talk)
        if kind == "subagent.started":
            talk.call_id = call or talk.call_id
            talk.title = text(data.get("agentDisplayName")) or text(data.get("agentName"))
            talk.parent = text(data.get("parentId"))
        return talk

    def _session(self, talk: Talk, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind.removeprefix("session."):
            case "start" | "resume":
                self.facts = {**data, **self.facts}
                self.context = {**fields(data.get("context")), **self.context}
                talk.model = text(data.get("selectedModel")) or talk.model
            case "context_changed":
                self.context = {**data, **self.context}
            case "model_change":
                talk.model = text(data.get("newModel")) or talk.model
            case "title_changed":
                talk.title = text(data.get("title")) or talk.title
            case "binary_asset":
                self.assets[text(data.get("assetId"))] = Image(text(data.get("mimeType")), text(data.get("data")))
            case "handoff":
                self.facts["handed"] = data.get("remoteSessionId")
                talk.messages += _summary(blank, data.get("summary"))
            case "mode_notice_delivered" if text(data.get("content")):
                talk.messages.append(structs.replace(blank, parts=(Text(data["content"]),), author="harness"))
            case "compaction_start":
                talk.since = len(talk.messages)
            case "compaction_complete" if data.get("success") is not False:
                self._compact(talk, data, blank)
            case "context_cleared":
                talk.begin(*_told(blank, data.get("initialMessage")))
            case "snapshot_rewind" if not talk.back(text(data.get("upToEventId"))):
                self._problem("the event that was gone back to is not here", "nothing was taken back", blank)

    def _compact(self, talk: Talk, data: dict[str, Any], blank: Message) -> None:
        summary = _summary(blank, data.get("summaryContent"))
        if summary:
            talk.compactions += 1
            talk.begin(*summary, kept=talk.since)
        else:
            self._problem("a compaction does not tell its summary", "what was before it stays in view", blank)

    def _problem(self, what: str, done: str, blank: Message) -> None:
        self.source.problem(what, done, blank.source.line if blank.source else 0)

    def _said(self, talk: Talk, kind: str, data: dict[str, Any], blank: Message) -> None:
        match kind:
            case "system.message" if text(data.get("content")):
                prompt = structs.replace(blank, role="system", parts=(Text(data["content"]),), author="harness")
                self.others += talk.system(prompt)
            case "user.message":
                self._prompt(talk, data, blank)
            case "system.notification":
                talk.messages += _told(blank, data.get("content"))
                talk.notice = text(data.get("content")).strip()
            case "assistant.reasoning":
                talk.reasoning = text(data.get("content"))
            case "assistant.message":
                self._answer(talk, data, blank)
            case "tool.user_requested" | "tool.execution_start":
                self._start(talk, kind, data, blank)
            case "tool.execution_complete":
                result = _result(data, self.assets)
                message = structs.replace(blank, role="tool", parts=(result,), author="tool")
                talk.answer(result.call_id, message)

    def _prompt(self, talk: Talk, data: dict[str, Any], blank: Message) -> None:
        typed, seen, origin = text(data.get("content")), text(data.get("transformedContent")), text(data.get("source"))
        shown = seen if typed in seen else typed
        pictures = [part for one in items(data.get("attachments")) if (part := _picture(fields(one), self.assets))]
        parts: tuple[Part, ...] = (*((Text(shown),) if shown else ()), *pictures)
        author: Author = author_for("user", (Text(typed),)) if typed else author_for("user", parts)
        if data.get("isAutopilotContinuation") is True or (origin not in HUMAN and not origin.startswith("agent-")):
            author = "harness"
        elif author == "human" and (talk is not self.main or origin.startswith("agent-")):
            author = "model"
        if talk.notice and talk.messages and talk.notice in shown and talk.messages[-1].text.strip() == talk.notice:
            talk.messages.pop()  # what the screen was told is told to the model now
        talk.title = talk.title or (typed.strip()[:TITLE] if author in ("human", "model") else "")
        talk.messages += [structs.replace(blank, parts=parts, author=author)] if parts else []

    def _answer(self, talk: Talk, data: dict[str, Any], blank: Message) -> None:
        thought = text(data.get("reasoningText")) or talk.reasoning
        proof = text(data.get("reasoningOpaque")) or text(data.get("encryptedContent"))
        calls = [_call(fields(one), f"{blank.id}-{n}") for n, one in enumerate(items(data.get("toolRequests")), 1)]
        said = text(data.get("content"))
        thoughts = (Thinking(thought, proof),) if thought or proof else ()
        parts: tuple[Part, ...] = (*thoughts, *((Text(said),) if said else ()), *calls)
        for call in calls:
            talk.ask(call.id)
        request, model = text(data.get("apiCallId")), text(data.get("model")) or talk.model
        usage = Usage(output=count(data["outputTokens"])) if count(data.get("outputTokens")) else None
        if request and request == talk.request and talk.messages and talk.messages[-1].author == "model":
            talk.pieces.add(blank.id)
        made = structs.replace(blank, role="assistant", parts=parts, author="model", model=model, usage=usage)
        talk.messages += [made] if parts else []
        talk.reasoning, talk.request = "", request if parts else ""

    def _start(self, talk: Talk, kind: str, data: dict[str, Any], blank: Message) -> None:
        """A call that nobody has asked for yet: a person's own, or one whose request is still to come."""
        call = _call({**data, "name": data.get("toolName")}, blank.id)
        if talk.calls[call.id]:
            return
        talk.calls[call.id] += 1
        talk.made[call.id] = blank.id
        author: Author = "harness" if kind == "tool.user_requested" else "model"
        talk.messages.append(structs.replace(blank, role="assistant", parts=(call,), author=author))

    def session(self) -> Session:
        """What came of it."""
        if self.others:
            self.source.problem(f"the system prompt was changed {self.others} times", "the last one is kept")
        stem = self.source.path.name.split(".")[0]
        folder = self.source.path.parent.name if stem == "events" else ""
        id_ = text(self.facts.get("sessionId")) or folder or stem
        parent = text(self.facts.get("handed")) or text(self.facts.get("detachedFromSpawningParentSessionId"))
        main = self._made(self.main, id_, parent)
        talks = {id(talk): talk for talk in self.agents.values()}.values()
        children = [self._made(talk, talk.id, talk.parent or id_) for talk in talks if talk.messages or talk.segments]
        return structs.replace(
            main,
            children=tuple(children),
            problems=tuple(self.source.problems),
            records=dict(self.records),
            started=timestamp(self.facts.get("startTime")) or min(self.times, default=None),
            ended=max(self.times, default=None),
        )

    def _made(self, talk: Talk, id_: str, parent: str) -> Session:
        segments = talk.histories()
        times = [message.time for segment in segments for message in segment if message.time]
        return Session(
            agent=NAME,
            id=id_,
            file=self.file,
            segments=segments,
            branches=tuple(talk.branches),
            compactions=talk.compactions,
            project=text(self.context.get("cwd")),
            git_branch=text(self.context.get("branch")),
            title=talk.title,
            version=text(self.facts.get("copilotVersion")),
            parent=parent,
            call_id=talk.call_id,
            started=min(times, default=None),
            ended=max(times, default=None),
        )


def _told(blank: Message, said: Any) -> list[Message]:
    return [structs.replace(blank, parts=(Text(said),), author="harness")] if text(said) else []


def _summary(blank: Message, said: Any) -> list[Message]:
    return [structs.replace(blank, parts=(Summary(said),), author="harness")] if text(said) else []


def _call(wire: dict[str, Any], place: str) -> ToolCall:
    given = wire.get("arguments", {})
    id_, name = text(wire.get("toolCallId")) or place, text(wire.get("name"))
    return ToolCall(id_, name, given if isinstance(given, str) else dump(given))


def _result(data: dict[str, Any], assets: Mapping[str, Image]) -> ToolResult:
    """What a tool gave the model: its short text, the error where there is none, and pictures."""
    result, failed = fields(data.get("result")), data.get("success") is False
    said = text(result.get("content")) or text(at(data, "error", "message")) or text(data.get("result"))
    exits = [fields(one).get("exitCode") for one in items(result.get("contents"))]
    pictures = [_picture(fields(one), assets) for one in items(result.get("binaryResultsForLlm"))]
    content: list[ResultPart] = [Text(said), *(part for part in pictures if part)]
    return ToolResult(text(data.get("toolCallId")), tuple(content), is_error=failed or any(exits))


def _picture(wire: dict[str, Any], assets: Mapping[str, Image]) -> Image | Unknown | None:
    """A picture, by itself or by its name; what is in the prompt's own text already is none."""
    if text(wire.get("data")):
        return Image(text(wire.get("mimeType")), wire["data"])
    if text(wire.get("assetId")):
        return assets.get(wire["assetId"]) or Unknown(text(wire.get("type")), dump(wire))
    return None


def read(source: SourceFile) -> list[Session]:
    """One session."""
    reading = Reading(source)
    for line, record, row in source.rows(_DECODER):
        try:
            reading.take(line, record, row)
        except RecursionError:
            source.problem("an event is nested too deep to follow", "skipped", line)
    return [reading.session()]


def sniff(source: SourceFile) -> int:
    """The first event of a session, or any of its kind."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("data"), dict) and isinstance(row.get("type"), str):
            if row["type"] == "session.start" and isinstance(row["data"].get("sessionId"), str):
                return 3
            if "." in row["type"] and _KIND.match(row["type"]) and "parentId" in row:
                return 2
    return 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """`COPILOT_HOME`, else `~/.copilot`; older builds kept it where XDG says, and sessions without a folder each."""
    moved = [environment[name] for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME") if environment.get(name)]
    root = Path(environment.get("COPILOT_HOME") or home / ".copilot")
    roots = dict.fromkeys((root, *(Path(folder) / ".copilot" for folder in moved)))
    names = [(root / kind) for root in roots for kind in ("session-state", "history-session-state")]
    return [Home(folder, pattern) for folder in names for pattern in ("*/events.jsonl", "*.jsonl")]


FORMAT = TranscriptFormat(
    NAME,
    "GitHub Copilot CLI",
    sniff,
    read,
    homes,
    resume="copilot --resume={id}",
    layouts="`events.jsonl` of a session, and the older files without a folder",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "compactions"),
    seen="1.0.64 to 1.0.68; newer events as the SDK's types tell them",
)
