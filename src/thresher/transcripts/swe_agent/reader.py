"""SWE-agent: one JSON document (`.traj`) per run, with the conversation in `history` and the steps in `trajectory`.

A model without tools writes a thought and an action as text. The reader converts the action to a call, and the next
user message to the call's result. Later versions also record the API's tool calls. The author of demonstrations at the
start of the history is the harness.

A step that the model had to retry is in the trajectory, but not in the history. The reader adds it as a rewound branch.
If an agent makes several attempts, the file has every attempt, and the history of the chosen attempt once more.

A document has no lines. The line of a message is the number of the message in the history or, in a branch of retried
steps, the number of the step. The file has token counts only for the whole run.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.dialects.openai_chat.codec import parse_openai_chat_content
from thresher.errors import ReadError
from thresher.model import AbandonedBranch, Author, History, Message, Session
from thresher.model.jsontext import dump_json, load_json_object
from thresher.model.parts import Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import MAX_TITLE_CHARS, TranscriptFormat, make_session, title_from_prompt
from thresher.transcripts.coerce import as_dict, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, parse_thinking_blocks, text_parts
from thresher.transcripts.source import SourceFile
from thresher.transcripts.swe_agent.actions import EXIT_COMMAND, is_refused_observation, parse_swe_agent_command

NAME = "swe-agent"
NON_MODEL_NAMES = frozenset(("replay", "human", "human_thought", "instant_empty_submit"))
"""Model names of runs without a model: a person or an old run provides the answers."""
MAX_RETRIED_STEPS = 20
"""Maximum number of steps that the reader searches for the step that matches a message."""
_OPEN_FILE = re.compile(r"^\(Open file: ([^\n]+)\)$", re.MULTILINE)
_NO_OPEN_FILE = ("n/a", "")
_HARNESS_EXIT = re.compile(r"Exit(?:ing)? due to ")
_ISSUE_TITLE = re.compile(r"(?:^ISSUE:|<pr_description>)\s*(\S[^\n]*)", re.MULTILINE)


class SweAgentStep(NamedTuple):
    """A step of the trajectory."""

    record: dict[str, Any]
    number: int

    @property
    def state(self) -> dict[str, Any]:
        """Open file and working directory before the step. Since 1.0, the state after the step.

        Older versions store the state as JSON text.
        """
        state = self.record.get("state")
        return load_json_object(state) if isinstance(state, str) else as_dict(state)

    @property
    def query(self) -> list[Any]:
        """Messages of the model call; older versions call the field `messages`."""
        return list_at(self.record, "query") or list_at(self.record, "messages")

    def matches_row(self, item: dict[str, Any], *keys: str) -> bool:
        """Return whether a message of the history has the same values for these keys."""
        return all(text_at(self.record, key) == text_at(item, key) for key in keys)


def _read(source: SourceFile) -> list[Session]:
    """Read one run."""
    document = as_dict(source.read_document())
    attempts = [as_dict(attempt) for attempt in list_at(document, "attempts")]
    chosen, others = _select_attempt(document, attempts)
    if not (list_at(chosen, "history") or list_at(chosen, "trajectory")):
        raise ReadError(f"`{source.path}` contains no `history` and no `trajectory`: is it a SWE-agent run?")
    reader = SweAgentReader(source, chosen)
    messages = reader.messages()
    branches = [*reader.branches]
    for number, attempt in others:
        other = SweAgentReader(source, attempt, prefix=f"attempt-{number}-")
        branches += [AbandonedBranch(History(tuple(other.messages()))), *other.branches]
    history = History(tuple(messages))
    folders = (text_at(step.state, "working_dir") for step in reader.steps)
    return [
        make_session(
            NAME,
            source,
            source.path.name.partition(".traj")[0],
            [history],
            branches=(branch for branch in branches if len(branch.history)),
            records=_count_records(chosen, attempts),
            project=next(filter(None, folders), ""),
            title=_make_title(history),
            version=text_at(chosen, "info", "swe_agent_version"),
        )
    ]


def _select_attempt(
    document: dict[str, Any], attempts: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Return the chosen attempt (by default the last one), and each other attempt with its number."""
    best = value_at(document, "info", "best_attempt_idx")
    has_rows = bool(list_at(document, "history") or list_at(document, "trajectory"))
    chosen = best if type(best) is int and has_rows else len(attempts) - 1
    others = [(number, attempt) for number, attempt in enumerate(attempts) if number != chosen]
    return (document if has_rows or not attempts else attempts[-1]), others


def _count_records(run: dict[str, Any], attempts: Sequence[Any]) -> dict[str, int]:
    """Count messages by role, demonstrations, steps and attempts."""
    counts = Counter(
        "demonstration" if value_at(item, "is_demo") is True else text_at(item, "role") or "?"
        for item in list_at(run, "history")
    )
    counts.update({"step": len(list_at(run, "trajectory")), "attempt": len(attempts)})
    return {kind: count for kind, count in counts.items() if count}


