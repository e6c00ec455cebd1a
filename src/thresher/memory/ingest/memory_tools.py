"""How memory tools show in a transcript: the tools and commands that ask one, and the old text that they print.

Old text that is found again counts as new evidence for itself, so it must be told apart from work. Three things
give it away. A *call* names a memory tool, as a tool, a skill or a program in a shell command. A *mark* encloses the
block that a tool put out; it survives being printed by another program, and then `<` may be written as `&lt;` or
`\\u003c`. A *header* opens each hit in what some tools print.

The worse mistake is to lose honest work, so all three count only where they act. A program counts in the place of
a command, never in a quoted argument; a mark where a block would open; a header at the start of a line. Where
a program printed a mark of ours that is never closed, it was cut off and takes the rest; in what a person or a model
says, it takes nothing.

Our own JSON has the mark as its first value and its end as the last. All of that object goes, also where it stands in
a string of another one: each time that it is written into one, its quotes get a backslash more.

Texts are looked into only after a plain `in` found something. No pattern can walk over the same text twice.
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
"""Whether a call asks a memory: not at all, with all that it does, or in one of the commands of a line."""

SERVERS = (
    "thresher episodic(?:[-_]memory)? claude[-_]?mem mem[-_]search deja(?:[-_]vu)? agentsview historian moraine",
    "polylogue cass ccrecall cc[-_]recall memex fast[-_]resume session[-_]search conversation[-_]search mempalace",
    "openmemory supermemory mem0 hindsight",
)
"""Words of MCP servers that hold past sessions, and nothing else."""

LOOSE_SERVERS = ("memory memories recall ctx",)
"""Words of servers that do other things too: their tools count where they read."""

TOOLS = (
    "recall recall_memory recall_memories retrieve_memories memory_search memory_recall search_memory search_memories",
    "conversation_search search_conversations recent_chats session_search",
)
"""Tools of agents that have a memory of their own."""

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
"""Programs, each with the sub-commands that show past sessions; none means all."""

RUNNERS = (
    "sudo|time|command|exec|nohup|env|xargs|do|then|else|!|npx|bunx|uvx|claude-tools|timeout[ \t]+[^\\s;|&]+",
    r"pipx[ \t]+run|uv[ \t]+(?:tool[ \t]+)?run|npm[ \t]+exec|pnpm[ \t]+(?:dlx|exec)|yarn[ \t]+dlx|bun[ \t]+x",
    r"poetry[ \t]+run|python[\d.]*[ \t]+-m",
)
"""Words after which a program's name still stands in the place of a command."""

OPEN_ENDED_TAGS = frozenset({"thresher-recall", "thresher-memory", "deja-recall"})
"""Elements that take the rest of what a program printed where their end is missing."""

HEADERS: tuple[tuple[str, str], ...] = (
    ("•", r"^\[\d{1,6}/\d{1,6}\][ \t]+[0-9a-f]{7,40}[ \t]+•"),
    (" matches | ", r"^[^\s|][^\n|]{0,300}\| [0-9a-f][0-9a-f-]{6,40} \| \d{1,9} matches \| \d{4}-"),
    ("Matches: ", r"^Session: [0-9a-f][0-9a-f-]{6,40}\nMatches: \d"),
    ("· ", r"^\[[a-z][a-z-]{1,20}\][ \t]+[^\n]{1,120} · [0-9a-f][0-9a-f-]{6,40} — +\d{1,9} match"),
    ("ctx_session_id: ", r"^ctx_session_id: [0-9a-f-]{8,40}\nprovider: "),
)
"""The first lines of what memory tools print for one hit, each with a text that it must have."""


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
    """Whether a prompt is a slash command that searches past sessions."""
    return "/" in text and _PROMPT.match(text) is not None


def classify_recall(call: ToolCall) -> RecallKind:
    """Whether a call asks a memory."""
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
    """Whether the tool of that name shows past sessions."""
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
    """The server and the tool, as far as the name has both: Gemini CLI sets them apart by nothing of their own."""
    if name.startswith("mcp__") or "__" in name:
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return server, tool
    return (name, name) if name.startswith("mcp_") else ("", name)


