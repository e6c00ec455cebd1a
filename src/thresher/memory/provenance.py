"""Whose words they are: a session's messages as pieces that a search looks into, or has a reason to leave out.

A search over past sessions drowns in two things: noise that no one would look for (interruptions, errors of the API,
commands, the editor's state) and its own echo (what a memory tool showed, the question it was asked, what was said
out of its answer). Both are told apart here by who wrote a text, first by what the format knows and then by marks
in the text. Nothing is thrown away: a piece that is left out keeps its text and says why, so it can be let in.

The worse mistake is to lose a human's words. So a pattern is tried only where the text *is* the thing, not where it
speaks of it: "API Error: 529 {…}" is noise and "why do we get API Error: 529?" is not. Where a memory tool's block
stands inside honest text, the block goes and the rest stays, byte for byte.

Echo has a direction. What stood before a recall is clean; its call, its result, and what the model says until it has
done something of its own (an edit, a command) are not. Neither is the prompt that made the model look: it asks, and
would outrank the session that answers. Such words are `derived`.

Pictures and long runs of base64 are in no piece: nobody searches for them.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from thresher.memory.recalls import Recall, asks_memory, is_memory_tool, made_by_recall, recall_of, recall_spans
from thresher.memory.secrets import names_secret
from thresher.model import Message, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.jsontext import load
from thresher.model.marks import voices
from thresher.model.parts import Part
from thresher.model.tools import tool_use

__all__ = ["Field", "Piece", "Reason", "made_by_recall", "pieces", "without_data"]

Field = Literal["human", "agent", "thinking", "input", "output", "summary"]
"""Where a piece stood. What a harness or a system prompt says stands with the human's words."""

Reason = Literal["", "short", "interruption", "error", "command", "editor", "harness", "syntax", "recall", "system"]
"""Why a piece is left out of a search; empty where it is not."""

SHORTEST = 10
"""Fewer characters say nothing that could be looked for: "ok", "thanks"."""

SAMPLE = 100
LONGEST_RUN = 200
"""So many characters of base64 in a row are data, not words."""


class Piece(NamedTuple):
    """Some words of a message."""

    field: Field
    text: str
    reason: Reason = ""
    derived: bool = False
    """Said out of a recall: the prompt that led to one, or what the model said right after one."""


def pieces(messages: Sequence[Message]) -> Iterator[tuple[int, list[Piece]]]:
    """Each message's index with its pieces, in order."""
    reader = _Reader()
    held: list[tuple[int, list[Piece]]] = []  # from a prompt on, until the first call shows whether it asked a memory
    holding = False
    for index, message in enumerate(messages):
        found = reader.read(message)
        if reader.prompted:
            yield from held
            held, holding = [], True
        held.append((index, found))
        if holding and reader.asked and reader.asked[0].recall:
            held = [(place, _derived(said)) for place, said in held]
        if reader.asked or not holding:
            yield from held
            held, holding = [], False
    yield from held


def _derived(said: list[Piece]) -> list[Piece]:
    return [piece._replace(derived=True) if _is_said(piece) else piece for piece in said]


def _is_said(piece: Piece) -> bool:
    return piece.field in ("human", "agent", "thinking") and piece.reason in ("", "short")


class _Asked(NamedTuple):
    """A call that waits for its result."""

    recall: Recall
    acts: bool
    """It changes or runs something: what is said after its result is of this session's own making."""
    recalls: int
    """How many recalls had answered when it was made."""


