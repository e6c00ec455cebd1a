"""Recognize text in a user message that a harness or a memory tool wrote.

Agents write a lot into the `user` role: reminders, hook output, command output, editor state, and text that a memory
tool recalled. Transcript formats often flag such text. Where they do not, these patterns match it. Treating a human's
words as harness text is the worse mistake, so a pattern matches only where a harness would write it: an element that
opens a line and is closed, or a phrase at the start of the message. A tag in the middle of a sentence, an unclosed tag
or a quoted harness phrase counts as human. Tag names that people also use, such as `goal`, match only if the element is
the whole message.

No regex contains a repetition inside a repetition, so matching takes linear time.
"""

import re
from functools import cache
from typing import Literal, NamedTuple, get_args

from thresher.model.message import Author

HARNESS_ELEMENTS = (
    # Claude Code: slash commands, shell mode, reminders, hooks, background tasks, other agents, the editor.
    "local-command-caveat local-command-stdout local-command-stderr command-name command-message",
    "command-args command-contents bash-input bash-stdout bash-stderr system-reminder",
    "session-start-hook user-prompt-submit-hook user-memory-input task-notification teammate-message",
    "persisted-output ide_opened_file ide_selection ide_diagnostics new-diagnostics agent-notification",
    # Codex: user actions outside the prompt.
    "turn_aborted user_shell_command user_action model_switch subagent_notification",
    # Gemini CLI: hooks.
    "hook_context",
    # Cline, Roo, Kilo: editor state after every prompt, compaction notices, write results.
    "environment_details system_notice file_write_result explicit_instructions",
    # Cursor and Copilot: editor state.
    "open_and_recently_viewed_files attached_files system_reminder git_status",
    "editorcontext reminderinstructions current_datetime system_notification",
)
"""Elements before, after or between a human's words. Each string holds names separated by one space."""

CONTEXT_ELEMENTS = (
    # Codex: environment and rules.
    "environment_context user_instructions collaboration_mode apps_instructions skills_instructions",
    "plugins_instructions personality_spec recommended_plugins",
    # Gemini CLI: chat setup, the summary after a compaction.
    "session_context state_snapshot",
    # Cursor and Copilot: the machine, the project and its rules.
    "user_info project_layout always_applied_workspace_rules agent_skills environment_info workspace_info",
)
"""Elements with declared context: facts and rules for the whole conversation, which edits must not change."""

ELEMENT_WITH_SPACE = "permissions instructions"
"""The one Codex element whose name contains a space. It declares context."""

WHOLE_MESSAGE_ELEMENTS = ("goal tick skill files",)
"""Elements whose names people also use; they match only as the whole message."""

WRAPPERS = ("task feedback user_message user_query userrequest",)
"""Elements around a human's words. The harness writes the tags; a human writes the content."""

RECALLED_TEXT_ELEMENTS = (
    "claude-mem-context relevant-memories relevant_memories supermemory-context",
    "supermemory-containers memory-hint hindsight_memories hindsight_context openviking-context",
    "recalled_experience recalled-memories recalled_memories memory-context memory_context",
    "mem0-memories deja-recall thresher thresher-recall thresher-memory",
)
"""Elements that memory tools, including Thresher, put around recalled text."""

PROJECT_INSTRUCTIONS_HEADING = "\n# claudeMd"
"""Heading of project instructions in Claude Code's reminders, which makes them declared context."""

HOOKS = ("system-reminder", "session-start-hook", "user-prompt-submit-hook", "hook_context")
"""Harness elements that may contain recalled text. If one does, the whole element counts as recalled text."""

ELEMENT_TRAILERS = (
    # Codex: the project's instructions after other elements.
    r"# AGENTS\.md instructions[^\n]*\s*<INSTRUCTIONS>(?:(?!</INSTRUCTIONS>)[\s\S])*</INSTRUCTIONS>",
    # Claude Code after a background task, Roo after a write: one more line that belongs to the previous element.
    r"Read the output file to retrieve the result: [^\n]*",
    r"Full transcript available at: [^\n]*",
    r"<notice>[^<]*</notice>",
)
"""Regexes that match only directly after an element."""

END_OF_MESSAGE = ""

CONTEXT_PHRASES: tuple[tuple[str, str | None], ...] = (
    # Several agents: facts as JSON.
    (r"SYSTEM CONTEXT \(JSON\):", END_OF_MESSAGE),
    # Claude Code and Codex: the summary after a compaction.
    (r"This session is being continued from a previous conversation(?: that ran out|[.:]|\s*\Z)", END_OF_MESSAGE),
    (r"Another language model started to solve this problem and produced a summary", END_OF_MESSAGE),
    # Codex: the project's instructions.
    (r"# AGENTS\.md instructions(?: for [/~.A-Z][^\n]*\n|[^\n]*\n\s*<INSTRUCTIONS>)", "</INSTRUCTIONS>"),
    # Gemini CLI before it used a tag.
    (r"This is the Gemini CLI\. We are setting up the context for our chat", END_OF_MESSAGE),
)
"""Regexes that match at the start of declared context, each with its closing text."""

