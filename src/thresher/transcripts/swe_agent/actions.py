"""Parse the commands that a model writes as text for SWE-agent into a tool name and arguments.

SWE-agent's shell has a few commands of its own to open, scroll, search and edit files. An edit changes the open file.
The command does not name this file, so the reader passes the name. Any other text is a shell command.
"""

import re
import shlex
from typing import Any

COMMAND_PARAMETERS: dict[str, tuple[str, ...]] = {
    "open": ("path", "line_number"),
    "goto": ("line_number",),
    "scroll_down": (),
    "scroll_up": (),
    "set_cursors": ("start_line", "end_line"),
    "create": ("path",),
    "insert": ("text", "insert_line"),
    "search_dir": ("search_term", "dir"),
    "search_file": ("search_term", "file"),
    "find_file": ("file_name", "dir"),
    "submit": (),
}
"""Parameter names of the commands with positional arguments."""
SHELL = "bash"
MAX_COMMAND_CHARS = 50_000
"""Size limit for splitting a command into words. Except for `edit`, a longer command counts as a shell command."""
EXIT_COMMAND = re.compile(r"exit_\w+")
"""Command with which the harness or the model ends a run."""
_OPERATORS = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"))
_LINE_RANGE = re.compile(r"(?<!\s)\s*+(\d{1,9}):(\d{1,9})(?!\S)")
_END_OF_EDIT = re.compile(r"(?:\A|\n)end_of_edit\s*\Z")
_NUMBER = re.compile(r"-?\d{1,9}")
_INTEGER_PARAMETERS = frozenset(("line_number", "insert_line", "start_line", "end_line"))

_HARNESS_REFUSALS = (
    r"Your bash command contained syntax errors|The command '[^\n]{0,1000}' was cancelled because"
    r"|Interactive operation '|EXECUTION TIMED OUT|COMMAND FAILED TO EXECUTE|BROKEN PIPE ERROR"
)
_TOOL_REFUSALS = (
    r"Your proposed edit has introduced|Your edit was not applied|Your search and replace strings are the same"
    r"|Usage: |Error: |No file open|(?:File|Directory) [^\n]{1,500} not found"
    r"|No replacement was performed|The path [^\n]{1,500} (?:does not exist|is a directory)|Invalid `\w+` parameter"
)
_OBSERVATION_PREFIX = r"\s*(?:OBSERVATION:\s*|Observation:\s*)?"
_REFUSED_BY_HARNESS = re.compile(f"{_OBSERVATION_PREFIX}(?:{_HARNESS_REFUSALS})")
_REFUSED_BY_TOOL = re.compile(f"{_OBSERVATION_PREFIX}(?:{_HARNESS_REFUSALS}|{_TOOL_REFUSALS})")


def parse_swe_agent_command(action: str, open_file: str) -> tuple[str, dict[str, Any]]:
    """Return the tool name and the arguments of a command. `open_file` is the file that an edit changes."""
    command = action.strip()
    name = command.split(None, 1)[0] if command else ""
    arguments: dict[str, Any] | None = None
    if name == "edit":
        arguments = _parse_edit(command[len(name) :], open_file)
    elif name == "str_replace_editor":
        arguments = _parse_str_replace_editor(_split_words(command))
    elif name in COMMAND_PARAMETERS:
        arguments = _parse_named_command(name, _split_words(command), open_file)
    elif EXIT_COMMAND.fullmatch(command):
        arguments = {}
    return (SHELL, {"command": action}) if arguments is None else (name, arguments)


def is_refused_observation(name: str, observation: str) -> bool:
    """Return whether the harness or a command of SWE-agent refused the action."""
    return bool((_REFUSED_BY_HARNESS if name in (SHELL, "") else _REFUSED_BY_TOOL).match(observation))


def _split_words(command: str) -> list[str] | None:
    """Split one command into words. Return None if the command has shell operators, is not valid or is too long."""
    try:
        words = shlex.split(command) if len(command) < MAX_COMMAND_CHARS else []
    except ValueError:
        return None
    return None if not words or _OPERATORS & set(words) else words


def _parse_named_command(name: str, words: list[str] | None, open_file: str) -> dict[str, Any] | None:
    keys = COMMAND_PARAMETERS[name]
    if words is None or len(words) - 1 > len(keys):
        return None
    given: dict[str, Any] = dict(zip(keys, words[1:], strict=False))
    for key in _INTEGER_PARAMETERS & given.keys():
        if not _NUMBER.fullmatch(given[key]):
            return None
        given[key] = int(given[key])
    if name == "open" and "path" in given:  # the command shows only some lines of the file
        given.setdefault("line_number", 1)
    return {"path": open_file, **given} if name == "insert" and open_file else given


def _parse_edit(rest: str, open_file: str) -> dict[str, Any]:
    """Parse the arguments of `edit`.

    The command is `edit 1:5` or `edit` (the lines between the cursors), with the new text in the lines below. Since
    1.0, the command can also be `edit search replace`.
    """
    given: dict[str, Any] = {"path": open_file} if open_file else {}
    first, _, text = rest.partition("\n")
    lines = _LINE_RANGE.search(first)
    if not lines and first.strip():
        words = _split_words(rest)
        if words and len(words) in (2, 3):
            return given | dict(zip(("search", "replace", "replace_all"), words, strict=False))
    if lines:
        given |= {"start": int(lines[1]), "end": int(lines[2])}
        first = first[: lines.start()] + first[lines.end() :]
    if first.strip():
        given["rest"] = first.strip()
    return given | {"text": _END_OF_EDIT.sub("", text)}


def _parse_str_replace_editor(words: list[str] | None) -> dict[str, Any] | None:
    if words is None or len(words) < 3:
        return None
    given: dict[str, Any] = {"command": words[1], "path": words[2]}
    key = ""
    for word in words[3:]:
        if word.startswith("--") and word[2:].isidentifier():
            key = word[2:]
            given[key] = [] if key == "view_range" else ""
        elif key == "view_range":
            given[key].append(int(word) if _NUMBER.fullmatch(word) else word)
        elif key:
            given[key] = int(word) if key == "insert_line" and _NUMBER.fullmatch(word) else word
        else:
            return None
    return given