def _is_memory_skill(fields: dict[str, Any]) -> bool:
    return any(_SKILL.match(value) for value in map(fields.get, _SKILL_FIELDS) if isinstance(value, str))


def _is_memory_server(call: ToolCall) -> bool:
    """Some agents have one tool for all servers, and the arguments say which is meant."""
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
    """Whether a shell command runs a program that shows past sessions."""
    if not _PROGRAM_NAMED.search(command):
        return ""
    plain = _QUOTED.sub(_replace_quoted, _without_heredocs(command)).strip()
    if not _COMMAND.search(plain):
        return ""
    return "among" if _SEVERAL.search(plain) else "alone"


_QUOTED = re.compile(r"""\\.|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'[^']*+(?:'|\Z)|(?:(?<=[\s;])|\A)\#[^\n]*""", re.DOTALL)
_ONE_WORD = re.compile(r"[\w./~@:${}-]+")
_SHELL_RUNS = re.compile(r"sh[ \t]+-\w*c[ \t]+\Z")


def _replace_quoted(found: re.Match[str]) -> str:
    """What a quoted piece means for the places of commands: mostly nothing, it is an argument."""
    word = found[0]
    if word[0] == "\\":
        return " " if word == "\\\n" else "_"
    if word[0] == "#":
        return ""
    inside = word[1:-1]
    if _ONE_WORD.fullmatch(inside):
        return inside
    if _SHELL_RUNS.search(found.string[max(0, found.start() - 20) : found.start()]):
        return f"({inside}"
    return inside[inside.index("$(") :] if word[0] == '"' and "$(" in inside else "_"


_HEREDOC = re.compile(r"""<<-?[ \t]*["']?([A-Za-z_]\w*)[^\n]*\n""")


def _without_heredocs(command: str) -> str:
    """The command without the texts that it feeds to programs."""
    kept: list[str] = []
    position = 0
    while found := _HEREDOC.search(command, position) if "<<" in command else None:
        kept.append(command[position : found.end()])
        stop = command.find(f"\n{found[1]}", found.end() - 1)
        position = len(command) if stop < 0 else stop + 1 + len(found[1])
    return "".join([*kept, command[position:]])


OWN_TAG = "thresher-recall"
_BLANK = r"(?:\s|\\{1,8}[nrt]){0,40}+"
"""Space in JSON, in a string of JSON too."""


class _TagNotation(NamedTuple):
    """One way to write the brackets of an element."""

    opening: str
    closing: str
    pattern: re.Pattern[str]
    object: re.Pattern[str]
    """The beginning of our own JSON."""


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
    """Where in a text a memory tool speaks, in order, not overlapping; `printed` for what a program put out."""
    # Each header has one of these: fewer looks at a text that has none, written out since a loop takes longer.
    may_be_headed = "•" in text or "·" in text or "atches" in text or "ctx_session_id" in text
    spans = _header_spans(text, whole=not printed) if may_be_headed else []
    for form in _NOTATIONS:
        if form.opening[0] in text and form.opening in text and form.pattern.search(text):
            spans += _tag_spans(text, form, printed)
            spans += _json_spans(text, form, printed)
    return _merge_spans(spans) if len(spans) > 1 else spans


def strip_recalls(text: str, *, printed: bool) -> str:
    """The text without what a memory tool says in it, be it through a hook."""
    spans = find_recall_spans(text, printed=printed)
    spans += [(span.start, span.stop) for span in find_harness_spans(text) if span.author == "recall"]
    kept: list[str] = []
    position = 0
    for start, stop in _merge_spans(spans):
        kept.append(text[position:start])
        position = stop
    return "".join([*kept, text[position:]]).strip()


