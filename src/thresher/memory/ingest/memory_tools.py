r"""Recognize calls of memory tools in a transcript, and the recalled text that these tools print.

If a search covered recalled text, it would count as new evidence for itself. Three signs identify recalled text. A
*call* names a memory tool, skill or program. A *tag* encloses the block that a tool printed. The tag remains if another
program prints the block again, although `<` may become `&lt;` or `\u003c`. A *header* precedes each hit in the output
of some tools.

Losing original work is the worse mistake, so each sign counts only in its proper position: a program where a shell
expects a command, never in a quoted argument; a tag where a block may start; a header at the start of a line. If a
program's output contains an element of `OPEN_ENDED_TAGS` without its closing tag, the output was truncated, and the
block extends to the end of the output. In text of a person or a model, an unclosed tag is ignored.

Thresher's JSON output has the opening tag as its first value and the closing tag as its last. The whole object is
removed, even inside a string of another JSON text, where each level of nesting adds backslashes before the quotes.

For speed, a plain `in` check precedes the regexes for tags and headers, and no pattern scans the same text twice.
"""

import re
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from thresher.model import Session, ToolCall
from thresher.model.harness_text import RECALLED_TEXT_ELEMENTS, find_harness_spans
from thresher.model.jsontext import load_json_object
from thresher.model.tool_calls import describe_tool_call
from thresher.model.tool_catalog import find_tool_kind

RecallKind = Literal["", "alone", "among"]
"""Part of a call that queries a memory. `alone`: the whole call. `among`: one of several commands. Empty: no part."""

SERVERS = (
    "thresher episodic(?:[-_]memory)? claude[-_]?mem mem[-_]search deja(?:[-_]vu)? agentsview historian moraine",
    "polylogue cass ccrecall cc[-_]recall memex fast[-_]resume session[-_]search conversation[-_]search mempalace",
    "openmemory supermemory mem0 hindsight",
)
"""Words in the names of MCP servers that only serve past sessions."""

LOOSE_SERVERS = ("memory memories recall ctx",)
"""Words in the names of MCP servers that also have other purposes. Only their reading tools count as memory tools."""

TOOLS = (
    "recall recall_memory recall_memories retrieve_memories memory_search memory_recall search_memory search_memories",
    "conversation_search search_conversations recent_chats session_search",
)
"""Built-in memory tools of agents."""

SKILLS = (
    "recall search-conversations remembering-conversations conversation-search recall-conversations deja deja-history",
    "mem-search session-search agent-session-search search-chats thresher thresher-search thresher-recall",
)
"""Skills, sub-agents and slash commands that search past sessions."""

PROGRAMS: tuple[tuple[str, str], ...] = (
    (r"thresher(?:\.cli)?", "search|recall|show|related"),
    (r"cass", "search|view|expand|context|timeline|pack|sessions"),
    (r"ctx", "search|show|list|locate|blame"),
    (r"memex|recall", "search|show|read"),
    (r"memory", "search|recall|hint"),
    (r"transcript", "search|recall"),
    (r"aichat", "search|find"),
    (r"episodic-memory", "search|show|read"),
    (r"claude-mem", "search|timeline|context"),
    (r"agentsview", r"(?:[\w-]+[ \t]+){0,2}(?:search|get|messages|around)"),
    (r"mcp-cli", r"call[ \t]+[^\s;|&]*(?:episodic-memory|claude-mem|thresher|deja)[^\s;|&]*"),
    (r"deja(?:-vu)?|fr|fast-resume|ccrecall|cc-recall|cc-conversation-search|conversation-search|aichat-search", ""),
    (r"claude-historian(?:-mcp)?|polylogue|moraine|session-search|search-conversations", ""),
)
"""Programs with their subcommands that show past sessions; an empty pattern matches every call of the program."""

RUNNERS = (
    "sudo|time|command|exec|nohup|env|xargs|do|then|else|!|npx|bunx|uvx|claude-tools|timeout[ \t]+[^\\s;|&]+",
    r"pipx[ \t]+run|uv[ \t]+(?:tool[ \t]+)?run|npm[ \t]+exec|pnpm[ \t]+(?:dlx|exec)|yarn[ \t]+dlx|bun[ \t]+x",
    r"poetry[ \t]+run|python[\d.]*[ \t]+-m",
)
"""Words that may precede the program name in a shell command."""

OPEN_ENDED_TAGS = frozenset({"thresher-recall", "thresher-memory", "deja-recall"})
"""Elements that extend to the end of a program's output if unclosed."""