ORPHAN_RESULT_LABEL = "[result of an unknown call]"
"""Opening of a result without a call, which a repair wrote as text. With a tool: `[result of an unknown call of X]`."""
_ORPHAN_LABEL = r"\[result of an unknown call of ([\w.-]{1,100})\]"


def format_orphan_label(tool: str) -> str:
    """Return the opening of a result without a call, with the tool if its name is known."""
    label = f"{ORPHAN_RESULT_LABEL[:-1]} of {tool}]"
    return label if _compile(_ORPHAN_LABEL).fullmatch(label) else ORPHAN_RESULT_LABEL


def parse_orphan_label(text: str) -> str:
    """Return the tool in the opening of a result without a call, or an empty string."""
    found = _compile(_ORPHAN_LABEL).match(text)
    return found[1] if found else ""


HARNESS_PHRASES: tuple[tuple[str, str | None], ...] = (
    # Claude Code: interruptions by a user or a hook, the text before a skill.
    (r"\[Request interrupted by user[^\]\n]{0,40}\]", None),
    (r"\[Image: (?:original|source)[^\]\n]{0,400}\]", None),
    (r"(?:Stop|SubagentStop|UserPromptSubmit|PreToolUse|PostToolUse) hook feedback:", END_OF_MESSAGE),
    (r"Caveat: The messages below were generated", END_OF_MESSAGE),
    (r"Base directory for this skill: ", END_OF_MESSAGE),
    # Codex: editor state.
    (r"# Context from my IDE setup:", "## My request for Codex:"),
    # Cline, Roo, Kilo: tool results in the user role, and lines that introduce a human's answer.
    (r"\[\w+(?: for '[^\n]*)?\] Result:", END_OF_MESSAGE),
    (r"\[ERROR\] You did not use a tool in your previous response", END_OF_MESSAGE),
    (r"\[TASK RESUMPTION\]", "New instructions for task continuation:"),
    (r"The user (?:approved|denied) this operation and provided the following (?:context|feedback):", None),
    (r"New instructions for task continuation:", None),
    # Thresher: placeholders and repair notes.
    (r"\[thresher t1:[0-9a-f]{16} · [^\n\[\]]{0,1000}\](?:\n(?:(?!\[/thresher\])[\s\S])*\[/thresher\])?", None),
    (r"\[result of an unknown call(?: of [\w.-]{1,100})?\]", END_OF_MESSAGE),
    (r"\[another result of a call answered before\]", END_OF_MESSAGE),
    (r"\[earlier conversation not included\]", None),
    # opencode: text after a sub-agent, and before a file that the prompt names.
    (r"Summarize the task tool output above and continue with your task\.", None),
    (r"Called the \w+ tool with the following input:", END_OF_MESSAGE),
)
"""Regexes that match at the start of a message, each with its closing text.

`END_OF_MESSAGE` extends the match to the end of the message; None means that the phrase is complete by itself.
"""

_FIRST_CONTEXT_CHARACTERS = "<#TSA"
"""First characters of the elements and phrases of declared context. Other texts need no search."""

_SEARCH_RESULT_HEADER = r"\[\d+/\d+\]\s+[0-9a-f]{7,40}\s+•"
"""Header of the first result of a memory search: `[1/5] abc1234 •`."""


def _any_name(groups: tuple[str, ...]) -> str:
    return "|".join(re.escape(name) for group in groups for name in group.split())


_ELEMENT_TAG = (
    rf"[ \t]*<(?P<name>{_any_name(HARNESS_ELEMENTS)}|(?P<recall>{_any_name(RECALLED_TEXT_ELEMENTS)})|"
    rf"(?P<context>{_any_name(CONTEXT_ELEMENTS)}|{ELEMENT_WITH_SPACE}))(?:\s[^<>]*)?>"
)
_WHOLE_MESSAGE = rf"\s*<(?P<name>{_any_name(WHOLE_MESSAGE_ELEMENTS)})(?:\s[^<>]*)?>"
_WRAPPER = rf"\s*<(?P<name>{_any_name(WRAPPERS)})>"
_ELEMENT_TRAILER = rf"\s*(?:{'|'.join(ELEMENT_TRAILERS)})"
_PHRASE = r"\s*(?:" + "|".join(f"({pattern})" for pattern, _ in (*CONTEXT_PHRASES, *HARNESS_PHRASES)) + ")"
_RECALLED_TEXT_INSIDE = rf"(?:<|&lt;)(?:{_any_name(RECALLED_TEXT_ELEMENTS)})\b|^{_SEARCH_RESULT_HEADER}"


