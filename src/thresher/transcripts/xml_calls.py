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

from thresher.model.harness_text import detect_author
from thresher.model.jsontext import dump_json
from thresher.model.message import Author
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.tool_catalog import find_tool_kind

_TOOL_NAME_GROUPS = (
    # Cline
    "ask_followup_question attempt_completion execute_command replace_in_file read_file write_to_file search_files",
    "list_files list_code_definition_names browser_action use_mcp_tool access_mcp_resource load_mcp_documentation",
    "new_task plan_mode_respond plan_mode_response act_mode_respond focus_chain web_fetch web_search condense",
    "summarize_task report_bug new_rule apply_patch generate_explanation use_skill use_subagents search_subagent",
    # Roo and Kilo
    "apply_diff insert_content search_and_replace search_replace edit_file switch_mode fetch_instructions",
    "codebase_search update_todo_list run_slash_command generate_image read_command_output fast_edit_file delete_file",
)
XML_TOOL_NAMES = frozenset(name for group in _TOOL_NAME_GROUPS for name in group.split())
"""The tools that Cline, Roo and Kilo have had under such names."""
WRAPPER_TAG = "tool"
"""Forge's element around any call."""
THINKING_TAGS = frozenset(("thinking", "think"))

VERBATIM_PARAMETERS = frozenset(("content", "diff"))
"""Parameters whose text is kept but for the line breaks at its ends."""
NESTED_PARAMETERS = frozenset(("args", "follow_up"))
"""Parameters that hold others."""
MAX_NESTING_DEPTH = 3

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]{0,60})>")


class XmlElement(NamedTuple):
    """A call, or a thought, and where in the text it stands."""

    name: str
    start: int
    stop: int
    parameters: dict[str, Any]
    """Its parameters; the words of a thought under an empty name."""


class _TagIndex:
    """Every tag of a text, and where each name is closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tags = list(_TAG.finditer(text))
        self.closings: dict[str, list[int]] = defaultdict(list)
        for place, tag in enumerate(self.tags):
            if tag[1]:
                self.closings[tag[2]].append(place)

    def find_closing(self, name: str, after: int) -> int | None:
        """The first tag after a place that closes the name."""
        places = self.closings.get(name, ())
        at = bisect_right(places, after)
        return places[at] if at < len(places) else None

    def text_between(self, opening: int, closing: int) -> str:
        return self.text[self.tags[opening].end() : self.tags[closing].start()]

    def parse_parameters(self, outer: str, place: int, depth: int = 0) -> tuple[dict[str, Any], int] | None:
        """The parameters from a place on, and the tag that closes what they are in; None where nothing does."""
        fields: dict[str, Any] = {}
        position = self.tags[place - 1].end() if place else 0
        words: list[str] = []
        while place < len(self.tags):
            tag = self.tags[place]
            closing = self._find_parameter_end(outer, place) if not tag[1] else None
            if closing is not None:
                words.append(self.text[position : tag.start()])
                _add_parameter(fields, tag[2], _parse_value(tag[2], self.text_between(place, closing), depth))
                place, position = closing, self.tags[closing].end()
            elif tag[1] and tag[2] == outer:
                words.append(self.text[position : tag.start()])
                if said := " ".join(filter(None, map(str.strip, words))):
                    _add_parameter(fields, "text", said)
                return fields, place
            place += 1
        return None

    def _find_parameter_end(self, outer: str, opening: int) -> int | None:
        """Where a parameter ends: the text of a file may itself hold the tag that would close it."""
        name = self.tags[opening][2]
        closing = self.find_closing(name, opening) if name != outer else None
        stop = self.find_closing(outer, closing) if closing is not None and name == "content" else None
        return closing if stop is None else self.closings[name][bisect_left(self.closings[name], stop) - 1]


def _add_parameter(fields: dict[str, Any], name: str, value: Any) -> None:
    """One more parameter; `args` is only a wrapper, and one that comes twice is a list."""
    if name == "args" and isinstance(value, dict):
        for key, inner in value.items():
            _add_parameter(fields, key, inner)
    elif name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def _parse_value(name: str, text: str, depth: int) -> Any:
    if name in VERBATIM_PARAMETERS:
        return text.removeprefix("\n").removesuffix("\n")
    if (name in NESTED_PARAMETERS or depth) and depth < MAX_NESTING_DEPTH and text.lstrip().startswith("<"):
        tags = _TagIndex(f"{text}</{WRAPPER_TAG}>")  # so that the end of the value ends its fields
        fields, end = tags.parse_parameters(WRAPPER_TAG, 0, depth + 1) or ({}, 0)
        if fields and "text" not in fields and end == len(tags.tags) - 1:
            return fields
    return text.strip()


def find_xml_elements(text: str, is_tool: Callable[[str], bool]) -> Iterator[XmlElement]:
    """Every element of that name which opens a line, or follows straight upon another, and is closed."""
    tags = _TagIndex(text)
    place, end = 0, 0
    while place < len(tags.tags):
        tag = tags.tags[place]
        name = tag[2]
        closing = tags.find_closing(name, place) if not tag[1] and is_tool(name) else None
        if closing is None or not _opens_line(text, tag.start(), end):
            place += 1
            continue
        found: tuple[dict[str, Any], int] | None = {"": tags.text_between(place, closing)}, closing
        if name not in THINKING_TAGS:
            found = tags.parse_parameters(name, place + 1)
        if found is None:
            return  # for its agent, too, all that follows is a part of what was never closed
        fields, closing = found
        place, end = closing + 1, tags.tags[closing].end()
        called = fields.pop("tool_name", None) if name == WRAPPER_TAG else name
        if isinstance(called, str):
            yield XmlElement(called, tag.start(), end, fields)


def _opens_line(text: str, start: int, end: int) -> bool:
    while start > end and text[start - 1] in " \t":
        start -= 1
    return start <= end or text[start - 1] == "\n"


def split_xml_calls(text: str, ids: Iterator[str]) -> list[Part]:
    """A model's words, its thoughts and its calls, in the order they stand."""
    parts: list[Part] = []
    position = 0
    for name, start, stop, fields in find_xml_elements(text, _is_known_tag):
        parts += _text_parts(text[position:start])
        position = stop
        if name in THINKING_TAGS:
            parts.append(Thinking(fields[""].strip()))
        else:
            parts.append(ToolCall(next(ids), name, dump_json(fields)))
    return [*parts, *_text_parts(text[position:])] if parts else [Text(text)]


