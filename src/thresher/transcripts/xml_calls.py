"""Parse tool calls that a model writes as XML in its text, and the results in the next user message.

Models in Cline, Roo and similar agents write `<read_file><path>a.py</path></read_file>`. The next user message has a
line `[read_file for 'a.py'] Result:` with the tool's output, the state of the editor, and a person's comments. Forge
wraps the call: `<tool><tool_name>read_file</tool_name><arguments>…</arguments></tool>`, or
`<tool>{"tool_name": "read_file", "arguments": {…}}</tool>` in older versions. The parser follows the rules of these
agents: An element starts on a new line. A parameter ends at the first tag that closes it. The parameter `content` ends
at the last such tag in the element, since a file can contain the tag. An element without a closing tag is not a call.

One pass finds all tags of a text and indexes them by name, so the time is linear in the length of the text.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from json import JSONDecoder
from typing import Any, NamedTuple

from thresher.model.harness_text import detect_author
from thresher.model.human_words import find_closing_comment
from thresher.model.jsontext import dump_json, load_json_object
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
"""Tool names of Cline, Roo and Kilo, in all versions."""
WRAPPER_TAG = "tool"
"""Element that Forge wraps around each call."""
THINKING_TAGS = frozenset(("thinking", "think"))

VERBATIM_PARAMETERS = frozenset(("content", "diff"))
"""Parameters whose text is kept unchanged, except that one line break is removed at each end."""
ARGUMENTS_FIELD = "arguments"
"""Field of Forge's wrapper that contains the arguments of the call."""
NESTED_PARAMETERS = frozenset(("args", "follow_up", ARGUMENTS_FIELD))
"""Parameters that contain parameters."""
MAX_NESTING_DEPTH = 3

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]{0,60})>")
_JSON_OBJECT_START = re.compile(r"\s*(?=\{)")
_raw_decode = JSONDecoder().raw_decode


class XmlElement(NamedTuple):
    """A call or a thinking element, with its position in the text."""

    name: str
    start: int
    stop: int
    parameters: dict[str, Any]
    """Parameters by name. A thinking element has its text under an empty name."""


