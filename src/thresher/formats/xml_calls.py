"""Tool calls that are written as XML in an agent's words, and the answers to them in the user's role.

Cline, Roo and their kin let a model write `<read_file><path>a.py</path></read_file>`, and put a line
`[read_file for 'a.py'] Result:` with what the tool gave into the next user message, beside the editor's state and what
a human said to it. Forge wraps the call as `<tool><tool_name>read_file</tool_name>…</tool>`. Here an element is read as
those agents read it: it opens a line, a parameter ends where its tag is first closed, the text of a file where its tag
is last closed, and what is never closed is no call.

All tags of a text are found in one pass and looked up by name, so the time does not grow with the square of its length.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

from thresher.model import Image, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.jsontext import dump
from thresher.model.marks import author_of
from thresher.model.message import Author
from thresher.model.parts import Part, ResultPart
from thresher.model.tool_table import tool_named

_NAMES = (
    # Cline
    "ask_followup_question attempt_completion execute_command replace_in_file read_file write_to_file search_files",
    "list_files list_code_definition_names browser_action use_mcp_tool access_mcp_resource load_mcp_documentation",
    "new_task plan_mode_respond plan_mode_response act_mode_respond focus_chain web_fetch web_search condense",
    "summarize_task report_bug new_rule apply_patch generate_explanation use_skill use_subagents search_subagent",
    # Roo and Kilo
    "apply_diff insert_content search_and_replace search_replace edit_file switch_mode fetch_instructions",
    "codebase_search update_todo_list run_slash_command generate_image read_command_output fast_edit_file delete_file",
)
TOOLS = frozenset(name for group in _NAMES for name in group.split())
"""The tools that Cline, Roo and Kilo have had under such names."""
WRAPPER = "tool"
"""Forge's element around any call."""
THOUGHTS = frozenset(("thinking", "think"))

WHOLE = frozenset(("content", "diff"))
"""Parameters whose text is kept but for the line breaks at its ends."""
NESTED = frozenset(("args", "follow_up"))
"""Parameters that hold others."""
DEPTH = 3

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]{0,60})>")


class Element(NamedTuple):
    """A call, or a thought, and where in the text it stands."""

    name: str
    start: int
    stop: int
    fields: dict[str, Any]
    """Its parameters; the words of a thought under an empty name."""


class _Tags:
    """Every tag of a text, and where each name is closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found = list(_TAG.finditer(text))
        self.closings: dict[str, list[int]] = defaultdict(list)
        for place, tag in enumerate(self.found):
            if tag[1]:
                self.closings[tag[2]].append(place)

    def closing(self, name: str, after: int) -> int | None:
        """The first tag after a place that closes the name."""
        places = self.closings.get(name, ())
        at = bisect_right(places, after)
        return places[at] if at < len(places) else None

    def inside(self, opening: int, closing: int) -> str:
        return self.text[self.found[opening].end() : self.found[closing].start()]

    def fields(self, outer: str, place: int, depth: int = 0) -> tuple[dict[str, Any], int] | None:
        """The parameters from a place on, and the tag that closes what they are in; None where nothing does."""
        fields: dict[str, Any] = {}
        position = self.found[place - 1].end() if place else 0
        words: list[str] = []
        while place < len(self.found):
            tag = self.found[place]
            closing = self._ending(outer, place) if not tag[1] else None
            if closing is not None:
                words.append(self.text[position : tag.start()])
                _add(fields, tag[2], _value(tag[2], self.inside(place, closing), depth))
                place, position = closing, self.found[closing].end()
            elif tag[1] and tag[2] == outer:
                words.append(self.text[position : tag.start()])
                if said := " ".join(filter(None, map(str.strip, words))):
                    _add(fields, "text", said)
                return fields, place
            place += 1
        return None

    def _ending(self, outer: str, opening: int) -> int | None:
        """Where a parameter ends: the text of a file may itself hold the tag that would close it."""
        name = self.found[opening][2]
        closing = self.closing(name, opening) if name != outer else None
        stop = self.closing(outer, closing) if closing is not None and name == "content" else None
        return closing if stop is None else self.closings[name][bisect_left(self.closings[name], stop) - 1]


def _add(fields: dict[str, Any], name: str, value: Any) -> None:
    """One more parameter; `args` is only a wrapper, and one that comes twice is a list."""
    if name == "args" and isinstance(value, dict):
        for key, inner in value.items():
            _add(fields, key, inner)
    elif name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def _value(name: str, text: str, depth: int) -> Any:
    if name in WHOLE:
        return text.removeprefix("\n").removesuffix("\n")
    if (name in NESTED or depth) and depth < DEPTH and text.lstrip().startswith("<"):
        tags = _Tags(f"{text}</{WRAPPER}>")  # so that the end of the value ends its fields
        fields, end = tags.fields(WRAPPER, 0, depth + 1) or ({}, 0)
        if fields and "text" not in fields and end == len(tags.found) - 1:
            return fields
    return text.strip()


def elements(text: str, is_tool: Callable[[str], bool]) -> Iterator[Element]:
    """Every element of that name which opens a line, or follows straight upon another, and is closed."""
    tags = _Tags(text)
    place, end = 0, 0
    while place < len(tags.found):
        tag = tags.found[place]
        name = tag[2]
        closing = tags.closing(name, place) if not tag[1] and is_tool(name) else None
        if closing is None or not _opens_line(text, tag.start(), end):
            place += 1
            continue
        found = ({"": tags.inside(place, closing)}, closing) if name in THOUGHTS else tags.fields(name, place + 1)
        if found is None:
            return  # for its agent, too, all that follows is a part of what was never closed
        fields, closing = found
        place, end = closing + 1, tags.found[closing].end()
        called = fields.pop("tool_name", None) if name == WRAPPER else name
        if isinstance(called, str):
            yield Element(called, tag.start(), end, fields)


def _opens_line(text: str, start: int, end: int) -> bool:
    while start > end and text[start - 1] in " \t":
        start -= 1
    return start <= end or text[start - 1] == "\n"


def split_calls(text: str, ids: Iterator[str]) -> list[Part]:
    """A model's words, its thoughts and its calls, in the order they stand."""
    parts: list[Part] = []
    position = 0
    for name, start, stop, fields in elements(text, _is_part):
        parts += _words(text[position:start])
        position = stop
        if name in THOUGHTS:
            parts.append(Thinking(fields[""].strip()))
        else:
            parts.append(ToolCall(next(ids), name, dump(fields)))
    return [*parts, *_words(text[position:])] if parts else [Text(text)]


