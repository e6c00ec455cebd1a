"""SWE-agent: one JSON document a run (`.traj`), the conversation under `history`, each step under `trajectory`.

A model that has no tools writes its command as text: a thought and an action, which become words and a call; what the
user's role says next is the result. Later versions keep the tool calls of the API beside them. Demonstrations stand at
the start of the history as the model saw them: they are the harness's.

A step that the model was asked to do again is in the trajectory alone, since the history forgets it; so it was taken
back. An agent that tries several times keeps all its attempts, and the history of the one that was chosen.

A document has no lines: a message's place is its number in the history, or that of its step where it was taken back.
Tokens are told for the whole run only.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.dialects.openai_chat.codec import parse_openai_chat_content
from thresher.errors import ReadError
from thresher.model import AbandonedBranch, Author, History, Message, Session
from thresher.model.jsontext import dump_json, load_json_object
from thresher.model.parts import Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import MAX_TITLE_CHARS, TranscriptFormat, make_session, title_from_prompt
from thresher.transcripts.coerce import as_dict, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, text_parts
from thresher.transcripts.source import SourceFile
from thresher.transcripts.swe_agent.actions import EXIT_COMMAND, is_refused_observation, parse_swe_agent_command

NAME = "swe-agent"
NON_MODEL_NAMES = frozenset(("replay", "human", "human_thought", "instant_empty_submit"))
"""What stands in a model's place when a person, or an old run, plays it."""
MAX_RETRIED_STEPS = 20
"""How many steps in a row may have been done again."""
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
        """What was open and where, before the step or (since 1.0) after it; older versions wrote it as text."""
        state = self.record.get("state")
        return load_json_object(state) if isinstance(state, str) else as_dict(state)

    def matches_row(self, item: dict[str, Any], *keys: str) -> bool:
        """Whether this is the step that a message of the history tells of, by its action or its thought, or both."""
        return all(text_at(self.record, key) == text_at(item, key) for key in keys)


def _read(source: SourceFile) -> list[Session]:
    """One run."""
    document = as_dict(source.read_document())
    attempts = [as_dict(attempt) for attempt in list_at(document, "attempts")]
    chosen, others = _select_attempt(document, attempts)
    if not (_history_rows(chosen) or _trajectory_rows(chosen)):
        raise ReadError(f"`{source.path}` holds no `history` and no `trajectory`; is it a SWE-agent run?")
    info = dict_at(chosen, "info")
    reader = SweAgentReader(source, chosen)
    messages = reader.messages()
    branches = [*reader.branches]
    for number, attempt in others:
        other = SweAgentReader(source, attempt, prefix=f"attempt-{number}-")
        branches += [AbandonedBranch(History(tuple(other.messages()))), *other.branches]
    history = History(tuple(messages))
    return [
        make_session(
            NAME,
            source,
            source.path.name.partition(".traj")[0],
            [history],
            branches=(branch for branch in branches if len(branch.history)),
            records=_count_records(chosen, attempts),
            project=next((found for step in reader.steps if (found := text_at(step.state, "working_dir"))), ""),
            title=_make_title(history),
            version=text_at(info, "swe_agent_version"),
        )
    ]


def _history_rows(run: dict[str, Any]) -> list[Any]:
    return list_at(run, "history")


def _trajectory_rows(run: dict[str, Any]) -> list[Any]:
    return list_at(run, "trajectory")