class _Reader:
    """Reads messages in order and remembers what earlier ones mean for later ones."""

    def __init__(self) -> None:
        self.prompted = False
        """Whether the last message held a prompt: a human's, another model's, or a command to look."""
        self.asked: list[_Asked] = []
        """The calls in the last message."""
        self._open: dict[str, deque[_Asked]] = defaultdict(deque)
        self._echoes = False
        self._recalls = 0

    def read(self, message: Message) -> list[Piece]:
        """The pieces of one message."""
        self.asked = []
        echoes, recalls = self._echoes, self._recalls
        found = _without_short([piece for part in message.parts for piece in self._part(part, message)])
        from_user = message.role == "user"
        commanded = from_user and any(piece.reason == "recall" and asks_memory(piece.text) for piece in found)
        self.prompted = commanded or (from_user and any(map(_is_said, found)))
        if commanded or self._recalls > recalls:
            self._echoes = True
        elif self.prompted:
            self._echoes = False
        return _derived(found) if echoes and message.role == "assistant" else found

    def _part(self, part: Part, message: Message) -> Iterable[Piece]:
        match part:
            case Text():
                return _said(without_data(part.text), message)
            case Thinking():
                return _cut("thinking", without_data(part.text), printed=False)
            case Summary():
                return _cut("summary", without_data(part.text), printed=False)
            case ToolCall():
                return self._call(part)
            case ToolResult():
                return self._result(part)
            case _:
                return ()

    def _call(self, call: ToolCall) -> list[Piece]:
        recall, use = recall_of(call), tool_use(call)
        acts = bool(use.command) or use.category in ("file_edit", "execution")
        self.asked.append(_Asked(recall, acts and not recall, self._recalls))
        self._open[call.id].append(self.asked[-1])
        text = without_data(_values(call.arguments))
        return _whole("input", text, "recall") if recall else _cut("input", text, printed=True)

    def _result(self, result: ToolResult) -> list[Piece]:
        waiting = self._open.get(result.call_id)
        asked = waiting.popleft() if waiting else _unasked(result)
        if asked.recall:
            self._recalls += 1
        elif asked.acts and asked.recalls == self._recalls:
            self._echoes = False
        text = without_data(result.text)
        if asked.recall == "alone":
            return _whole("output", text, "recall")
        found = _cut("output", text, printed=True)
        if asked.recall and all(piece.reason != "recall" for piece in found):
            return _whole("output", text, "recall")
        return found


def _unasked(result: ToolResult) -> _Asked:
    """All that is known of a result whose call is not there."""
    return _Asked("alone" if result.name and is_memory_tool(result.name) else "", acts=False, recalls=0)


_CUT = tuple[int, int, Reason]
"""A span of a text, and why it is left out."""


def _split(field: Field, text: str, cuts: Sequence[_CUT], reason: Reason = "") -> list[Piece]:
    """What is left of a text as one piece, then each cut as one."""
    if not cuts:
        return _whole(field, text, reason)
    kept: list[str] = []
    found: list[Piece] = []
    position = 0
    for start, stop, why in sorted(cuts):
        if stop > position:
            kept.append(text[position : max(start, position)])
            found.append(Piece(field, text[max(start, position) : stop], why))
            position = stop
    rest = "".join([*kept, text[position:]]) if found else text
    return [*_whole(field, rest, reason), *found]


def _whole(field: Field, text: str, reason: Reason) -> list[Piece]:
    return [Piece(field, text, reason)] if text and not text.isspace() else []


def _cut(field: Field, text: str, *, printed: bool) -> list[Piece]:
    cuts = _recalled(text, printed=printed)
    return _split(field, text, cuts + _reminders(text) if field == "output" else cuts)


def _recalled(text: str, *, printed: bool = False) -> list[_CUT]:
    return [(start, stop, "recall") for start, stop in recall_spans(text, printed=printed)]


def _reminders(text: str) -> list[_CUT]:
    """What a harness puts after a tool's output."""
    found: list[_CUT] = []
    stop = len(text)
    while (ends := _REMINDER_ENDS.search(text, max(0, stop - 100), stop)) is not None:
        start = text.rfind("<system-reminder>", 0, ends.start())
        if start < 0 or text[max(0, start - 80) : start].rstrip(" \t")[-1:] not in ("", "\n", ">"):
            break
        found.append((start, stop, "harness"))
        stop = start
    return found