class _TagIndex:
    """All tags of a text, and the closing tags by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tags = list(_TAG.finditer(text))
        self.closings: dict[str, list[int]] = defaultdict(list)
        for index, tag in enumerate(self.tags):
            if tag[1]:
                self.closings[tag[2]].append(index)

    def find_closing(self, name: str, after: int) -> int | None:
        """Return the index of the first closing tag with this name after the tag at index `after`."""
        closings = self.closings.get(name, ())
        first = bisect_right(closings, after)
        return closings[first] if first < len(closings) else None

    def text_between(self, opening: int, closing: int) -> str:
        return self.text[self.tags[opening].end() : self.tags[closing].start()]

    def parse_parameters(self, outer: str, index: int, depth: int = 0) -> tuple[dict[str, Any], int] | None:
        """Parse the parameters from the tag at `index` to the closing tag of `outer`.

        Return the parameters and the index of the closing tag, or None if `outer` is not closed.
        """
        fields: dict[str, Any] = {}
        position = self.tags[index - 1].end() if index else 0
        texts: list[str] = []
        while index < len(self.tags):
            tag = self.tags[index]
            closing = self._find_parameter_end(outer, index) if not tag[1] else None
            if closing is not None:
                texts.append(self.text[position : tag.start()])
                _add_parameter(fields, tag[2], _parse_value(tag[2], self.text_between(index, closing), depth))
                index, position = closing, self.tags[closing].end()
            elif tag[1] and tag[2] == outer:
                texts.append(self.text[position : tag.start()])
                if text := " ".join(filter(None, map(str.strip, texts))):
                    _add_parameter(fields, "text", text)
                return fields, index
            index += 1
        return None

    def parse_json_call(self, index: int) -> tuple[dict[str, Any], int] | None:
        """Parse the JSON object between the tag at `index` and its closing tag.

        Return the fields and the index of the closing tag, or None if there is anything else.
        """
        start = _JSON_OBJECT_START.match(self.text, self.tags[index].end())
        try:
            fields, end = _raw_decode(self.text, start.end()) if start else (None, 0)
        except (ValueError, RecursionError):
            return None
        closing = bisect_left(self.tags, end, key=re.Match.start)
        if fields is None or closing == len(self.tags) or self.tags[closing][0] != f"</{self.tags[index][2]}>":
            return None
        return (fields, closing) if not self.text[end : self.tags[closing].start()].strip() else None

    def _find_parameter_end(self, outer: str, opening: int) -> int | None:
        """Return the index of the tag that closes a parameter: for `content`, the last such tag in the element."""
        name = self.tags[opening][2]
        closing = self.find_closing(name, opening) if name != outer else None
        stop = self.find_closing(outer, closing) if closing is not None and name == "content" else None
        return closing if stop is None else self.closings[name][bisect_left(self.closings[name], stop) - 1]


def _add_parameter(fields: dict[str, Any], name: str, value: Any) -> None:
    """Add a parameter. The fields of `args` are added directly, and repeated parameters become a list."""
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
        tags = _TagIndex(f"{text}</{WRAPPER_TAG}>")  # the added tag marks the end of the parameters
        fields, end = tags.parse_parameters(WRAPPER_TAG, 0, depth + 1) or ({}, 0)
        if fields and "text" not in fields and end == len(tags.tags) - 1:
            return fields
    return text.strip()


def find_xml_elements(text: str, is_tool: Callable[[str], bool]) -> Iterator[XmlElement]:
    """Yield every closed element with a tool's name. It must start a line or directly follow another element."""
    tags = _TagIndex(text)
    index, end = 0, 0
    while index < len(tags.tags):
        tag = tags.tags[index]
        name = tag[2]
        closing = tags.find_closing(name, index) if not tag[1] and is_tool(name) else None
        if closing is None or not _opens_line(text, tag.start(), end):
            index += 1
            continue
        parsed: tuple[dict[str, Any], int] | None = {"": tags.text_between(index, closing)}, closing
        if name == WRAPPER_TAG:
            parsed = tags.parse_json_call(index) or tags.parse_parameters(name, index + 1)
        elif name not in THINKING_TAGS:
            parsed = tags.parse_parameters(name, index + 1)
        if parsed is None:
            return  # like the agents, treat the rest of the text as part of the unclosed element
        fields, closing = parsed
        index, end = closing + 1, tags.tags[closing].end()
        tool, parameters = _unwrap_call(fields) if name == WRAPPER_TAG else (name, fields)
        if isinstance(tool, str):
            yield XmlElement(tool, tag.start(), end, parameters)


