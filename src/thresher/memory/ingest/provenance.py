"""Determine the field of each text in a session, and the reason to exclude the text from a search.

Two things clutter a search over past sessions: noise (interruptions, API errors, commands, editor state) and
recalled text (output of memory tools, questions to these tools, and answers derived from the output). The author
of a text identifies noise and recalled text. The transcript format or markers in the text reveal the author. An
excluded text is kept with its reason, so a query can include it.

Losing human text is the worse mistake. So a noise pattern must match the complete text: "API Error: 529 {…}" is
noise, "why do we get API Error: 529?" is not. If a memory tool's block is part of another text, only the block is
excluded and the rest stays unchanged.

Texts before a recall are original. The call of a memory tool and its result are excluded. The model's words after
them are marked as `derived`, until the model acts (an edit, a command) or a new prompt arrives. The prompt that caused
the recall is marked too, since it repeats the question and would outrank the session with the answer.

Images and long runs of base64 are removed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from thresher.memory.ingest.embedded_data import strip_embedded_data
from thresher.memory.ingest.memory_tools import (
    RecallKind,
    classify_recall,
    find_recall_spans,
    is_memory_prompt,
    is_memory_tool,
)
from thresher.memory.ingest.secret_names import is_secret_name
from thresher.memory.records import ExclusionReason
from thresher.model import Message, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.api_errors import is_error_notice, starts_like_error_notice
from thresher.model.harness_text import find_harness_spans
from thresher.model.human_words import find_human_words
from thresher.model.jsontext import load_json
from thresher.model.open_calls import OpenCalls
from thresher.model.parts import Part
from thresher.model.tool_calls import describe_tool_call
from thresher.model.tool_catalog import ToolCategory

TextField = Literal["human", "agent", "thinking", "input", "output", "summary"]
"""Field of a text. Harness texts and system prompts have the field `human`."""

MIN_TEXT_LENGTH = 10
"""Minimum length of a message that a search covers. Shorter ones are usually "ok" or "thanks"."""


class AttributedText(NamedTuple):
    """A text of a message with its field and exclusion reason."""

    field: TextField
    text: str
    reason: ExclusionReason = ""
    derived: bool = False
    """True if the text caused a recall or follows from one."""


def attribute_texts(messages: Sequence[Message]) -> Iterator[tuple[int, list[AttributedText]]]:
    """Yield the index of each message with its texts, in order."""
    reader = _ProvenanceReader()
    # Texts since the last prompt wait until the first call shows whether the prompt led to a recall.
    waiting: list[tuple[int, list[AttributedText]]] = []
    is_waiting = False
    for index, message in enumerate(messages):
        texts = reader.read(message)
        if reader.has_prompt:
            yield from waiting
            waiting, is_waiting = [], True
        waiting.append((index, texts))
        if is_waiting and reader.calls and reader.calls[0].recall:
            waiting = [(waiting_index, _mark_derived(waiting_texts)) for waiting_index, waiting_texts in waiting]
        if reader.calls or not is_waiting:
            yield from waiting
            waiting, is_waiting = [], False
    yield from waiting


def _mark_derived(texts: list[AttributedText]) -> list[AttributedText]:
    return [text._replace(derived=True) if _is_conversation(text) else text for text in texts]


def _is_conversation(text: AttributedText) -> bool:
    return text.field in ("human", "agent", "thinking") and text.reason in ("", "short")


class _PendingCall(NamedTuple):
    """A call without a result yet."""

    recall: RecallKind
    changes_state: bool
    """True if the call edits or runs something, so that the text after its result is original."""
    recalls_before: int
    """Number of recalls answered before this call."""
    name: str = ""
    category: ToolCategory = "other"


class _ProvenanceReader:
    """Attributes texts of messages in order, with state from earlier messages."""

    def __init__(self) -> None:
        self.has_prompt = False
        """True if the last message contained a prompt by a human or a model, or a recall command."""
        self.calls: list[_PendingCall] = []
        """Calls of the last message."""
        self._pending = OpenCalls[_PendingCall]()
        self._message_count = 0
        self._is_after_recall = False
        self._recall_count = 0

    def read(self, message: Message) -> list[AttributedText]:
        """Return the texts of one message."""
        self._message_count += 1
        self.calls = []
        is_after_recall, recalls_before = self._is_after_recall, self._recall_count
        texts = _exclude_short([text for part in message.parts for text in self._part(part, message)])
        from_user = message.role == "user"
        is_recall_command = from_user and any(text.reason == "recall" and is_memory_prompt(text.text) for text in texts)
        self.has_prompt = is_recall_command or (from_user and any(map(_is_conversation, texts)))
        if is_recall_command or self._recall_count > recalls_before:
            self._is_after_recall = True
        elif self.has_prompt:
            self._is_after_recall = False
        return _mark_derived(texts) if is_after_recall and message.role == "assistant" else texts

    def _part(self, part: Part, message: Message) -> Iterable[AttributedText]:
        match part:
            case Text():
                return _split_text(strip_embedded_data(part.text), message)
            case Thinking():
                return _split_recalled("thinking", strip_embedded_data(part.text), printed=False)
            case Summary():
                return _split_recalled("summary", strip_embedded_data(part.text), printed=False)
            case ToolCall():
                return self._call(part)
            case ToolResult():
                return self._result(part)
            case _:
                return ()

    def _call(self, call: ToolCall) -> list[AttributedText]:
        recall, details = classify_recall(call), describe_tool_call(call)
        changes_state = bool(details.command) or details.category in ("file_edit", "execution")
        pending = _PendingCall(recall, changes_state and not recall, self._recall_count, call.name, details.category)
        self.calls.append(pending)
        self._pending.add(call.id, self._message_count, self.calls[-1])
        text = strip_embedded_data(_join_argument_texts(call.arguments))
        return _single_text("input", text, "recall") if recall else _split_recalled("input", text, printed=True)

    def _result(self, result: ToolResult) -> list[AttributedText]:
        call = self._pending.answer(result.call_id) or _unpaired_call(result)
        if call.recall:
            self._recall_count += 1
        elif call.changes_state and call.recalls_before == self._recall_count:
            self._is_after_recall = False
        if call.recall == "alone":
            return _single_text("output", strip_embedded_data(result.text), "recall")
        start, stop = find_human_words(result, call.name, call.category) or (0, 0)
        words = strip_embedded_data(result.text[start:stop])
        text = strip_embedded_data(result.text[:start] + result.text[stop:])
        texts = _split_recalled("human", words, printed=False) + _split_recalled("output", text, printed=True)
        if call.recall and all(attributed.reason != "recall" for attributed in texts):
            return _single_text("output", text, "recall")
        return texts


def _unpaired_call(result: ToolResult) -> _PendingCall:
    """Return a substitute for the missing call of a result."""
    is_recall = bool(result.name) and is_memory_tool(result.name)
    return _PendingCall("alone" if is_recall else "", changes_state=False, recalls_before=0)


_CUT = tuple[int, int, ExclusionReason]
"""Start and end of a text span, with its exclusion reason."""


def _split(field: TextField, text: str, cuts: Sequence[_CUT], reason: ExclusionReason = "") -> list[AttributedText]:
    """Return the text without the cuts, followed by each cut."""
    if not cuts:
        return _single_text(field, text, reason)
    pieces: list[str] = []
    excluded: list[AttributedText] = []
    position = 0
    for start, stop, cut_reason in sorted(cuts):
        if stop > position:
            pieces.append(text[position : max(start, position)])
            excluded.append(AttributedText(field, text[max(start, position) : stop], cut_reason))
            position = stop
    rest = "".join([*pieces, text[position:]]) if excluded else text
    return [*_single_text(field, rest, reason), *excluded]


def _single_text(field: TextField, text: str, reason: ExclusionReason) -> list[AttributedText]:
    return [AttributedText(field, text, reason)] if text and not text.isspace() else []


def _split_recalled(field: TextField, text: str, *, printed: bool) -> list[AttributedText]:
    cuts = _recalled_cuts(text, printed=printed)
    return _split(field, text, cuts + _reminders(text) if field == "output" else cuts)


def _recalled_cuts(text: str, *, printed: bool = False) -> list[_CUT]:
    return [(start, stop, "recall") for start, stop in find_recall_spans(text, printed=printed)]


def _reminders(text: str) -> list[_CUT]:
    """Return the spans of reminders that a harness appended to a tool's output."""
    cuts: list[_CUT] = []
    stop = len(text)
    while (ends := _REMINDER_ENDS.search(text, max(0, stop - 100), stop)) is not None:
        start = text.rfind("<system-reminder>", 0, ends.start())
        if start < 0 or text[max(0, start - 80) : start].rstrip(" \t")[-1:] not in ("", "\n", ">"):
            break
        cuts.append((start, stop, "harness"))
        stop = start
    return cuts