HEADERS: tuple[tuple[str, str], ...] = (
    ("•", r"^\[\d{1,6}/\d{1,6}\][ \t]+[0-9a-f]{7,40}[ \t]+•"),
    (" matches | ", r"^[^\s|][^\n|]{0,300}\| [0-9a-f][0-9a-f-]{6,40} \| \d{1,9} matches \| \d{4}-"),
    ("Matches: ", r"^Session: [0-9a-f][0-9a-f-]{6,40}\nMatches: \d"),
    ("· ", r"^\[[a-z][a-z-]{1,20}\][ \t]+[^\n]{1,120} · [0-9a-f][0-9a-f-]{6,40} — +\d{1,9} match"),
    ("ctx_session_id: ", r"^ctx_session_id: [0-9a-f-]{8,40}\nprovider: "),
)
"""First lines of hits as memory tools print them, each with a literal text that the line contains."""


def _any(groups: tuple[str, ...]) -> str:
    return "|".join(word for group in groups for word in group.split())


_TOOL = re.compile(_any(TOOLS))
_SERVER = re.compile(rf"(?:^|[^a-z0-9])(?:{_any(SERVERS)})(?:[^a-z0-9]|$)")
_LOOSE_SERVER = re.compile(rf"(?:^|[^a-z0-9])(?:{_any(LOOSE_SERVERS)})(?:[^a-z0-9]|$)")
_READS = re.compile(
    r"(?:^|[^a-z])(?:search|read|recall|retrieve|query|find|get|list|open|load|show|fetch|view|ask|timeline|locate|blame)"
)
_WRITES = re.compile(
    r"(?:^|[^a-z])(?:create|add|store|save|delete|remove|update|remember|write|insert|ingest|index|sync|forget|import)"
    r"(?:[^a-z]|$)"
)
_SKILL = re.compile(rf"\s*/?(?:[\w.-]{{1,80}}:)?(?:{_any(SKILLS)})(?=\s|\Z)")
_PROMPT = re.compile(rf"\s*(?:<command-name>\s*)?/(?:[\w.-]{{1,80}}:)?(?:{_any(SKILLS)})(?=[\s<]|\Z)")
_SKILL_FIELDS = ("skill", "skill_name", "command", "name", "subagent_type", "agent_type", "agent_name", "agent")


def is_memory_prompt(text: str) -> bool:
    """Return whether a prompt is a slash command that searches past sessions."""
    return "/" in text and _PROMPT.match(text) is not None


def classify_recall(call: ToolCall) -> RecallKind:
    """Return the part of a call that queries a memory."""
    if is_memory_tool(call.name):
        return "alone"
    category = find_tool_kind(call.name).category
    if category == "execution":
        return classify_recall_command(describe_tool_call(call).command)
    if category in ("project", "subagent"):
        return "alone" if _is_memory_skill(load_json_object(call.arguments)) else ""
    return "alone" if call.name in ("use_mcp_tool", "call_mcp_tool") and _is_memory_server(call) else ""


@lru_cache(maxsize=1024)
def is_memory_tool(name: str) -> bool:
    """Return whether the tool with this name shows past sessions."""
    lowered = name.lower()
    server, tool = _split_tool_name(lowered)
    if _TOOL.fullmatch(tool):
        return True
    if _WRITES.search(tool):
        return False
    if _SERVER.search(lowered):
        return True
    return bool(server and _LOOSE_SERVER.search(server) and _READS.search(tool))


def _split_tool_name(name: str) -> tuple[str, str]:
    """Split an MCP tool name into server and tool. A Gemini CLI name has no separator, so it counts as both."""
    if name.startswith("mcp__") or "__" in name:
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return server, tool
    return (name, name) if name.startswith("mcp_") else ("", name)


def _is_memory_skill(fields: dict[str, Any]) -> bool:
    return any(_SKILL.match(value) for value in map(fields.get, _SKILL_FIELDS) if isinstance(value, str))


def _is_memory_server(call: ToolCall) -> bool:
    """Return whether the arguments name a memory tool; some agents call all MCP servers through one tool."""
    fields = load_json_object(call.arguments)
    server = _first_string(fields, "server_name", "serverName", "server")
    return is_memory_tool(f"mcp__{server}__{_first_string(fields, 'tool_name', 'toolName', 'tool')}")


def _first_string(fields: dict[str, Any], *keys: str) -> str:
    return next((value for value in map(fields.get, keys) if isinstance(value, str)), "")


def _program(names: str, commands: str) -> str:
    end = r"(?=[\s;|&)`}]|\Z)"
    name = rf"(?:{names})(?:\.exe)?(?:@[\w.-]+)?"
    return rf"{name}(?:[ \t]+-[^\s;|&]*)*+[ \t]+(?:{commands}){end}" if commands else name + end