def _make_title(history: History) -> str:
    prompts = [message.text for message in history if message.role == "user" and message.author == "human"]
    match = _ISSUE_TITLE.search(prompts[0]) if prompts else None
    return match[1].strip()[:MAX_TITLE_CHARS] if match else title_from_prompt([history])


class SweAgentReader:
    """Reader that converts a history to messages, and matches the messages with the steps of the trajectory."""

    def __init__(self, source: SourceFile, run: dict[str, Any], prefix: str = "") -> None:
        """Prepare to read a run. Every id starts with `prefix`, which is empty for the chosen attempt."""
        self.branches: list[AbandonedBranch] = []
        self.steps = [SweAgentStep(as_dict(step), number) for number, step in enumerate(list_at(run, "trajectory"), 1)]
        self._source = source
        self._rows = list_at(run, "history") or _history_from_steps(self.steps)
        self._prefix = prefix
        self._model = _find_model(run)
        self._pending_calls: dict[str, ToolCall] = {}
        """Calls of the last message that have no result yet, by original id."""
        self._used_ids: set[str] = set()
        self._next_step = 0
        self._open_file = ""
        self._in_demo = False
        self._has_spoken = False
        self._last_message_id = ""

    def messages(self) -> list[Message]:
        """Return the messages of the conversation."""
        messages: list[Message] = []
        for number, row in enumerate(self._rows, 1):
            try:
                message = self._parse_message(as_dict(row), number)
            except RecursionError:
                self._source.report("a message is nested too deeply", "skipped", number)
                continue
            if not message.parts:
                continue
            location = self._source.at(number)
            self._last_message_id = f"{self._prefix}{number}"
            messages.append(replace(message, id=self._last_message_id, source=location, carried=self._in_demo))
        return messages

    def _parse_message(self, item: dict[str, Any], number: int) -> Message:
        content = parse_openai_chat_content(item.get("content"))
        if content is None:
            content = (Unknown(text_at(item, "role"), dump_json(item.get("content"))),)
        is_demo = item.get("is_demo") is True
        if is_demo != self._in_demo:  # the last call of a demonstration has no result
            self._pending_calls, self._in_demo = {}, is_demo
        match item.get("role"):
            case "system":
                return Message("system", content, author="harness")
            case "assistant":
                return self._parse_assistant(item, content, number, is_demo=is_demo)
            case "user" | "tool" if self._pending_calls or item.get("role") == "tool":
                return self._parse_result(item, content, is_demo=is_demo)
            case "user" if not (is_demo or self._has_spoken):
                return Message("user", content, author=infer_message_author("user", content))
            case _ if not item:
                self._source.report("a message is not a JSON object", "skipped", number)
                return Message("user")
            case _:
                return Message("user", content, author="harness")

    def _parse_assistant(
        self, item: dict[str, Any], content: tuple[ResultPart, ...], number: int, *, is_demo: bool
    ) -> Message:
        step = None if is_demo else self._match_step(item)
        if step:
            self._open_file = _find_open_file(step.state) or self._open_file
        author: Author = "harness" if is_demo or _is_harness_exit(item) else "model"
        thought = text_at(item, "thought").strip()
        action = text_at(item, "action")
        text = text_parts(thought) or (() if action.strip() else content)
        calls = self._parse_calls(item, action, number)
        self._pending_calls = calls
        self._has_spoken = self._has_spoken or not is_demo
        parts = (*_parse_thinking(item, step), *text, *calls.values())
        return Message("assistant", parts, author=author, model=self._model if author == "model" else "")

    def _parse_calls(self, item: dict[str, Any], action: str, number: int) -> dict[str, ToolCall]:
        """Return the calls of a message by original id. The id of each call is unique in the session."""
        calls: dict[str, ToolCall] = {}
        for position, wire in enumerate(map(as_dict, list_at(item, "tool_calls")), 1):
            given, name = text_at(wire, "id"), text_at(wire, "function", "name")
            value = value_at(wire, "function", "arguments")
            default = f"call-{number}-{position}"
            key = given if given and given not in calls else default
            calls[key] = ToolCall(self._assign_id(given, default), name, json_text("" if value == "" else value or {}))
        if not calls and action.strip():
            name, arguments = parse_swe_agent_command(action, self._open_file)
            calls[""] = ToolCall(self._assign_id("", f"call-{number}"), name, dump_json(arguments))
        return calls

    def _assign_id(self, given: str, default: str) -> str:
        id_ = f"{self._prefix}{default}" if not given or given in self._used_ids else given
        self._used_ids.add(id_)
        return id_

    def _parse_result(self, item: dict[str, Any], content: tuple[ResultPart, ...], *, is_demo: bool) -> Message:
        given = next((id_ for id_ in list_at(item, "tool_call_ids") if isinstance(id_, str)), "")
        call = self._pending_calls.pop(given, None)
        if call is None and self._pending_calls and not given:
            call = self._pending_calls.pop(next(iter(self._pending_calls)))
        text = "\n".join(part.text for part in content if isinstance(part, Text))
        if open_files := _OPEN_FILE.findall(text):
            self._open_file = open_files[-1] if open_files[-1] not in _NO_OPEN_FILE else ""
        id_, name = (call.id, call.name) if call else (given, "")
        result = ToolResult(id_, content, is_error=is_refused_observation(name, text), name=name)
        return Message("tool", (result,), author="harness" if is_demo else "tool")

    def _match_step(self, item: dict[str, Any]) -> SweAgentStep | None:
        """Return the step that matches a message. The steps that this match skips were retried and become branches."""
        ahead = range(self._next_step, min(self._next_step + MAX_RETRIED_STEPS, len(self.steps)))
        exact = (n for n in ahead if self.steps[n].matches_row(item, "action", "thought"))
        # A person may have edited the thought.
        by_action = (n for n in ahead[:1] if self.steps[n].matches_row(item, "action"))
        match = next(chain(exact, by_action), None)
        if match is None:
            return None
        for n in range(self._next_step, match):
            self.branches.append(AbandonedBranch(History(tuple(self._build_retried_step(n))), self._last_message_id))
        self._next_step = match + 1
        return self.steps[match]

    def _build_retried_step(self, n: int) -> Iterator[Message]:
        """Yield the messages of a retried step: the model's answer, and the response to this answer."""
        step, following = self.steps[n], self.steps[n + 1]
        wire, location = step.record, self._source.at(step.number)
        id_ = f"{self._prefix}step-{step.number}"
        thought, action = text_at(wire, "thought").strip(), text_at(wire, "action")
        open_file = _find_open_file(step.state) or self._open_file
        name, arguments = parse_swe_agent_command(action, open_file) if action.strip() else ("", {})
        call = ToolCall(f"{id_}-call", name, dump_json(arguments))
        parts: tuple[Part, ...] = (*text_parts(thought), *((call,) if name else ()))
        if parts:
            yield Message("assistant", parts, author="model", id=id_, model=self._model, source=location)
        last = as_dict(next(reversed(following.query), None))
        response = text_at(wire, "observation") or (text_at(last, "content") if last.get("role") == "user" else "")
        if response and name:
            result = ToolResult(call.id, (Text(response),), is_error=True, name=name)
            yield Message("tool", (result,), author="tool", id=f"{id_}-result", source=location)
        elif response:
            yield Message("user", (Text(response),), author="harness", id=f"{id_}-answer", source=location)


