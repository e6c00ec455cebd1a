"""What a tool call does: its category, the file it touches, the command it runs, what it says it is for.

The table (`tool_table`) says where a tool's arguments keep these; this module reads them there. Arguments are
what a model wrote, so anything may be broken: JSON that is none counts as free text, a value of the wrong
type as absent. A shell command is looked into just far enough to tell three things apart from all other work:
git (`project`), a patch handed to `apply_patch` (`file_edit`), and plain reading of one file, which stays
`execution` but names it.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from thresher.model.jsontext import load_fields
from thresher.model.memo import per_message
from thresher.model.message import Message
from thresher.model.parts import ToolCall, ToolResult
from thresher.model.tool_table import TABLE, VERBS, Category, Operation, Tool, tool_named
from thresher.model.turns import Chain

__all__ = ["TABLE", "Category", "Link", "Operation", "Tool", "ToolUse", "links", "tool_named", "tool_use", "touched"]

CACHED_LENGTH = 4096
"""Longer arguments are read anew each time, so that the cache never holds on to whole files."""


class ToolUse(NamedTuple):
    """What one call does; empty where the call does not say."""

    category: Category
    operation: Operation
    path: str
    command: str
    intent: str


def tool_use(call: ToolCall) -> ToolUse:
    """Read a call; never raises."""
    if len(call.arguments) <= CACHED_LENGTH:
        return _cached(call.name, call.arguments)
    return _read(call.name, call.arguments)


def touched(call: ToolCall) -> tuple[str, ...]:
    """Every file that a call names: of a patch all, in order, of any other call the one that `tool_use` tells."""
    use, tool = tool_use(call), tool_named(call.name)
    if use.category != "file_edit" or not (tool.patches or use.command):
        return (use.path,) if use.path else ()
    patch = use.command or _first(load_fields(call.arguments), tool.patches) or call.arguments
    return tuple(dict.fromkeys(path.strip() for path in _NAMED.findall(patch)))


class Link(NamedTuple):
    """A tool chain with what it holds."""

    chain: Chain
    call: ToolCall
    result: ToolResult | None
    use: ToolUse


def links(messages: Sequence[Message], chains: Iterable[Chain]) -> Iterator[Link]:
    """Every chain with its call, its result, and what it does."""
    for chain in chains:
        call = messages[chain.call.message].parts[chain.call.part]
        result = messages[chain.result.message].parts[chain.result.part] if chain.result else None
        use = _uses(messages[chain.call.message])[chain.call.part]
        if isinstance(call, ToolCall) and use is not None:
            yield Link(chain, call, result if isinstance(result, ToolResult) else None, use)


@per_message
def _uses(message: Message) -> tuple[ToolUse | None, ...]:
    return tuple([tool_use(part) if isinstance(part, ToolCall) else None for part in message.parts])


def _read(name: str, arguments: str) -> ToolUse:
    tool = tool_named(name)
    if not tool.takes_arguments:
        return ToolUse(tool.category, tool.operation, "", "", "")
    fields = load_fields(arguments)
    intent = _first_line(_first(fields, tool.intents))
    if tool.patches:
        operation, path = _patched(_first(fields, tool.patches) or arguments)
        return ToolUse(tool.category, operation or tool.operation, path, "", intent)
    if tool.commands:
        # Free text handed to a shell is the command itself.
        command = _command(fields, tool.commands) if arguments.lstrip().startswith("{") else arguments
        return _shell(tool, command, _first(fields, ("workdir", "cwd", "dir_path", "directory")), intent)
    category, operation = VERBS.get(_first(fields, (tool.verb,)), (tool.category, tool.operation))
    return ToolUse(category, operation, _first(fields, tool.paths), "", intent)


_cached = lru_cache(maxsize=4096)(_read)


def _first(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    """The text under the first key that has any."""
    for key in keys:
        if key in fields and (text := _text(fields[key])):
            return text
    return ""


def _text(value: Any) -> str:
    """A text, or the first of several: agents name many files as `["a"]` or `[{"path": "a"}]`."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("path") or value.get("file_path")
    return value if isinstance(value, str) else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip()


def _command(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, dict):  # Codex's local shell: {"action": {"type": "exec", "command": [...]}}
            value = value.get("command")
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            words = [word for word in value if isinstance(word, str)]
            return "\n".join(words) if key == "commands" else _joined(words)
    return ""


_SHELL = re.compile(r"(?:.*[/\\])?(?:(?:ba|z|da|k|fi)?sh|pwsh|powershell|cmd)(?:\.exe)?", re.IGNORECASE)
_RUN = re.compile(r"-[a-z]*c|-command|/c", re.IGNORECASE)


