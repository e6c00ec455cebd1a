"""SWE-agent's commands as calls: what a model wrote as text becomes a tool's name and its arguments.

SWE-agent gives its model a shell with a few commands of its own, which open, page through, search and edit files. They
change the file that is open, so an edit names none: it is told here. Whatever is no single one of these commands is
the shell's.
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
"""The commands that take words, and what these are called."""
SHELL = "bash"
MAX_COMMAND_CHARS = 50_000
"""Characters of a command that is taken apart; a longer one is left to the shell."""
EXIT_COMMAND = re.compile(r"exit_\w+")
"""What stands for a command when the harness ends a run, or the model gives up."""
_OPERATORS = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"))
_LINE_RANGE = re.compile(r"\s*(\d{1,9}):(\d{1,9})(?!\S)")
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
    """The tool that a command calls, and its arguments; `open_file` is the one it finds open."""
    command = action.strip()
    name = command.split(None, 1)[0] if command else ""
    found: dict[str, Any] | None = None
    if name == "edit":
        found = _parse_edit(command[len(name) :], open_file)
    elif name == "str_replace_editor":
        found = _parse_str_replace_editor(_split_words(command))
    elif name in COMMAND_PARAMETERS:
        found = _parse_named_command(name, _split_words(command), open_file)
    elif EXIT_COMMAND.fullmatch(command):
        found = {}
    return (SHELL, {"command": action}) if found is None else (name, found)


def is_refused_observation(name: str, observation: str) -> bool:
    """Whether the harness, or a command of its own, says that nothing was done."""
    return bool((_REFUSED_BY_HARNESS if name in (SHELL, "") else _REFUSED_BY_TOOL).match(observation))


def _split_words(command: str) -> list[str] | None:
    """The words of one plain command; None where it is more than that."""
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
    if name == "open" and "path" in given:  # a window of the file is shown, never the whole of it
        given.setdefault("line_number", 1)
    return {"path": open_file, **given} if name == "insert" and open_file else given


def _parse_edit(rest: str, open_file: str) -> dict[str, Any]:
    """`edit 1:5` with the new lines below it, `edit` between cursors, or (since 1.0) a text and what replaces it."""
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