_REMINDER_ENDS = re.compile(r"</system-reminder>\s*\Z")


def _split_text(text: str, message: Message) -> list[AttributedText]:
    """Split a text by author."""
    if message.role == "tool" or message.author == "tool":
        return _split_recalled("output", text, printed=True)
    if message.role == "assistant":
        reason = _classify_failure(text) if message.author == "harness" else _classify_noise(text)
        return _split("agent", text, [*_recalled_cuts(text), *_printed_call_cuts(text)], reason)
    field: TextField = "agent" if message.author == "model" else "human"
    if message.author == "recall":
        return _single_text(field, text, "recall")
    if message.role == "system":
        return _split(field, text, _recalled_cuts(text), "system")
    if _is_by_harness(message) and text.lstrip().startswith(SUMMARY_OPENINGS):
        return _split("summary", text, _recalled_cuts(text))
    recalled = _recalled_cuts(text, printed=_is_by_harness(message))
    return _split(field, text, [*recalled, *_foreign_cuts(text)], _prompt_reason(text, message))


def _foreign_cuts(text: str) -> list[_CUT]:
    """Return the spans of a prompt that other authors wrote. Printed calls count only if the prompt starts with one."""
    cuts: list[_CUT] = [
        (start, stop, "recall" if author == "recall" else _classify_harness_text(text[start : start + 400]))
        for start, stop, author in find_harness_spans(text)
    ]
    return [*cuts, *_printed_call_cuts(text)] if _OPENING.match(text) else cuts