_REMINDER_ENDS = re.compile(r"</system-reminder>\s*\Z")


def _said(text: str, message: Message) -> list[Piece]:
    """The pieces of a text by whoever speaks in the message."""
    if message.role == "tool" or message.author == "tool":
        return _cut("output", text, printed=True)
    if message.role == "assistant":
        reason = _failure(text) if message.author == "harness" else _noise(text)
        return _split("agent", text, [*_recalled(text), *_syntax(text)], reason)
    field: Field = "agent" if message.author == "model" else "human"
    if message.author == "recall":
        return _whole(field, text, "recall")
    if message.role == "system":
        return _split(field, text, _recalled(text), "system")
    if message.author == "harness" and text.lstrip().startswith(CONTINUED):
        return _split("summary", text, _recalled(text))
    recalled = _recalled(text, printed=message.author == "harness")
    return _split(field, text, [*recalled, *_voices(text)], _prompt_reason(text, message))


def _voices(text: str) -> list[_CUT]:
    """What others than the author say in a prompt; calls only where the prompt begins with one."""
    cuts: list[_CUT] = [
        (start, stop, "recall" if author == "recall" else _kind(text[start : start + 400]))
        for start, stop, author in voices(text)
    ]
    return [*cuts, *_syntax(text)] if _OPENING.match(text) else cuts


def _prompt_reason(text: str, message: Message) -> Reason:
    if asks_memory(text):
        return "recall"
    return _kind(text[:400]) if message.author == "harness" else _noise(text)


CONTINUED = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
)
"""How the summary begins that stands for a compacted conversation."""

_KINDS: tuple[tuple[Reason, tuple[str, ...]], ...] = (
    ("interruption", ("[request interrupted", "<turn_aborted")),
    ("command", ("<command-", "<local-command", "<bash-", "<user_shell_command", "<user_action", "caveat: the mess")),
    ("editor", ("<ide_", "<new-diagnostics", "<environment_details", "<open_and_recently", "<attached_files")),
    ("editor", ("<editorcontext", "<user_info", "<project_layout", "<workspace_info", "<git_status", "# context from")),
)


def _kind(text: str) -> Reason:
    """What sort of harness text it is, by how it begins."""
    if asks_memory(text):
        return "recall"
    begins = text.lstrip().lower()
    return next((reason for reason, starts in _KINDS if begins.startswith(starts)), "harness")


_RESETS = r"(?: [∙·|] ?[^\n]{0,120})?"
_NOISE: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (
        re.compile(
            r"API Error(?: \([^()\n]{1,120}\))?(?::? \d{3})?[:.]?"
            r"(?: ?\{.*\}| (?:Rate limit(?: exceeded| reached)?|Overloaded|Connection (?:error|closed)|terminated"
            r"|Request (?:timed out|was aborted)|Internal server error)[.!]?)?" + _RESETS,
            re.DOTALL,
        ),
        "error",
    ),
    (
        re.compile(
            r"(?:Limit reached(?: for [\w.:-]{1,40})?"
            r"|(?:Claude usage|Claude AI usage|\d{1,2}-hour|Weekly|Session|Opus|Sonnet) limit reached"
            r"|You've (?:hit|reached) your (?:[\w-]{1,20} )?limit)[.!]?(?:\|\d+| Your limit will reset [^\n]{1,120})?"
            + _RESETS
        ),
        "error",
    ),
    (
        re.compile(r"New environment(?: (?:detected|created|started|ready|initialized))?[.:!]?(?: [/~]\S{0,300})?"),
        "harness",
    ),
    (re.compile(r"<ide_\w{1,40}(?:\s[^<>]*)?>"), "editor"),
    (re.compile(r"</?bash-\w{1,40}(?:\s[^<>]*)?>"), "command"),
    (re.compile(r"/[a-z][a-z0-9_-]{1,40}(?::[a-z0-9_-]{1,40})?"), "command"),
    (re.compile(r"</?(?:\w+:)?(?:function_calls|invoke|parameter)\b[^<>]*>"), "syntax"),
)
"""What a whole message may be that nobody said, whoever the format thinks its author is."""
_NOISE_BEGINS = ("API Error", "Claude", "New environment", "<", "/", "You've ")


