"""Parse a tool call: category, file, command, and stated intent.

The catalog (`tool_catalog`) lists the argument keys; this module reads them. A model wrote the arguments, so anything
may be invalid: text that is not JSON counts as free text, a value of the wrong type as missing. Shell commands are
parsed just far enough to recognize git (`project`), a patch for `apply_patch` (`file_edit`), and a command that only
shows one file. Such a command keeps the category `execution`, and its details name the file.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from thresher.model.jsontext import load_json_object
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import ToolCall, ToolResult
from thresher.model.structure import ToolChain
from thresher.model.tool_catalog import EDITOR_SUBCOMMANDS, FileOperation, ToolCategory, ToolKind, find_tool_kind

MAX_CACHED_ARGUMENTS = 4096
"""Maximum length of arguments whose parsed details are cached, so that the cache does not hold whole files."""


class ToolCallDetails(NamedTuple):
    """Parsed details of one call; unknown fields are empty."""

    category: ToolCategory
    operation: FileOperation
    path: str
    command: str
    intent: str


def describe_tool_call(call: ToolCall) -> ToolCallDetails:
    """Parse a call; never raise an error."""
    if len(call.arguments) <= MAX_CACHED_ARGUMENTS:
        return _parse_call_details_cached(call.name, call.arguments)
    return _parse_call_details(call.name, call.arguments)


def list_touched_files(call: ToolCall) -> tuple[str, ...]:
    """Return every file that a call names: all files of a patch in order, otherwise the path in the arguments."""
    use, tool = describe_tool_call(call), find_tool_kind(call.name)
    if use.category != "file_edit" or not (tool.patch_keys or use.command):
        return (use.path,) if use.path else ()
    patch = use.command or _first_text(load_json_object(call.arguments), tool.patch_keys) or call.arguments
    return tuple(dict.fromkeys(path.strip() for path in _PATCH_PATH.findall(patch)))


class ToolUse(NamedTuple):
    """A tool chain with its call, result and parsed details."""

    chain: ToolChain
    call: ToolCall
    result: ToolResult | None
    use: ToolCallDetails


def build_tool_uses(messages: Sequence[Message], chains: Iterable[ToolChain]) -> Iterator[ToolUse]:
    """Yield every tool chain with its call, result and parsed details."""
    for chain in chains:
        call = messages[chain.call.message].parts[chain.call.part]
        result = messages[chain.result.message].parts[chain.result.part] if chain.result else None
        use = _describe_calls(messages[chain.call.message])[chain.call.part]
        if isinstance(call, ToolCall) and use is not None:
            yield ToolUse(chain, call, result if isinstance(result, ToolResult) else None, use)


@cached_per_message
def _describe_calls(message: Message) -> tuple[ToolCallDetails | None, ...]:
    return tuple([describe_tool_call(part) if isinstance(part, ToolCall) else None for part in message.parts])


def _parse_call_details(name: str, arguments: str) -> ToolCallDetails:
    tool = find_tool_kind(name)
    if not tool.reads_arguments:
        return ToolCallDetails(tool.category, tool.operation, "", "", "")
    fields = load_json_object(arguments)
    intent = _first_text(fields, tool.intent_keys).strip().partition("\n")[0].rstrip()
    if tool.patch_keys:
        operation, path = _first_patched_file(_first_text(fields, tool.patch_keys) or arguments)
        return ToolCallDetails(tool.category, operation or tool.operation, path, "", intent)
    if tool.command_keys:
        # Free text passed to a shell is the command itself.
        command = _get_command(fields, tool.command_keys) if arguments.lstrip().startswith("{") else arguments
        return _describe_shell_command(
            tool, command, _first_text(fields, ("workdir", "cwd", "dir_path", "directory")), intent
        )
    category, operation = EDITOR_SUBCOMMANDS.get(
        _first_text(fields, (tool.subcommand_key,)), (tool.category, tool.operation)
    )
    return ToolCallDetails(category, operation, _first_text(fields, tool.path_keys), "", intent)


_parse_call_details_cached = lru_cache(maxsize=4096)(_parse_call_details)


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first nonempty text under any of the keys."""
    for key in keys:
        if key in fields and (text := _get_text(fields[key])):
            return text
    return ""