def _prompt_reason(text: str, message: Message) -> ExclusionReason:
    if is_memory_prompt(text):
        return "recall"
    return _classify_harness_text(text[:400]) if _is_by_harness(message) else _classify_noise(text)


def _is_by_harness(message: Message) -> bool:
    return message.author in ("harness", "context")


SUMMARY_OPENINGS = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
)
"""First words of the summary that replaces a compacted conversation."""

_HARNESS_PREFIXES: tuple[tuple[ExclusionReason, tuple[str, ...]], ...] = (
    ("interruption", ("[request interrupted", "<turn_aborted")),
    ("command", ("<command-", "<local-command", "<bash-", "<user_shell_command", "<user_action", "caveat: the mess")),
    ("editor", ("<ide_", "<new-diagnostics", "<environment_details", "<open_and_recently", "<attached_files")),
    ("editor", ("<editorcontext", "<user_info", "<project_layout", "<workspace_info", "<git_status", "# context from")),
)


def _classify_harness_text(text: str) -> ExclusionReason:
    """Classify harness text by its first words."""
    if is_memory_prompt(text):
        return "recall"
    beginning = text.lstrip().lower()
    return next((reason for reason, prefixes in _HARNESS_PREFIXES if beginning.startswith(prefixes)), "harness")


_NOISE: tuple[tuple[re.Pattern[str], ExclusionReason], ...] = (
    (
        re.compile(r"New environment(?: (?:detected|created|started|ready|initialized))?[.:!]?(?: [/~]\S{0,300})?"),
        "harness",
    ),
    (re.compile(r"<ide_\w{1,40}(?:\s[^<>]*)?>"), "editor"),
    (re.compile(r"</?bash-\w{1,40}(?:\s[^<>]*)?>"), "command"),
    (re.compile(r"<bash-(\d{1,20})>(?:(?!</bash-\1>)[\s\S])*(?:</bash-\1>)?"), "command"),
    (re.compile(r"/[a-z][a-z0-9_-]{1,40}(?::[a-z0-9_-]{1,40})?"), "command"),
    (re.compile(r"</?(?:\w+:)?(?:function_calls|invoke|parameter)\b[^<>]*>"), "syntax"),
    # The end of a call whose start is missing. Before a closing tag in a sentence is a space or a quotation mark.
    (re.compile(r"(?:(?!<(?:\w{1,20}:)?(?:invoke|function_calls)\b)[\s\S])*[^ \t\"'`]</invoke>"), "syntax"),
)
"""Patterns for texts that are noise if the complete text matches, for any author."""
_NOISE_BEGINS = ("API Error", "Claude", "New environment", "<", "/", "You've ")