@cache
def _compile(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile on first use, because importing this module must stay fast."""
    return re.compile(pattern, flags)


SpanAuthor = Literal["context", "recall", "harness"]
SPAN_AUTHORS: tuple[SpanAuthor, ...] = get_args(SpanAuthor)
"""Authors of spans. If a text has several, the first of them is the author of the text."""


class HarnessSpan(NamedTuple):
    """Range of a user message that a harness or a memory tool wrote."""

    start: int
    stop: int
    author: SpanAuthor


def detect_author(text: str) -> Author:
    """Return the author of a text in the user role: `human` if a human wrote any of its words."""
    spans = find_harness_spans(text)
    if not spans or _text_outside_spans(text, spans):
        return "human"
    authors = {span.author for span in spans}
    return next(author for author in SPAN_AUTHORS if author in authors)


def declares_context(text: str) -> bool:
    """Return whether a text in the user role consists of declared context, without any human words."""
    return text.lstrip()[:1] in _FIRST_CONTEXT_CHARACTERS and detect_author(text) == "context"


def find_harness_offsets(text: str) -> list[tuple[int, int]]:
    """Return the ranges that a harness or a memory tool wrote: sorted, not overlapping."""
    return [(span.start, span.stop) for span in find_harness_spans(text)]


def extract_human_text(text: str) -> str:
    """Return the text without the ranges that a harness or a memory tool wrote."""
    return _text_outside_spans(text, find_harness_spans(text))


def find_harness_spans(text: str) -> list[HarnessSpan]:
    """Return the harness and memory-tool spans of a text in the user role: sorted, not overlapping."""
    if re.match(rf"\s*{_SEARCH_RESULT_HEADER}", text):
        return [HarnessSpan(0, len(text), "recall")]
    spans = _match_opening_phrase(text)
    if "<" not in text or (spans and spans[-1].stop == len(text)):
        return spans
    whole = _match_whole_message(text)
    if whole:
        return whole
    spans += _match_elements(text, spans[-1].stop if spans else 0)
    return sorted(spans + _match_wrapper(text, spans))


def _text_outside_spans(text: str, spans: list[HarnessSpan]) -> str:
    kept: list[str] = []
    position = 0
    for span in spans:
        kept.append(text[position : span.start])
        position = span.stop
    kept.append(text[position:])
    return "".join(kept).strip()


def _match_opening_phrase(text: str) -> list[HarnessSpan]:
    match = _compile(_PHRASE).match(text)
    if match is None or match.lastindex is None:
        return []
    closing = (*CONTEXT_PHRASES, *HARNESS_PHRASES)[match.lastindex - 1][1]
    author: SpanAuthor = "context" if match.lastindex <= len(CONTEXT_PHRASES) else "harness"
    if closing is None:
        return [HarnessSpan(0, match.end(), author)]
    stop = text.find(closing, match.end()) if closing else -1
    return [HarnessSpan(0, len(text) if stop < 0 else stop + len(closing), author)]


def _match_whole_message(text: str) -> list[HarnessSpan]:
    match = _compile(_WHOLE_MESSAGE, re.IGNORECASE).match(text)
    if match and text.rstrip().lower().endswith(f"</{match['name'].lower()}>"):
        return [HarnessSpan(0, len(text), "harness")]
    return []


def _match_elements(text: str, position: int) -> list[HarnessSpan]:
    """Find elements that open a line or directly follow another element."""
    # Lowercasing can change the length of a text. The offsets would then be wrong, so search the original text.
    lowered = text.lower()
    searched = lowered if len(lowered) == len(text) else text
    spans: list[HarnessSpan] = []
    unclosed: set[str] = set()
    tag = _compile(_ELEMENT_TAG, re.IGNORECASE)
    tag_at_line_start = _compile(f"^{_ELEMENT_TAG}", re.IGNORECASE | re.MULTILINE)
    trailer = _compile(_ELEMENT_TRAILER)
    while match := tag.match(text, position) or tag_at_line_start.search(text, position):
        name = match["name"].lower()
        closing = f"</{name}>"
        stop = -1 if name in unclosed else searched.find(closing, match.end())
        if stop < 0:
            unclosed.add(name)  # do not search for this tag again, so that the time stays linear
            position = match.end()
            continue
        position = stop + len(closing)
        tail = trailer.match(text, position)
        position = tail.end() if tail else position
        spans.append(HarnessSpan(match.start(), position, _element_author(text, match, position)))
    return spans


def _element_author(text: str, match: re.Match[str], stop: int) -> SpanAuthor:
    if match["context"]:
        return "context"
    if match["recall"]:
        return "recall"
    if match["name"].lower() not in HOOKS:
        return "harness"
    if text.find(PROJECT_INSTRUCTIONS_HEADING, match.end(), stop) >= 0:
        return "context"
    return "recall" if _compile(_RECALLED_TEXT_INSIDE, re.MULTILINE).search(text, match.end(), stop) else "harness"


def _match_wrapper(text: str, spans: list[HarnessSpan]) -> list[HarnessSpan]:
    """Match the tags around a human's words, if only harness spans precede the opening tag."""
    position = 0
    for span in spans:
        if text[position : span.start].strip():
            break
        position = span.stop
    match = _compile(_WRAPPER, re.IGNORECASE).match(text, position)
    closing = f"</{match['name']}>" if match else ""
    stop = text.find(closing, match.end()) if match else -1
    if match is None or stop < 0 or any(span.start <= stop < span.stop for span in spans):
        return []
    return [HarnessSpan(position, match.end(), "harness"), HarnessSpan(stop, stop + len(closing), "harness")]