def _is_known_tag(name: str) -> bool:
    return name in XML_TOOL_NAMES or name in THINKING_TAGS or name == WRAPPER_TAG


def _text_parts(text: str) -> list[Part]:
    return [Text(text.strip())] if text.strip() else []


# The answers

_RESULT_HEADER = re.compile(r"\s*(?:\[(\w[\w.\-]*)(?=(?P<bare>\])| (?:for|to|in) )|Tool '(\w[\w.\-]*)' [Rr]esult:)")
_RESULT_SUFFIX = "] Result:"
_SKIPPED_TOOL = re.compile(
    r"\s*(?:Skipping tool|Tool) (?:\[(\w[\w.\-]*).{0,500}?\] )?"
    r"(?:was (?:interrupted and )?not executed|due to user rejecting)",
    re.DOTALL,
)
_HARNESS_TEXT = re.compile(
    r"\s*(?:<(?:environment_details|system_notice|explicit_instructions|system-reminder|task)>|\[TASK RESUMPTION\]"
    r"|\[ERROR\] You did not use a tool|New (?:instructions for task continuation|message to respond to)"
    r"|(?P<notice># (?:task_progress|TODO LIST)\b|Warning: this is a legacy conversation))",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"\s*(?:The tool execution failed|The user denied this operation|Invalid JSON argument used"
    r"|Missing value for required parameter|This tool cannot be used in|<files>\s*<file><path>[^<]*</path><error>"
    r"|\{\"status\":\s?\"(?:error|denied)\"|Tool '[^'\n]*' does not exist on server"
    r"|Command execution was not successful|Command executed in terminal[^\n]*Exit code: -?[1-9])"
)
_ERROR = re.compile(r"\s*(?:\[ERROR\]|Error:|<error>)")
_HUMAN_CLOSING_TAG = re.compile(r"</(feedback|user_message|answer|user_feedback)>\s*\Z")
_HUMAN_INTRODUCTION = re.compile(r"[^\n]*(?:[Tt]he user |New (?:instructions|message) )")
MAX_CLOSING_TAG_CHARS = 40
"""Characters that the last tag of a human's words takes, with what may stand after it."""


def parse_result_header(text: str) -> tuple[str, int] | None:
    """The tool that a text answers, and where the line that says so ends."""
    found = _RESULT_HEADER.match(text)
    if found is None or found[3]:
        return (found[3], found.end()) if found else None
    if found["bare"] is not None:
        stop = found.end() if text.startswith(_RESULT_SUFFIX, found.end()) else -1
    else:
        stop = text.find(_RESULT_SUFFIX, found.end())
    return (found[1], stop + len(_RESULT_SUFFIX)) if stop >= 0 else None


def is_failed_tool_answer(text: str, name: str) -> bool:
    """Whether a tool's answer says that it could not do what was asked; a file that was read may say anything."""
    if _FAILURE.match(text):
        return True
    return _ERROR.match(text) is not None and find_tool_kind(name).category != "file_read"