def _noise(text: str) -> Reason:
    text = text.strip()
    if not text.startswith(_NOISE_BEGINS) and "imit reached" not in text[:60]:
        return ""
    return next((reason for pattern, reason in _NOISE if pattern.fullmatch(text)), "")


_FAILED = re.compile(
    r"\s*(?:API Error|Prompt is too long|Credit balance|[^\n]{0,80}\b(?:limit|error|API key|login)\b)", re.I
)


def _failure(text: str) -> Reason:
    """What a harness says in the model's place: mostly that the model did not answer."""
    return "error" if _FAILED.match(text) else "harness"


_OPENING = re.compile(
    r"^\s{0,80}<((?:\w{1,20}:)?(?:function_calls|invoke|parameter))(?: name=[^<>\n]*)?>", re.MULTILINE
)
_FENCED = re.compile(r"^[ \t]*```[^\n]*\s*\Z", re.MULTILINE)


def _syntax(text: str) -> list[_CUT]:
    """Calls that a model printed instead of making them, each to its end; not those that it shows as code."""
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


_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _without_short(found: list[Piece]) -> list[Piece]:
    """A message of a few characters says nothing; what one character says in Chinese takes three elsewhere."""
    said = [piece for piece in found if not piece.reason and piece.field in ("human", "agent")]
    length = sum([len(piece.text.strip()) for piece in said])
    if not said or length >= SHORTEST:
        return found
    if length + 2 * sum(len(_DENSE.findall(piece.text)) for piece in said) >= SHORTEST:
        return found
    return [piece._replace(reason="short") if piece in said else piece for piece in found]


def _values(arguments: str) -> str:
    """What a call says: texts, a line each, named only where the name shows a secret; numbers say nothing."""
    if not arguments.lstrip().startswith(("{", "[", '"')):
        return arguments
    try:
        left = [("", load(arguments))]
    except (ValueError, RecursionError):
        return arguments
    texts: list[str] = []
    while left:
        lead, value = left.pop()
        if isinstance(value, str):
            texts.append(lead + value)
        elif isinstance(value, dict):
            left += [(f"{name}: " if names_secret(name) else lead, one) for name, one in reversed(value.items())]
        elif isinstance(value, list):
            left += [(lead, one) for one in reversed(value)]
    return "\n".join(texts)


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DATA_URL = re.compile(r"data:[\w.+-]{1,60}/[\w.+-]{1,60}(?:;[\w.=-]{1,60})*,[^\s\"'<>()\\]*")
_PLAIN = re.compile(rf"(?:(?![A-Za-z0-9+/]{{{SAMPLE}}}).{{{SAMPLE}}})*+", re.DOTALL)
_RUN = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def without_data(text: str) -> str:
    """The text without data URLs and long runs of base64.

    Only every hundredth place is looked at: a run of two hundred characters fills a hundred from one of them on.
    """
    if "data:" in text:
        text = _DATA_URL.sub("", text)
    if len(text) < LONGEST_RUN:
        return text
    kept: list[str] = []
    position = place = 0
    while (place := _PLAIN.match(text, place).end()) + SAMPLE <= len(text):  # type: ignore[union-attr]  # like `_RUN`
        before = text[max(position, place - SAMPLE) : place]
        start = place - len(before) + len(before.rstrip(_ALPHABET))
        place = _RUN.match(text, place).end()  # type: ignore[union-attr]  # it matches anything
        if place - start >= LONGEST_RUN:
            kept.append(text[position:start])
            position = place
    return "".join([*kept, text[position:]]) if kept else text