def _get_text(value: Any) -> str:
    """Return a string, or the first one of a list, because some agents name a file as `["a"]` or `[{"path": "a"}]`."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("path") or value.get("file_path")
    return value if isinstance(value, str) else ""


def _get_command(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, dict):  # Codex's local shell: {"action": {"type": "exec", "command": [...]}}
            value = value.get("command")
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            words = [word for word in value if isinstance(word, str)]
            return "\n".join(words) if key == "commands" else _join_command_line(words)
    return ""


_SHELL = re.compile(r"(?:.*[/\\])?(?:(?:ba|z|da|k|fi)?sh|pwsh|powershell|cmd)(?:\.exe)?", re.IGNORECASE)
_RUN_OPTION = re.compile(r"-[a-z]*c|-command|/c", re.IGNORECASE)


def _join_command_line(words: list[str]) -> str:
    """Unwrap `["bash", "-lc", command]`; join any other list as a command line."""
    if len(words) > 2 and _SHELL.fullmatch(words[0]):
        for index, word in enumerate(words[1:-1], 1):
            if _RUN_OPTION.fullmatch(word):
                return words[index + 1]
    return shlex.join(words)


_COMMAND_PREFIX = re.compile(
    r"""\s*(?:
        cd\s+(?P<folder>"[^"\n]*"|'[^'\n]*'|[^\s;&|"']+)[ \t]*(?:&&|;|\n)   # its folder
      | [A-Za-z_]\w*=[^\s"';&|]*[ \t]                                       # a variable
      | sudo[ \t]
    )""",
    re.VERBOSE,
)
_GIT = re.compile(r"\s*(?:git|gh)(?:\s|$)")
_APPLY_PATCH = re.compile(r"\s*apply_?patch\b")


def _describe_shell_command(tool: ToolKind, command: str, folder: str, intent: str) -> ToolCallDetails:
    start = 0
    while prefix := _COMMAND_PREFIX.match(command, start):
        start = prefix.end()
        folder = posixpath.join(folder, (prefix["folder"] or "").strip("\"'")) if prefix["folder"] else folder
    if _GIT.match(command, start):
        return ToolCallDetails("project", "", "", command, intent)
    if _APPLY_PATCH.match(command, start):
        operation, path = _first_patched_file(command)
        return ToolCallDetails("file_edit", operation or "edit", path, command, intent)
    path = _find_viewed_file(command[start:]) if command else ""
    if not path:
        return ToolCallDetails(tool.category, "", "", command, intent)
    return ToolCallDetails(tool.category, "read", posixpath.join(folder, path), command, intent)


_PATCH_HEADER = re.compile(
    r"^\*\*\* (?P<verb>Update|Add|Delete) File: (?P<path>[^\r\n]+)(?P<move>\r?\n\*\*\* Move to: )?",
    re.MULTILINE,
)
_PATCH_PATH = re.compile(r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): ([^\r\n]+)", re.MULTILINE)
_PATCH_OPERATION: dict[str, FileOperation] = {"Update": "edit", "Add": "write", "Delete": "delete"}


def _first_patched_file(patch: str) -> tuple[FileOperation, str]:
    """Return the operation and path of the first file in a patch."""
    header = _PATCH_HEADER.search(patch)
    if header is None:
        return "", ""
    operation: FileOperation = "move" if header["move"] else _PATCH_OPERATION[header["verb"]]
    return operation, header["path"].strip()


_FILE_VIEWERS: dict[str, str] = {"cat": "", "bat": "", "head": "nc", "tail": "nc", "nl": "bvwnsf", "sed": ""}
"""Commands that only show a file, with their one-letter options that take a value."""
MAX_VIEW_COMMAND_LENGTH = 500
"""Maximum length of a command that only shows a file. A longer one usually writes a file: `cat > name <<EOF`."""
_VIEW_COMMAND = re.compile(r"\s*(?:cat|bat|head|tail|nl|sed)\s")
_STDERR_REDIRECT = re.compile(r"\s2>\s?/dev/null|\s2>&1")
_SHELL_WORD = re.compile(r"""(?:[^\s"'|;&<>()`$]|"[^"$`]*"|'[^']*')+|[^ \t]""")
_GLOB_CHARACTER = re.compile(r"[*?{]")
_SHOWS_LINES = re.compile(r"[\d,$]*p(?:;[\d,$]*p)*")


def _find_viewed_file(command: str) -> str:
    """Return the file that a command or pipe shows, if it shows one file and does nothing else; otherwise return ""."""
    if not _VIEW_COMMAND.match(command) or len(command) > MAX_VIEW_COMMAND_LENGTH:
        return ""
    stages: list[list[str]] = [[]]
    for word in _SHELL_WORD.findall(_STDERR_REDIRECT.sub(" ", command.strip())):
        if word == "|":
            stages.append([])
        elif word in ";&<>()`$\"'\n":  # another command, a redirection or an expansion
            return ""
        else:
            stages[-1].append(word.replace('"', "").replace("'", ""))
    first, *others = map(_list_viewed_files, stages)
    shows_one_file = first is not None and len(first) == 1 and not _GLOB_CHARACTER.search(first[0])
    return first[0] if first and shows_one_file and all(files == [] for files in others) else ""


def _list_viewed_files(words: list[str]) -> list[str] | None:
    """Return the files that a command shows; None if it does anything else."""
    if not words or words[0] not in _FILE_VIEWERS:
        return None
    valued = _FILE_VIEWERS[words[0]]
    files: list[str] = []
    options: list[str] = []
    for before, word in pairwise(words):
        is_option_value = len(before) == 2 and before[0] == "-" and before[1] in valued
        if word.startswith("-"):
            options.append(word)
        elif not is_option_value and not (word.startswith("+") and word[1:].isdigit()):
            files.append(word)
    if words[0] != "sed":
        return files
    prints_lines = options == ["-n"] and bool(files) and _SHOWS_LINES.fullmatch(files[0])
    return files[1:] if prints_lines else None