def _is_part(name: str) -> bool:
    return name in TOOLS or name in THOUGHTS or name == WRAPPER


def _words(text: str) -> list[Part]:
    return [Text(text.strip())] if text.strip() else []


# The answers

_HEADER = re.compile(r"\s*(?:\[(\w[\w.\-]*)(?=(?P<bare>\])| (?:for|to|in) )|Tool '(\w[\w.\-]*)' [Rr]esult:)")
_RESULT = "] Result:"
_SKIPPED = re.compile(
    r"\s*(?:Skipping tool|Tool) (?:\[(\w[\w.\-]*).{0,500}?\] )?"
    r"(?:was (?:interrupted and )?not executed|due to user rejecting)",
    re.DOTALL,
)
_ASIDE = re.compile(
    r"\s*(?:<(?:environment_details|system_notice|explicit_instructions|system-reminder|task)>|\[TASK RESUMPTION\]"
    r"|\[ERROR\] You did not use a tool|New (?:instructions for task continuation|message to respond to)"
    r"|(?P<notice># (?:task_progress|TODO LIST)\b|Warning: this is a legacy conversation))",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\s*(?:The tool execution failed|The user denied this operation|Invalid JSON argument used"
    r"|Missing value for required parameter|This tool cannot be used in|<files>\s*<file><path>[^<]*</path><error>"
    r"|\{\"status\":\s?\"(?:error|denied)\"|Tool '[^'\n]*' does not exist on server"
    r"|Command execution was not successful|Command executed in terminal[^\n]*Exit code: -?[1-9])"
)
_ERROR = re.compile(r"\s*(?:\[ERROR\]|Error:|<error>)")
_SAID = re.compile(r"</(feedback|user_message|answer|user_feedback)>\s*\Z")
_ASKED = re.compile(r"[^\n]*(?:[Tt]he user |New (?:instructions|message) )")
SAID_END = 40
"""Characters that the last tag of a human's words takes, with what may stand after it."""


def header_of(text: str) -> tuple[str, int] | None:
    """The tool that a text answers, and where the line that says so ends."""
    found = _HEADER.match(text)
    if found is None or found[3]:
        return (found[3], found.end()) if found else None
    if found["bare"] is not None:
        stop = found.end() if text.startswith(_RESULT, found.end()) else -1
    else:
        stop = text.find(_RESULT, found.end())
    return (found[1], stop + len(_RESULT)) if stop >= 0 else None


def has_failed(text: str, name: str) -> bool:
    """Whether a tool's answer says that it could not do what was asked; a file that was read may say anything."""
    if _FAILED.match(text):
        return True
    return _ERROR.match(text) is not None and tool_named(name).category != "file_read"


def part_human(text: str) -> tuple[str, str]:
    """A tool's words, and behind them those of a human who spoke to the call."""
    closing = _SAID.search(text, max(len(text) - SAID_END, 0))
    start = text.rfind(f"<{closing[1]}>") if closing else -1
    if start < 0:
        return text, ""
    before = text[:start].rstrip()
    line = before.rfind("\n") + 1
    if before and not _ASKED.match(before, line):
        return text, ""
    return text[:line], text[line:]


class Sorted(NamedTuple):
    """A user's message by who speaks in it."""

    results: list[ToolResult]
    rest: list[Part]
    author: Author
    """Of the rest."""


class _Answers:
    """The parts of one message, as they are given to the calls before it."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self.waiting: dict[str, deque[ToolCall]] = defaultdict(deque)
        self.answered: dict[str, ToolCall] = {}
        for call in calls:
            self.waiting[call.name.lower()].append(call)
        self.content: dict[str, list[ResultPart]] = {}
        self.failed: set[str] = set()
        self.names: dict[str, str] = {}
        self.rest: list[Part] = []
        self.voices: list[Author] = []
        self.target: ToolCall | Author = "human"
        """The call that is being answered; else who speaks: `tool` where the call is not there."""

    def take(self, part: Part) -> None:
        match part:
            case Text():
                self._text(part.text)
            case Image() | Unknown() if isinstance(self.target, ToolCall):
                self.content[self.target.id].append(part)
            case _:
                self.rest.append(part)

    def _text(self, text: str) -> None:
        if skipped := _SKIPPED.match(text):
            self._turn_to(skipped[1] or "", "harness")
            self._give(text, failed=True)
            self.target = "human"
        elif header := header_of(text):
            self._turn_to(header[0], "tool")
            line = text[: header[1]]
            if not (isinstance(self.target, ToolCall) and self.content[self.target.id][:1] == [Text(line)]):
                self._give(line)  # a call that somebody spoke to is answered twice, under the same line
            self._body(text[header[1] :].removeprefix("\n"))
        elif _ASIDE.match(text):
            self.target = "human"
            self._give(text)
        else:
            self._body(text)

    def _turn_to(self, name: str, otherwise: Author) -> None:
        """The oldest call of that name which waits, or the one that was answered last."""
        waiting = self.waiting.get(name.lower())
        call = waiting.popleft() if waiting else self.answered.get(name.lower())
        self.target = call or otherwise
        if call:
            self.answered[name.lower()] = call
            self.content.setdefault(call.id, [])
            self.names[call.id] = call.name

    def _body(self, text: str) -> None:
        tool, human = part_human(text) if self.target != "human" else (text, "")
        name = self.target.name if isinstance(self.target, ToolCall) else ""
        if tool.strip():
            self._give(tool, failed=has_failed(tool, name))
        if human:
            if isinstance(self.target, ToolCall) and has_failed(human, name):
                self.failed.add(self.target.id)
            self.target = "human"
            self._give(human)

    def _give(self, text: str, *, failed: bool = False) -> None:
        if isinstance(self.target, ToolCall):
            self.content[self.target.id].append(Text(text))
            self.failed.update((self.target.id,) if failed else ())
            return
        self.rest.append(Text(text))
        aside = _ASIDE.match(text)
        notice = aside is not None and aside["notice"] is not None
        self.voices.append("harness" if notice else author_of(text) if self.target == "human" else self.target)


def sort_answers(parts: Iterable[Part], calls: Iterable[ToolCall]) -> Sorted:
    """What of a user's message answers the calls before it, and what is left."""
    answers = _Answers(calls)
    for part in parts:
        answers.take(part)
    results = [
        ToolResult(id_, tuple(content), is_error=id_ in answers.failed, name=answers.names[id_])
        for id_, content in answers.content.items()
    ]
    voices = answers.voices or ["human"]
    author = next((voice for voice in ("human", "tool") if voice in voices), voices[0])
    return Sorted(results, answers.rest, author)


def ids_by_place(*place: object) -> Iterator[str]:
    """Names for calls that have none: by the message and the order in it."""
    return (f"call-{'-'.join(map(str, place))}-{number}" for number in count(1))