def _unwrap_call(fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the tool's name and its arguments, followed by other fields of the wrapper."""
    tool, arguments = fields.pop("tool_name", None), fields.get(ARGUMENTS_FIELD)
    if isinstance(arguments, str):
        arguments = load_json_object(arguments) or None
    if not isinstance(arguments, dict):
        return tool, fields
    parameters = dict(arguments)
    for key, value in fields.items():
        if key != ARGUMENTS_FIELD:
            _add_parameter(parameters, key, value)
    return tool, parameters


def _opens_line(text: str, start: int, end: int) -> bool:
    while start > end and text[start - 1] in " \t":
        start -= 1
    return start <= end or text[start - 1] == "\n"


def split_xml_calls(text: str, ids: Iterator[str]) -> list[Part]:
    """Split a model's text into text, thinking and calls, in order. Each call takes the next id."""
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


# Results

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


def parse_result_header(text: str) -> tuple[str, int] | None:
    """Return the tool name in a result's header, and the index where the header ends; None if there is no header."""
    match = _RESULT_HEADER.match(text)
    if match is None or match[3]:
        return (match[3], match.end()) if match else None
    if match["bare"] is not None:
        stop = match.end() if text.startswith(_RESULT_SUFFIX, match.end()) else -1
    else:
        stop = text.find(_RESULT_SUFFIX, match.end())
    return (match[1], stop + len(_RESULT_SUFFIX)) if stop >= 0 else None


def is_failed_tool_answer(text: str, name: str) -> bool:
    """Return whether a tool's output is an error. File content that looks like an error does not count."""
    if _FAILURE.match(text):
        return True
    return _ERROR.match(text) is not None and find_tool_kind(name).category != "file_read"


def split_human_feedback(text: str) -> tuple[str, str]:
    """Return a tool's output, and the person's comment at the end; the comment can be empty."""
    start = find_closing_comment(text)
    return (text, "") if start is None else (text[:start], text[start:])


class SortedUserMessage(NamedTuple):
    """A user message, split into tool results and other parts."""

    results: list[ToolResult]
    other_parts: list[Part]
    author: Author
    """Author of the other parts."""


class _AnswerSorter:
    """Assignment of the parts of a user message to the calls before the message."""

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
        """Call that the next text answers. If the text answers no call, the author of the text.

        The author `tool` means that the text is a result whose call is missing.
        """

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
            # The output and a person's comment on it can be two texts with the same header: keep one header.
            if not (isinstance(self.target, ToolCall) and self.content[self.target.id][:1] == [Text(line)]):
                self._add_text(line)
            self._add_body(text[header[1] :].removeprefix("\n"))
        elif _HARNESS_TEXT.match(text):
            self.target = "human"
            self._add_text(text)
        else:
            self._add_body(text)

    def _select_call(self, name: str, default: Author) -> None:
        """Select the oldest pending call of a tool, else the tool's last answered call, else the author `default`."""
        pending = self.pending_calls.get(name.lower())
        call = pending.popleft() if pending else self.answered_calls.get(name.lower())
        self.target = call or default
        if call:
            self.answered_calls[name.lower()] = call
            self.content.setdefault(call.id, [])
            self.tool_names[call.id] = call.name

    def _add_body(self, text: str) -> None:
        output, comment = split_human_feedback(text) if self.target != "human" else (text, "")
        name = self.target.name if isinstance(self.target, ToolCall) else ""
        if output.strip():
            self._add_text(output, failed=is_failed_tool_answer(output, name))
        if comment:
            if isinstance(self.target, ToolCall) and is_failed_tool_answer(comment, name):
                self.failed.add(self.target.id)
            self.target = "human"
            self._add_text(comment)

    def _add_text(self, text: str, *, failed: bool = False) -> None:
        if isinstance(self.target, ToolCall):
            self.content[self.target.id].append(Text(text))
            self.failed.update((self.target.id,) if failed else ())
            return
        self.other_parts.append(Text(text))
        harness_text = _HARNESS_TEXT.match(text)
        if harness_text and harness_text["notice"] is not None:
            self.authors.append("harness")
        else:
            self.authors.append(detect_author(text) if self.target == "human" else self.target)


def sort_xml_answers(parts: Iterable[Part], calls: Iterable[ToolCall]) -> SortedUserMessage:
    """Split the parts of a user message into results and other parts. `calls` are the calls before the message."""
    answers = _AnswerSorter(calls)
    for part in parts:
        answers.add_part(part)
    results = [
        ToolResult(id_, tuple(content), is_error=id_ in answers.failed, name=answers.tool_names[id_])
        for id_, content in answers.content.items()
    ]
    authors = answers.authors or ["human"]
    author = next((author for author in ("human", "tool") if author in authors), authors[0])
    return SortedUserMessage(results, answers.other_parts, author)


def generate_call_ids(*position: object) -> Iterator[str]:
    """Yield ids for the calls of a message, from the position of the message and a counter."""
    return (f"call-{'-'.join(map(str, position))}-{number}" for number in count(1))