def _history_from_steps(steps: Sequence[SweAgentStep]) -> list[Any]:
    """Build a history from the steps of a run, for a file without a history."""
    rows: list[Any] = [item for item in (steps[0].query if steps else []) if as_dict(item).get("role")]
    for step in steps:
        fields = {key: step.record.get(key) for key in ("thought", "action", "thinking_blocks")}
        rows.append({"role": "assistant", "content": text_at(step.record, "response"), **fields})
        rows.append({"role": "user", "content": text_at(step.record, "observation")})
    return rows


def _find_open_file(state: dict[str, Any]) -> str:
    found = text_at(state, "open_file")
    return "" if found in _NO_OPEN_FILE else found


def _is_harness_exit(item: dict[str, Any]) -> bool:
    """Return whether the harness wrote this message in the model's name to end the run."""
    action, is_exit = text_at(item, "action").strip(), _HARNESS_EXIT.match(first_text(item, "thought", "content"))
    return bool(is_exit and not item.get("tool_calls") and (not action or EXIT_COMMAND.fullmatch(action)))


def _parse_thinking(item: dict[str, Any], step: SweAgentStep | None) -> list[Thinking]:
    reasoning = text_at(step.record, "reasoning_content") if step else ""
    return parse_thinking_blocks(item) or ([Thinking(reasoning)] if reasoning else [])


def _find_model(run: dict[str, Any]) -> str:
    config = run.get("replay_config")
    agent = value_at(load_json_object(config) if isinstance(config, str) else config, "agent")
    name = text_at(agent, "model", "name")
    return "" if name in NON_MODEL_NAMES else name


def _sniff(source: SourceFile) -> int:
    """Match steps with an action and an observation, or a history with thoughts and actions."""
    document = source.document
    if not isinstance(document, dict):
        return 0
    runs = [document, *map(as_dict, list_at(document, "attempts")[:1])]
    steps = [as_dict(step) for run in runs for step in list_at(run, "trajectory")[:3]]
    if any({"action", "observation", "thought", "response"} <= step.keys() for step in steps):
        return 3
    rows = [row for run in runs for row in map(as_dict, list_at(run, "history")) if row.get("role") == "assistant"]
    return 3 if any({"agent", "thought", "action"} <= row.keys() for row in rows) else 0


FORMAT = TranscriptFormat(
    NAME,
    "SWE-agent",
    _sniff,
    _read,
    layouts="`.traj`, with commands as text or as tool calls; several attempts in one file",
    holds=("thinking", "edits", "rewinds"),
    seen="0.x and 1.0",
)