def _joined(words: list[str]) -> str:
    """`["bash", "-lc", command]` is the command; any other list is a command line."""
    if len(words) > 2 and _SHELL.fullmatch(words[0]):
        for place, word in enumerate(words[1:-1], 1):
            if _RUN.fullmatch(word):
                return words[place + 1]
    return shlex.join(words)


_LEAD = re.compile(
    r"""\s*(?:
        cd\s+(?P<folder>"[^"\n]*"|'[^'\n]*'|[^\s;&|"']+)[ \t]*(?:&&|;|\n)   # where it runs
      | [A-Za-z_]\w*=[^\s"';&|]*[ \t]                                       # a variable for it
      | sudo[ \t]
    )""",
    re.VERBOSE,
)
_GIT = re.compile(r"\s*(?:git|gh)(?:\s|$)")
_APPLY = re.compile(r"\s*apply_?patch\b")


def _shell(tool: Tool, command: str, folder: str, intent: str) -> ToolUse:
    start = 0
    while lead := _LEAD.match(command, start):
        start = lead.end()
        folder = posixpath.join(folder, (lead["folder"] or "").strip("\"'")) if lead["folder"] else folder
    if _GIT.match(command, start):
        return ToolUse("project", "", "", command, intent)
    if _APPLY.match(command, start):
        operation, path = _patched(command)
        return ToolUse("file_edit", operation or "edit", path, command, intent)
    path = _file_read(command[start:]) if command else ""
    if not path:
        return ToolUse(tool.category, "", "", command, intent)
    return ToolUse(tool.category, "read", posixpath.join(folder, path), command, intent)


_PATCHED = re.compile(
    r"^\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>[^\r\n]+)(?P<move>\r?\n\*\*\* Move to: )?",
    re.MULTILINE,
)
_NAMED = re.compile(r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): ([^\r\n]+)", re.MULTILINE)
_PATCH_OPERATION: dict[str, Operation] = {"Update": "edit", "Add": "write", "Delete": "delete"}


def _patched(patch: str) -> tuple[Operation, str]:
    """The first file that a patch names, and what happens to it."""
    found = _PATCHED.search(patch)
    if found is None:
        return "", ""
    operation: Operation = "move" if found["move"] else _PATCH_OPERATION[found["verb"]]
    return operation, found["path"].strip()


_READERS: dict[str, str] = {"cat": "", "bat": "", "head": "nc", "tail": "nc", "nl": "bvwnsf", "sed": ""}
"""Commands that only show a file, with their one-letter options that take the next word as a value."""
LONGEST_READ = 500
"""A longer command that starts like this writes a file: `cat > name <<EOF`."""
_READER = re.compile(r"\s*(?:cat|bat|head|tail|nl|sed)\s")
_QUIET = re.compile(r"\s2>\s?/dev/null|\s2>&1")
_WORDS = re.compile(r"""(?:[^\s"'|;&<>()`$]|"[^"$`]*"|'[^']*')+|[^ \t]""")
_MANY = re.compile(r"[*?{]")
_SHOWS_LINES = re.compile(r"[\d,$]*p(?:;[\d,$]*p)*")


def _file_read(command: str) -> str:
    """The file that a command only shows, be it piped through others that only show; else nothing."""
    if not _READER.match(command) or len(command) > LONGEST_READ:
        return ""
    stages: list[list[str]] = [[]]
    for word in _WORDS.findall(_QUIET.sub(" ", command.strip())):
        if word == "|":
            stages.append([])
        elif word in ";&<>()`$\"'\n":  # more than showing: another command, a redirection, an expansion
            return ""
        else:
            stages[-1].append(word.replace('"', "").replace("'", ""))
    first, *others = map(_shown, stages)
    one = first is not None and len(first) == 1 and not _MANY.search(first[0])
    return first[0] if first and one and all(files == [] for files in others) else ""


def _shown(words: list[str]) -> list[str] | None:
    """The files that one command shows, or None where it does something else."""
    if not words or words[0] not in _READERS:
        return None
    valued = _READERS[words[0]]
    files: list[str] = []
    options: list[str] = []
    for before, word in pairwise(words):
        takes = len(before) == 2 and before[0] == "-" and before[1] in valued
        if word.startswith("-"):
            options.append(word)
        elif not takes and not (word.startswith("+") and word[1:].isdigit()):
            files.append(word)
    if words[0] != "sed":
        return files
    shows = options == ["-n"] and bool(files) and _SHOWS_LINES.fullmatch(files[0])
    return files[1:] if shows else None