def _tag_spans(text: str, form: _TagNotation, printed: bool) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    position = 0
    while found := form.pattern.search(text, position):
        position = found.end()
        place = _classify_opening(text, found.start(), printed)
        if not place:
            continue
        closing = f"{form.opening}/{found[1]}{form.closing}"
        stop = -1 if found[1] in unclosed else text.find(closing, position)
        if stop >= 0:
            position = stop + len(closing)
            spans.append((found.start(), position))
        elif printed and place == "line" and found[1] in OPEN_ENDED_TAGS:
            return [*spans, (found.start(), len(text))]
        else:
            unclosed.add(found[1])  # one look is enough: the time stays linear
    return spans


def _json_spans(text: str, form: _TagNotation, printed: bool) -> list[tuple[int, int]]:
    """Our own JSON, each object from its first bracket to its last."""
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    position = 0
    while found := form.object.search(text, position):
        position = found.end()
        quote = re.escape(found[1])
        end = rf"(?<!\\){quote}end{quote}\s?:\s?{quote}{re.escape(f'{form.opening}/{OWN_TAG}{form.closing}')}{quote}"
        closed = None if quote in unclosed else re.compile(rf"{end}{_BLANK}\}}?").search(text, position)
        if closed:
            position = closed.end()
            spans.append((found.start(), position))
        elif printed:
            return [*spans, (found.start(), len(text))]
        else:
            unclosed.add(quote)
    return spans


def _classify_opening(text: str, start: int, printed: bool) -> Literal["", "inside", "line"]:
    """Whether a block may open here: on a line of its own, behind another mark, or where a program quotes it."""
    before = text[max(0, start - 80) : start].rstrip(" \t")
    if not before or before.endswith(("\n", "\\n")):
        return "line"
    if before.endswith((">", "&gt;", "u003e")) or (printed and before.endswith(('"', ":"))):
        return "inside"
    return ""


def _header_spans(text: str, *, whole: bool) -> list[tuple[int, int]]:
    """Hits with a header, each to the end of its paragraphs; a message that begins with one is nothing else."""
    spans: list[tuple[int, int]] = []
    for token, pattern in _HEADERS:
        position = 0
        while found := pattern.search(text, position) if token in text else None:
            if whole and not position and not text[: found.start()].strip():
                return [(0, len(text))]
            position = _paragraphs_end(text, found.end())
            spans.append((found.start(), position))
    return spans


def _paragraphs_end(text: str, position: int) -> int:
    """The end of the paragraph, and of those after it that are indented or list something."""
    while (stop := text.find("\n\n", position)) >= 0:
        more = _CONTINUATION.match(text, stop)
        if more is None:
            return stop
        position = more.end()
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
"""Where claude-mem's observer works, and what Claude Code makes of that in the name of a folder."""

_MADE = re.compile(
    r"\A\s*(?:You are a Claude-Mem\b|Hello memory agent, you are )"
    r"|^[ \t]*(?:<observed_from_primary_session>"
    r"|<INSTRUCTIONS-TO-(?P<marked>[A-Z][A-Z-]{1,40})>\s*DO NOT INDEX THIS CHAT"
    r"|(?P<listed>Context: This summary will be shown in a list to help users and Claude choose))",
    re.MULTILINE,
)
MAX_INSPECTED_MESSAGES = 6
"""A memory tool says what it wants in its first messages."""


def detect_memory_tool(session: Session) -> str:
    """The memory tool that made a session for its own work, or whose mark forbids to index it; else nothing.

    A session that begins with a queued prompt is none of these: every headless run does.
    """
    places = (session.project.replace("\\", "/"), session.file.replace("\\", "/"))
    if any(folder in place for folder in OWN_FOLDERS for place in places):
        return "claude-mem"
    for message in islice(session.messages(), MAX_INSPECTED_MESSAGES):
        found = _MADE.search(message.text, 0, 4000) if message.role in ("user", "system") else None
        if found:
            marked: str = found["marked"] or ""
            return marked.lower() or ("episodic-memory" if found["listed"] else "claude-mem")
    return ""