def _classify_noise(text: str) -> ExclusionReason:
    text = text.strip()
    may_match = text.startswith(_NOISE_BEGINS) or text.endswith("</invoke>") or "imit reached" in text[:60]
    if not may_match:
        return ""
    if is_error_notice(text):
        return "error"
    return next((reason for pattern, reason in _NOISE if pattern.fullmatch(text)), "")


def _classify_failure(text: str) -> ExclusionReason:
    """Classify harness text that replaces a model's answer, usually because a request failed."""
    return "error" if starts_like_error_notice(text) else "harness"


_OPENING = re.compile(
    r"^\s{0,80}<((?:\w{1,20}:)?(?:function_calls|invoke|parameter))(?: name=[^<>\n]*)?>", re.MULTILINE
)
_FENCED = re.compile(r"^[ \t]*```[^\n]*\s*\Z", re.MULTILINE)


def _printed_call_cuts(text: str) -> list[_CUT]:
    """Return the spans of calls that a model printed instead of making them, except in code blocks."""
    if not ("<" in text and ("invoke" in text or "function_calls" in text or "parameter" in text)):
        return []
    cuts: list[_CUT] = []
    position = 0
    while found := _OPENING.search(text, position):
        position = found.end()
        fenced = _FENCED.search(text[max(0, found.start() - 80) : found.start()])
        closing = "```" if fenced else f"</{found[1]}>"
        stop = text.find(closing, position)
        position = len(text) if stop < 0 else stop + len(closing)
        if not fenced:
            cuts.append((found.start(), position, "syntax"))
    return cuts


_CJK_CHARACTER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _exclude_short(texts: list[AttributedText]) -> list[AttributedText]:
    """Mark the texts of a very short message as excluded. A CJK character counts as three."""
    conversation = [text for text in texts if not text.reason and text.field in ("human", "agent")]
    length = sum([len(text.text.strip()) for text in conversation])
    if not conversation or length >= MIN_TEXT_LENGTH:
        return texts
    if length + 2 * sum(len(_CJK_CHARACTER.findall(text.text)) for text in conversation) >= MIN_TEXT_LENGTH:
        return texts
    return [text._replace(reason="short") if text in conversation else text for text in texts]


def _join_argument_texts(arguments: str) -> str:
    """Return the string arguments of a call, one per line, with names only if they indicate a secret."""
    if not arguments.lstrip().startswith(("{", "[", '"')):
        return arguments
    try:
        stack = [("", load_json(arguments))]
    except (ValueError, RecursionError):
        return arguments
    texts: list[str] = []
    while stack:
        label, value = stack.pop()
        if isinstance(value, str):
            texts.append(label + value)
        elif isinstance(value, dict):
            stack += [(f"{name}: " if is_secret_name(name) else label, item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(label, item) for item in reversed(value)]
    return "\n".join(texts)