def split_human_feedback(text: str) -> tuple[str, str]:
    """A tool's words, and behind them those of a human who spoke to the call."""
    closing = _HUMAN_CLOSING_TAG.search(text, max(len(text) - MAX_CLOSING_TAG_CHARS, 0))
    start = text.rfind(f"<{closing[1]}>") if closing else -1
    if start < 0:
        return text, ""
    before = text[:start].rstrip()
    line = before.rfind("\n") + 1
    if before and not _HUMAN_INTRODUCTION.match(before, line):
        return text, ""
    return text[:line], text[line:]


class SortedUserMessage(NamedTuple):
    """A user's message by who speaks in it."""

    results: list[ToolResult]
    other_parts: list[Part]
    author: Author
    """Of the rest."""


class _AnswerSorter:
    """The parts of one message, as they are given to the calls before it."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self.pending_calls: dict[str, deque[ToolCall]] = defaultdict(deque)
        self.answered_calls: dict[str, ToolCall] = {}
        for call in calls:
            self.pending_calls[call.name.lower()].append(call)
        self.content: dict[str, list[ResultPart]] = {}
        self.failed: set[str] = set()
        self.tool_names: dict[str, str] = {}
        self.other_parts: list[Part] = []
        self.authors: list[Author] = []
        self.target: ToolCall | Author = "human"
        """The call that is being answered; else who speaks: `tool` where the call is not there."""

    def add_part(self, part: Part) -> None:
        match part:
            case Text():
                self._add_text_part(part.text)
            case Image() | Unknown() if isinstance(self.target, ToolCall):
                self.content[self.target.id].append(part)
            case _:
                self.other_parts.append(part)

    def _add_text_part(self, text: str) -> None:
        if skipped := _SKIPPED_TOOL.match(text):
            self._select_call(skipped[1] or "", "harness")
            self._add_text(text, failed=True)
            self.target = "human"
        elif header := parse_result_header(text):
            self._select_call(header[0], "tool")
            line = text[: header[1]]
            if not (isinstance(self.target, ToolCall) and self.content[self.target.id][:1] == [Text(line)]):
                self._add_text(line)  # a call that somebody spoke to is answered twice, under the same line
            self._add_body(text[header[1] :].removeprefix("\n"))
        elif _HARNESS_TEXT.match(text):
            self.target = "human"
            self._add_text(text)
        else:
            self._add_body(text)

    def _select_call(self, name: str, otherwise: Author) -> None:
        """The oldest call of that name which waits, or the one that was answered last."""
        waiting = self.pending_calls.get(name.lower())
        call = waiting.popleft() if waiting else self.answered_calls.get(name.lower())
        self.target = call or otherwise
        if call:
            self.answered_calls[name.lower()] = call
            self.content.setdefault(call.id, [])
            self.tool_names[call.id] = call.name

    def _add_body(self, text: str) -> None:
        tool, human = split_human_feedback(text) if self.target != "human" else (text, "")
        name = self.target.name if isinstance(self.target, ToolCall) else ""
        if tool.strip():
            self._add_text(tool, failed=is_failed_tool_answer(tool, name))
        if human:
            if isinstance(self.target, ToolCall) and is_failed_tool_answer(human, name):
                self.failed.add(self.target.id)
            self.target = "human"
            self._add_text(human)

    def _add_text(self, text: str, *, failed: bool = False) -> None:
        if isinstance(self.target, ToolCall):
            self.content[self.target.id].append(Text(text))
            self.failed.update((self.target.id,) if failed else ())
            return
        self.other_parts.append(Text(text))
        aside = _HARNESS_TEXT.match(text)
        notice = aside is not None and aside["notice"] is not None
        self.authors.append("harness" if notice else detect_author(text) if self.target == "human" else self.target)


def sort_xml_answers(parts: Iterable[Part], calls: Iterable[ToolCall]) -> SortedUserMessage:
    """What of a user's message answers the calls before it, and what is left."""
    answers = _AnswerSorter(calls)
    for part in parts:
        answers.add_part(part)
    results = [
        ToolResult(id_, tuple(content), is_error=id_ in answers.failed, name=answers.tool_names[id_])
        for id_, content in answers.content.items()
    ]
    voices = answers.authors or ["human"]
    author = next((voice for voice in ("human", "tool") if voice in voices), voices[0])
    return SortedUserMessage(results, answers.other_parts, author)


def generate_call_ids(*place: object) -> Iterator[str]:
    """Names for calls that have none: by the message and the order in it."""
    return (f"call-{'-'.join(map(str, place))}-{number}" for number in count(1))