_PROGRAM_NAMED = re.compile(rf"(?:{'|'.join(names for names, _ in PROGRAMS)})\b")
_COMMAND = re.compile(
    r"(?:\A|[\n;|&(`]|\{(?=\s))[ \t]*+"
    r"(?:[A-Za-z_]\w*+=[^\s;|&]*+[ \t]++)*+"
    rf"(?>(?:{'|'.join(RUNNERS)})[ \t]++(?>(?:--from|--with|--package|-p)[ \t]++[^\s;|&]++[ \t]++|-[^\s;|&]*+[ \t]++"
    r"|[A-Za-z_]\w*+=[^\s;|&]*+[ \t]++)*+)*+"
    r"""(?:[^\s;|&"'`()=]*/)?"""
    rf"(?:{'|'.join(_program(names, commands) for names, commands in PROGRAMS)})"
)
_SEVERAL = re.compile(r"[;\n]|&&|\|\|")


def classify_recall_command(command: str) -> RecallKind:
    """Return the part of a shell command that shows past sessions."""
    if not _PROGRAM_NAMED.search(command):
        return ""
    plain = _QUOTED.sub(_replace_quoted, _without_heredocs(command)).strip()
    if not _COMMAND.search(plain):
        return ""
    return "among" if _SEVERAL.search(plain) else "alone"


_QUOTED = re.compile(r"""\\.|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'[^']*+(?:'|\Z)|(?:(?<=[\s;])|\A)\#[^\n]*""", re.DOTALL)
_ONE_WORD = re.compile(r"[\w./~@:${}-]+")
_SHELL_RUNS = re.compile(r"sh[ \t]+-\w*c[ \t]+\Z")


def _replace_quoted(match: re.Match[str]) -> str:
    """Replace a quoted argument, comment or escape so that only real commands remain."""
    quoted = match[0]
    if quoted[0] == "\\":
        return " " if quoted == "\\\n" else "_"
    if quoted[0] == "#":
        return ""
    inside = quoted[1:-1]
    if _ONE_WORD.fullmatch(inside):
        return inside
    if _SHELL_RUNS.search(match.string[max(0, match.start() - 20) : match.start()]):
        return f"({inside}"
    return inside[inside.index("$(") :] if quoted[0] == '"' and "$(" in inside else "_"


_HEREDOC = re.compile(r"""<<-?[ \t]*["']?([A-Za-z_]\w*+)[^\n]*+\n?""")


def _without_heredocs(command: str) -> str:
    """Remove heredoc contents from a command."""
    pieces: list[str] = []
    position = 0
    while match := _HEREDOC.search(command, position) if "<<" in command else None:
        pieces.append(command[position : match.end()])
        stop = command.find(f"\n{match[1]}", match.end() - 1)
        position = len(command) if stop < 0 else stop + 1 + len(match[1])
    return "".join([*pieces, command[position:]])


OWN_TAG = "thresher-recall"
_BLANK = r"(?:\s|\\{1,8}[nrt]){0,40}+"
"""White space in JSON, including escaped white space inside a JSON string."""


class _TagNotation(NamedTuple):
    """Patterns for one way to write a tag's brackets."""

    opening: str
    closing: str
    pattern: re.Pattern[str]
    object: re.Pattern[str]
    """Pattern for the start of Thresher's JSON output."""


def _build_notation(opening: str, closing: str) -> _TagNotation:
    names = "|".join(re.escape(name) for group in RECALLED_TEXT_ELEMENTS for name in group.split())
    begins = rf"\{{{_BLANK}(\\{{0,7}}\"|&quot;)mark\1\s?:\s?\1{re.escape(opening)}{OWN_TAG}(?=[\s>&\\])"
    return _TagNotation(opening, closing, re.compile(rf"{re.escape(opening)}({names})(?=[\s>&\\])"), re.compile(begins))


_NOTATIONS = (
    _build_notation("<", ">"),
    _build_notation("&lt;", "&gt;"),
    _build_notation("\\u003c", "\\u003e"),
    _build_notation("\\\\u003c", "\\\\u003e"),
)
_HEADERS = tuple((token, re.compile(pattern, re.MULTILINE)) for token, pattern in HEADERS)
_CONTINUATION = re.compile(r"\n+(?=[ \t\-*•…\[]|\.\.\. )")


def find_recall_spans(text: str, *, printed: bool) -> list[tuple[int, int]]:
    """Return the sorted, disjoint spans of recalled text; `printed` is true for program output."""
    # Every header contains one of these strings. A loop would be slower than this expression.
    may_be_headed = "•" in text or "·" in text or "atches" in text or "ctx_session_id" in text
    spans = _header_spans(text, whole=not printed) if may_be_headed else []
    for notation in _NOTATIONS:
        if notation.opening[0] in text and notation.opening in text and notation.pattern.search(text):
            spans += _tag_spans(text, notation, printed)
            spans += _json_spans(text, notation, printed)
    return _merge_spans(spans) if len(spans) > 1 else spans


