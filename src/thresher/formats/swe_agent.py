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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from thresher.errors import ReadError
from thresher.formats.dialect import author_for
from thresher.formats.loose import at, fields, items, text
from thresher.formats.openai_chat import parse_content
from thresher.formats.source import SourceFile
from thresher.formats.swe_agent_actions import EXIT, call_of, is_refused
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, first_prompt
from thresher.model import (
    Author,
    Branch,
    History,
    Message,
    Session,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from thresher.model.jsontext import dump, load_fields
from thresher.model.parts import Part, ResultPart

NAME = "swe-agent"
NO_MODELS = frozenset(("replay", "human", "human_thought", "instant_empty_submit"))
"""What stands in a model's place when a person, or an old run, plays it."""
LOOK_AHEAD = 20
"""How many steps in a row may have been done again."""
_OPEN_FILE = re.compile(r"^\(Open file: ([^\n]+)\)$", re.MULTILINE)
_NONE_OPEN = ("n/a", "")
_ENDED = re.compile(r"Exit(?:ing)? due to ")
_ISSUE = re.compile(r"(?:^ISSUE:|<pr_description>)\s*(\S[^\n]*)", re.MULTILINE)


class Step(NamedTuple):
    """A step of the trajectory."""

    wire: dict[str, Any]
    number: int

    @property
    def state(self) -> dict[str, Any]:
        """What was open and where, before the step or (since 1.0) after it; older versions wrote it as text."""
        state = self.wire.get("state")
        return load_fields(state) if isinstance(state, str) else fields(state)

    def did(self, item: dict[str, Any], *keys: str) -> bool:
        """Whether this is the step that a message of the history tells of, by its action or its thought, or both."""
        return all(text(self.wire.get(key)) == text(item.get(key)) for key in keys)


def read(source: SourceFile) -> list[Session]:
    """One run."""
    document = fields(source.take_document())
    attempts = [fields(attempt) for attempt in items(document.get("attempts"))]
    chosen, others = _chosen(document, attempts)
    if not (_history(chosen) or _steps(chosen)):
        raise ReadError(f"`{source.path}` holds no `history` and no `trajectory`; is it a SWE-agent run?")
    info = fields(chosen.get("info"))
    reader = Reader(source, chosen)
    messages = reader.messages()
    branches = [*reader.branches]
    for number, attempt in others:
        other = Reader(source, attempt, prefix=f"attempt-{number}-")
        branches += [Branch(History(tuple(other.messages()))), *other.branches]
    history = History(tuple(messages))
    return [
        Session(
            agent=NAME,
            id=source.path.name.partition(".traj")[0],
            file=str(source.path),
            segments=(history,),
            branches=tuple(branch for branch in branches if len(branch.history)),
            problems=tuple(source.problems),
            records=_records(chosen, attempts),
            project=next((found for step in reader.steps if (found := text(step.state.get("working_dir")))), ""),
            title=_title(history),
            version=text(info.get("swe_agent_version")),
        )
    ]


def _history(run: dict[str, Any]) -> list[Any]:
    return items(run.get("history"))


def _steps(run: dict[str, Any]) -> list[Any]:
    return items(run.get("trajectory"))


def _chosen(
    document: dict[str, Any], attempts: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The attempt that counts, and the others by number: the last one counts until one is chosen."""
    best = at(document, "info", "best_attempt_idx")
    told = bool(_history(document) or _steps(document))
    last = best if type(best) is int and told else len(attempts) - 1
    others = [(number, attempt) for number, attempt in enumerate(attempts) if number != last]
    return (document if told or not attempts else attempts[-1]), others


def _records(run: dict[str, Any], attempts: Sequence[Any]) -> dict[str, int]:
    """Messages by role, demonstrations apart; steps and attempts."""
    counts = Counter(
        "demonstration" if fields(item).get("is_demo") is True else text(fields(item).get("role")) or "?"
        for item in _history(run)
    )
    counts.update({"step": len(_steps(run)), "attempt": len(attempts)})
    return {kind: count for kind, count in counts.items() if count}


def _title(history: History) -> str:
    prompts = [message.text for message in history if message.role == "user" and message.author == "human"]
    found = _ISSUE.search(prompts[0]) if prompts else None
    return found[1].strip()[:TITLE] if found else first_prompt([history])


class Reader:
    """Goes through a history once, with the steps beside it."""

    def __init__(self, source: SourceFile, run: dict[str, Any], prefix: str = "") -> None:
        """`prefix` goes before every id: that of an attempt that was not chosen."""
        self.branches: list[Branch] = []
        self.steps = [Step(fields(step), number) for number, step in enumerate(_steps(run), 1)]
        self._source = source
        self._rows = _history(run) or _as_history(self.steps)
        self._prefix = prefix
        self._model = _model(run)
        self._waiting: dict[str, ToolCall] = {}
        """Calls of the last message that have no result yet, by the id they came with."""
        self._seen: set[str] = set()
        self._next = 0
        self._open_file = ""
        self._in_demo = False
        self._has_spoken = False
        self._last = ""

    def messages(self) -> list[Message]:
        """The conversation."""
        found: list[Message] = []
        for number, row in enumerate(self._rows, 1):
            try:
                message = self._message(fields(row), number)
            except RecursionError:
                self._source.problem("a message is nested too deep to follow", "skipped", number)
                continue
            if not message.parts:
                continue
            place = Source(str(self._source.path), number)
            self._last = f"{self._prefix}{number}"
            found.append(structs.replace(message, id=self._last, source=place, carried=self._in_demo))
        return found

    def _message(self, item: dict[str, Any], number: int) -> Message:
        content = parse_content(item.get("content"))
        if content is None:
            content = (Unknown(text(item.get("role")), dump(item.get("content"))),)
        is_demo = item.get("is_demo") is True
        if is_demo != self._in_demo:  # nothing answers the last call of a demonstration
            self._waiting, self._in_demo = {}, is_demo
        match item.get("role"):
            case "system":
                return Message("system", content, author="harness")
            case "assistant":
                return self._said(item, content, number, is_demo=is_demo)
            case "user" | "tool" if self._waiting or item.get("role") == "tool":
                return self._answer(item, content, is_demo=is_demo)
            case "user" if not (is_demo or self._has_spoken):
                return Message("user", content, author=author_for("user", content))
            case _ if not item:
                self._source.problem("a message is no object", "skipped", number)
                return Message("user")
            case _:
                return Message("user", content, author="harness")

    def _said(self, item: dict[str, Any], content: tuple[ResultPart, ...], number: int, *, is_demo: bool) -> Message:
        step = None if is_demo else self._step_of(item)
        if step:
            self._open_file = _open_file(step.state) or self._open_file
        author: Author = "harness" if is_demo or _is_exit(item) else "model"
        thought = text(item.get("thought")).strip()
        action = text(item.get("action"))
        words = (Text(thought),) if thought else () if action.strip() else content
        calls = self._calls(item, action, number)
        self._waiting = calls
        self._has_spoken = self._has_spoken or not is_demo
        parts = (*_thinking(item, step), *words, *calls.values())
        return Message("assistant", parts, author=author, model=self._model if author == "model" else "")

    def _calls(self, item: dict[str, Any], action: str, number: int) -> dict[str, ToolCall]:
        """The calls by the ids they came with, each with one that no other has."""
        found: dict[str, ToolCall] = {}
        for place, wire in enumerate(map(fields, items(item.get("tool_calls"))), 1):
            given, name = text(wire.get("id")), text(at(wire, "function", "name"))
            said = at(wire, "function", "arguments")
            arguments = said if isinstance(said, str) else dump(said or {})
            key = given if given and given not in found else f"call-{number}-{place}"
            found[key] = ToolCall(self._own_id(given, f"call-{number}-{place}"), name, arguments)
        if not found and action.strip():
            name, named = call_of(action, self._open_file)
            found[""] = ToolCall(self._own_id("", f"call-{number}"), name, dump(named))
        return found

    def _own_id(self, given: str, place: str) -> str:
        name = f"{self._prefix}{place}" if not given or given in self._seen else given
        self._seen.add(name)
        return name

    def _answer(self, item: dict[str, Any], content: tuple[ResultPart, ...], *, is_demo: bool) -> Message:
        told = next((id_ for id_ in items(item.get("tool_call_ids")) if isinstance(id_, str)), "")
        call = self._waiting.pop(told, None)
        if call is None and self._waiting and not told:
            call = self._waiting.pop(next(iter(self._waiting)))
        words = "\n".join(part.text for part in content if isinstance(part, Text))
        shown = _OPEN_FILE.findall(words)
        if shown:
            self._open_file = shown[-1] if shown[-1] not in _NONE_OPEN else ""
        name = call.name if call else ""
        result = ToolResult(call.id if call else told, content, is_error=is_refused(name, words), name=name)
        return Message("tool", (result,), author="harness" if is_demo else "tool")

    def _step_of(self, item: dict[str, Any]) -> Step | None:
        """The step that a message tells of; those passed over were done again."""
        ahead = range(self._next, min(self._next + LOOK_AHEAD, len(self.steps)))
        found = next((n for n in ahead if self.steps[n].did(item, "action", "thought")), None)
        if found is None:  # demonstrations were reworded by hand
            found = next((n for n in ahead[:1] if self.steps[n].did(item, "action")), None)
        if found is None:
            return None
        for n in range(self._next, found):
            self.branches.append(Branch(History(tuple(self._taken_back(n))), self._last))
        self._next = found + 1
        return self.steps[found]

    def _taken_back(self, n: int) -> Iterator[Message]:
        """A step that was refused: what the model said, and what it was told before it tried again."""
        wire, place = self.steps[n].wire, Source(str(self._source.path), self.steps[n].number)
        id_ = f"{self._prefix}step-{self.steps[n].number}"
        thought, action = text(wire.get("thought")).strip(), text(wire.get("action"))
        name, named = (
            call_of(action, _open_file(self.steps[n].state) or self._open_file) if action.strip() else ("", {})
        )
        call = ToolCall(f"{id_}-call", name, dump(named))
        parts: tuple[Part, ...] = (*((Text(thought),) if thought else ()), *((call,) if name else ()))
        if parts:
            yield Message("assistant", parts, author="model", id=id_, model=self._model, source=place)
        query = items(self.steps[n + 1].wire.get("query")) or items(self.steps[n + 1].wire.get("messages"))
        asked = fields(query[-1]) if query else {}
        told = text(wire.get("observation")) or (text(asked.get("content")) if asked.get("role") == "user" else "")
        if told and name:
            result = ToolResult(call.id, (Text(told),), is_error=True, name=name)
            yield Message("tool", (result,), author="tool", id=f"{id_}-result", source=place)
        elif told:
            yield Message("user", (Text(told),), author="harness", id=f"{id_}-answer", source=place)


def _as_history(steps: Sequence[Step]) -> list[Any]:
    """What a history would be, from a trajectory without one."""
    first = items(steps[0].wire.get("query")) or items(steps[0].wire.get("messages")) if steps else []
    rows: list[Any] = [item for item in first if isinstance(item, dict) and item.get("role")]
    for step in steps:
        said = {key: step.wire.get(key) for key in ("thought", "action", "thinking_blocks")}
        rows.append({"role": "assistant", "content": text(step.wire.get("response")), **said})
        rows.append({"role": "user", "content": text(step.wire.get("observation"))})
    return rows


def _open_file(state: dict[str, Any]) -> str:
    found = text(state.get("open_file"))
    return "" if found in _NONE_OPEN else found


def _is_exit(item: dict[str, Any]) -> bool:
    """Whether the harness ended the run in the model's name."""
    action, said = text(item.get("action")).strip(), text(item.get("thought")) or text(item.get("content"))
    return bool(_ENDED.match(said)) and not item.get("tool_calls") and (not action or bool(EXIT.fullmatch(action)))


def _thinking(item: dict[str, Any], step: Step | None) -> list[Thinking]:
    blocks = map(fields, items(item.get("thinking_blocks")))
    found = [Thinking(text(b.get("thinking")), text(b.get("signature")) or text(b.get("data"))) for b in blocks]
    told = text(step.wire.get("reasoning_content")) if step else ""
    return [one for one in found if one.text or one.signature] or ([Thinking(told)] if told else [])


def _model(run: dict[str, Any]) -> str:
    config = run.get("replay_config")
    agent = at(load_fields(config) if isinstance(config, str) else config, "agent")
    name = text(at(agent, "model", "name"))
    return "" if name in NO_MODELS else name


def sniff(source: SourceFile) -> int:
    """Steps with an action and an observation, or a history whose agent has thoughts and actions."""
    document = source.document
    if not isinstance(document, dict):
        return 0
    runs = [document, *(one for one in items(document.get("attempts"))[:1] if isinstance(one, dict))]
    steps = [step for run in runs for step in _steps(run)[:3] if isinstance(step, dict)]
    if any({"action", "observation", "thought", "response"} <= step.keys() for step in steps):
        return 3
    rows = [row for run in runs for row in map(fields, _history(run)) if row.get("role") == "assistant"]
    return 3 if any({"agent", "thought", "action"} <= row.keys() for row in rows) else 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:  # noqa: ARG001 - a format's homes depend on both
    """None: runs are written to `trajectories/` in the folder that SWE-agent is started in."""
    return []


FORMAT = TranscriptFormat(
    NAME,
    "SWE-agent",
    sniff,
    read,
    homes,
    layouts="`.traj`, with commands as text or as tool calls; several attempts in one",
    holds=("thinking", "edits", "rewinds"),
    seen="0.x and 1.0",
)