def _select_attempt(
    document: dict[str, Any], attempts: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The attempt that counts, and the others by number: the last one counts until one is chosen."""
    best = value_at(document, "info", "best_attempt_idx")
    told = bool(_history_rows(document) or _trajectory_rows(document))
    last = best if type(best) is int and told else len(attempts) - 1
    others = [(number, attempt) for number, attempt in enumerate(attempts) if number != last]
    return (document if told or not attempts else attempts[-1]), others


def _count_records(run: dict[str, Any], attempts: Sequence[Any]) -> dict[str, int]:
    """Messages by role, demonstrations apart; steps and attempts."""
    counts = Counter(
        "demonstration" if value_at(item, "is_demo") is True else text_at(item, "role") or "?"
        for item in _history_rows(run)
    )
    counts.update({"step": len(_trajectory_rows(run)), "attempt": len(attempts)})
    return {kind: count for kind, count in counts.items() if count}


def _make_title(history: History) -> str:
    prompts = [message.text for message in history if message.role == "user" and message.author == "human"]
    found = _ISSUE_TITLE.search(prompts[0]) if prompts else None
    return found[1].strip()[:MAX_TITLE_CHARS] if found else title_from_prompt([history])


class SweAgentReader:
    """Goes through a history once, with the steps beside it."""

    def __init__(self, source: SourceFile, run: dict[str, Any], prefix: str = "") -> None:
        """`prefix` goes before every id: that of an attempt that was not chosen."""
        self.branches: list[AbandonedBranch] = []
        self.steps = [SweAgentStep(as_dict(step), number) for number, step in enumerate(_trajectory_rows(run), 1)]
        self._source = source
        self._rows = _history_rows(run) or _history_from_steps(self.steps)
        self._prefix = prefix
        self._model = _find_model(run)
        self._pending_calls: dict[str, ToolCall] = {}
        """Calls of the last message that have no result yet, by the id they came with."""
        self._used_ids: set[str] = set()
        self._next_step = 0
        self._open_file = ""
        self._in_demo = False
        self._has_spoken = False
        self._last_message_id = ""

    def messages(self) -> list[Message]:
        """The conversation."""
        found: list[Message] = []
        for number, row in enumerate(self._rows, 1):
            try:
                message = self._parse_message(as_dict(row), number)
            except RecursionError:
                self._source.report("a message is nested too deep to follow", "skipped", number)
                continue
            if not message.parts:
                continue
            place = self._source.at(number)
            self._last_message_id = f"{self._prefix}{number}"
            found.append(replace(message, id=self._last_message_id, source=place, carried=self._in_demo))
        return found

    def _parse_message(self, item: dict[str, Any], number: int) -> Message:
        content = parse_openai_chat_content(item.get("content"))
        if content is None:
            content = (Unknown(text_at(item, "role"), dump_json(item.get("content"))),)
        is_demo = item.get("is_demo") is True
        if is_demo != self._in_demo:  # nothing answers the last call of a demonstration
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
                self._source.report("a message is no object", "skipped", number)
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
        words = (Text(thought),) if thought else () if action.strip() else content
        calls = self._parse_calls(item, action, number)
        self._pending_calls = calls
        self._has_spoken = self._has_spoken or not is_demo
        parts = (*_parse_thinking(item, step), *words, *calls.values())
        return Message("assistant", parts, author=author, model=self._model if author == "model" else "")

    def _parse_calls(self, item: dict[str, Any], action: str, number: int) -> dict[str, ToolCall]:
        """The calls by the ids they came with, each with one that no other has."""
        found: dict[str, ToolCall] = {}
        for place, wire in enumerate(map(as_dict, list_at(item, "tool_calls")), 1):
            given, name = text_at(wire, "id"), text_at(wire, "function", "name")
            said = value_at(wire, "function", "arguments")
            arguments = json_text("" if said == "" else said or {})
            key = given if given and given not in found else f"call-{number}-{place}"
            found[key] = ToolCall(self._assign_id(given, f"call-{number}-{place}"), name, arguments)
        if not found and action.strip():
            name, named = parse_swe_agent_command(action, self._open_file)
            found[""] = ToolCall(self._assign_id("", f"call-{number}"), name, dump_json(named))
        return found

    def _assign_id(self, given: str, place: str) -> str:
        name = f"{self._prefix}{place}" if not given or given in self._used_ids else given
        self._used_ids.add(name)
        return name

    def _parse_result(self, item: dict[str, Any], content: tuple[ResultPart, ...], *, is_demo: bool) -> Message:
        told = next((id_ for id_ in list_at(item, "tool_call_ids") if isinstance(id_, str)), "")
        call = self._pending_calls.pop(told, None)
        if call is None and self._pending_calls and not told:
            call = self._pending_calls.pop(next(iter(self._pending_calls)))
        words = "\n".join(part.text for part in content if isinstance(part, Text))
        shown = _OPEN_FILE.findall(words)
        if shown:
            self._open_file = shown[-1] if shown[-1] not in _NO_OPEN_FILE else ""
        name = call.name if call else ""
        result = ToolResult(call.id if call else told, content, is_error=is_refused_observation(name, words), name=name)
        return Message("tool", (result,), author="harness" if is_demo else "tool")

    def _match_step(self, item: dict[str, Any]) -> SweAgentStep | None:
        """The step that a message tells of; those passed over were done again."""
        ahead = range(self._next_step, min(self._next_step + MAX_RETRIED_STEPS, len(self.steps)))
        found = next((n for n in ahead if self.steps[n].matches_row(item, "action", "thought")), None)
        if found is None:  # demonstrations were reworded by hand
            found = next((n for n in ahead[:1] if self.steps[n].matches_row(item, "action")), None)
        if found is None:
            return None
        for n in range(self._next_step, found):
            self.branches.append(AbandonedBranch(History(tuple(self._build_retried_step(n))), self._last_message_id))
        self._next_step = found + 1
        return self.steps[found]

    def _build_retried_step(self, n: int) -> Iterator[Message]:
        """A step that was refused: what the model said, and what it was told before it tried again."""
        wire, place = self.steps[n].record, self._source.at(self.steps[n].number)
        id_ = f"{self._prefix}step-{self.steps[n].number}"
        thought, action = text_at(wire, "thought").strip(), text_at(wire, "action")
        open_file = _find_open_file(self.steps[n].state) or self._open_file
        name, named = parse_swe_agent_command(action, open_file) if action.strip() else ("", {})
        call = ToolCall(f"{id_}-call", name, dump_json(named))
        parts: tuple[Part, ...] = (*text_parts(thought), *((call,) if name else ()))
        if parts:
            yield Message("assistant", parts, author="model", id=id_, model=self._model, source=place)
        query = list_at(self.steps[n + 1].record, "query") or list_at(self.steps[n + 1].record, "messages")
        asked = as_dict(query[-1]) if query else {}
        told = text_at(wire, "observation") or (text_at(asked, "content") if asked.get("role") == "user" else "")
        if told and name:
            result = ToolResult(call.id, (Text(told),), is_error=True, name=name)
            yield Message("tool", (result,), author="tool", id=f"{id_}-result", source=place)
        elif told:
            yield Message("user", (Text(told),), author="harness", id=f"{id_}-answer", source=place)


def _history_from_steps(steps: Sequence[SweAgentStep]) -> list[Any]:
    """What a history would be, from a trajectory without one."""
    first = list_at(steps[0].record, "query") or list_at(steps[0].record, "messages") if steps else []
    rows: list[Any] = [item for item in first if isinstance(item, dict) and item.get("role")]
    for step in steps:
        said = {key: step.record.get(key) for key in ("thought", "action", "thinking_blocks")}
        rows.append({"role": "assistant", "content": text_at(step.record, "response"), **said})
        rows.append({"role": "user", "content": text_at(step.record, "observation")})
    return rows


def _find_open_file(state: dict[str, Any]) -> str:
    found = text_at(state, "open_file")
    return "" if found in _NO_OPEN_FILE else found


def _is_harness_exit(item: dict[str, Any]) -> bool:
    """Whether the harness ended the run in the model's name."""
    action, is_exit = text_at(item, "action").strip(), _HARNESS_EXIT.match(first_text(item, "thought", "content"))
    return bool(is_exit and not item.get("tool_calls") and (not action or EXIT_COMMAND.fullmatch(action)))


def _parse_thinking(item: dict[str, Any], step: SweAgentStep | None) -> list[Thinking]:
    blocks = map(as_dict, list_at(item, "thinking_blocks"))
    found = [Thinking(text_at(b, "thinking"), first_text(b, "signature", "data")) for b in blocks]
    told = text_at(step.record, "reasoning_content") if step else ""
    return [one for one in found if one.text or one.signature] or ([Thinking(told)] if told else [])


def _find_model(run: dict[str, Any]) -> str:
    config = run.get("replay_config")
    agent = value_at(load_json_object(config) if isinstance(config, str) else config, "agent")
    name = text_at(agent, "model", "name")
    return "" if name in NON_MODEL_NAMES else name


def _sniff(source: SourceFile) -> int:
    """Steps with an action and an observation, or a history whose agent has thoughts and actions."""
    document = source.document
    if not isinstance(document, dict):
        return 0
    runs = [document, *(one for one in list_at(document, "attempts")[:1] if isinstance(one, dict))]
    steps = [step for run in runs for step in _trajectory_rows(run)[:3] if isinstance(step, dict)]
    if any({"action", "observation", "thought", "response"} <= step.keys() for step in steps):
        return 3
    rows = [row for run in runs for row in map(as_dict, _history_rows(run)) if row.get("role") == "assistant"]
    return 3 if any({"agent", "thought", "action"} <= row.keys() for row in rows) else 0


FORMAT = TranscriptFormat(
    NAME,
    "SWE-agent",
    _sniff,
    _read,
    layouts="`.traj`, with commands as text or as tool calls; several attempts in one",
    holds=("thinking", "edits", "rewinds"),
    seen="0.x and 1.0",
)