def strip_recalls(text: str, *, printed: bool) -> str:
    """Remove recalled text, including text that a hook inserted."""
    spans = find_recall_spans(text, printed=printed)
    spans += [(span.start, span.stop) for span in find_harness_spans(text) if span.author == "recall"]
    pieces: list[str] = []
    position = 0
    for start, stop in _merge_spans(spans):
        pieces.append(text[position:start])
        position = stop
    return "".join([*pieces, text[position:]]).strip()


def _tag_spans(text: str, notation: _TagNotation, printed: bool) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    position = 0
    while match := notation.pattern.search(text, position):
        position = match.end()
        opening_kind = _classify_opening(text, match.start(), printed)
        if not opening_kind:
            continue
        closing = f"{notation.opening}/{match[1]}{notation.closing}"
        stop = -1 if match[1] in unclosed else text.find(closing, position)
        if stop >= 0:
            position = stop + len(closing)
            spans.append((match.start(), position))
        elif printed and opening_kind == "line" and match[1] in OPEN_ENDED_TAGS:
            return [*spans, (match.start(), len(text))]
        else:
            unclosed.add(match[1])  # search only once, to keep the time linear
    return spans


def _json_spans(text: str, notation: _TagNotation, printed: bool) -> list[tuple[int, int]]:
    """Return the spans of JSON objects that Thresher printed."""
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    position = 0
    while match := notation.object.search(text, position):
        position = match.end()
        quote = re.escape(match[1])
        tag = re.escape(f"{notation.opening}/{OWN_TAG}{notation.closing}")
        end = rf"(?<!\\){quote}end{quote}\s?:\s?{quote}{tag}{quote}"
        closed = None if quote in unclosed else re.compile(rf"{end}{_BLANK}\}}?").search(text, position)
        if closed:
            position = closed.end()
            spans.append((match.start(), position))
        elif printed:
            return [*spans, (match.start(), len(text))]
        else:
            unclosed.add(quote)
    return spans


def _classify_opening(text: str, start: int, printed: bool) -> Literal["", "inside", "line"]:
    """Classify where a block starts: on a new line (`line`), after a tag or in quoted output (`inside`), or neither."""
    before = text[max(0, start - 80) : start].rstrip(" \t")
    if not before or before.endswith(("\n", "\\n")):
        return "line"
    if before.endswith((">", "&gt;", "u003e")) or (printed and before.endswith(('"', ":"))):
        return "inside"
    return ""


def _header_spans(text: str, *, whole: bool) -> list[tuple[int, int]]:
    """Return the spans of hits that a memory tool printed, each from its header to the end of its last paragraph.

    With `whole`, a header at the start of the text makes the span cover the whole text.
    """
    spans: list[tuple[int, int]] = []
    for token, pattern in _HEADERS:
        position = 0
        while match := pattern.search(text, position) if token in text else None:
            if whole and not position and not text[: match.start()].strip():
                return [(0, len(text))]
            position = _paragraphs_end(text, match.end())
            spans.append((match.start(), position))
    return spans


def _paragraphs_end(text: str, position: int) -> int:
    """Return the end of a paragraph, including indented or list paragraphs after it."""
    while (stop := text.find("\n\n", position)) >= 0:
        continuation = _CONTINUATION.match(text, stop)
        if continuation is None:
            return stop
        position = continuation.end()
    return len(text)


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


OWN_FOLDERS = ("/.claude-mem/observer-sessions", "/.claude-mem/observer-config", "-claude-mem-observer-sessions")
"""Working folders of claude-mem's observer, and the folder name that Claude Code derives from one."""

_MADE = re.compile(
    r"\A\s*(?:You are a Claude-Mem\b|Hello memory agent, you are )"
    r"|^[ \t]*(?:<observed_from_primary_session>"
    r"|<INSTRUCTIONS-TO-(?P<marked>[A-Z][A-Z-]{1,40})>\s*DO NOT INDEX THIS CHAT"
    r"|(?P<listed>Context: This summary will be shown in a list to help users and Claude choose))",
    re.MULTILINE,
)
MAX_INSPECTED_MESSAGES = 6
"""Number of messages to inspect at the start of a session, where a memory tool gives its instructions."""


def detect_memory_tool(session: Session) -> str:
    """Return the memory tool that created a session or forbids indexing it, or an empty string.

    A queued prompt at the start proves nothing, since every headless run has one.
    """
    paths = (session.project.replace("\\", "/"), session.file.replace("\\", "/"))
    if any(folder in path for folder in OWN_FOLDERS for path in paths):
        return "claude-mem"
    for message in islice(session.messages(), MAX_INSPECTED_MESSAGES):
        match = _MADE.search(message.text, 0, 4000) if message.role in ("user", "system") else None
        if match:
            tool: str = match["marked"] or ""
            return tool.lower() or ("episodic-memory" if match["listed"] else "claude-mem")
    return ""
