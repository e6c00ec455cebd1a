"""The policy `reminders`: remove text that the harness adds to user messages and tool results.

`model.harness_text` finds the spans of harness text. Each span is of one kind:
- noise is removed: reminders, hooks, caveats, output of the agent's own commands, tags around human text;
- typed text stays: `bash-input`, `user-memory-input`, and `command-args` with its `command-name`. These elements stay
  with their tags, so that the text is byte-identical and its kind remains visible. An empty element is noise;
- work stays: tool results as text, output of the user's shell, reports of other agents (see the policy `subagents`);
- summaries of earlier messages always stay;
- context stays unless `keep_context` is off: project instructions, facts about the machine, contents of commands and
  skills, and harness messages without a marker, which are mostly prompts of commands;
- recalled text stays unless `keep_recall` is off.

In results, only reminders at the very end are removed, where harnesses append them; elsewhere they belong to a file.
A text stays unchanged if a second run would remove more of it, because human text must not become noise.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from thresher.edits import Drop, Edit, Elision, Truncate, apply_elisions
from thresher.model import History, Message, Place, Text, ToolResult
from thresher.model.harness_text import detect_author, find_harness_offsets
from thresher.model.message_cache import cached_per_message
from thresher.model.turns import is_injected

POLICY_NAME = "reminders"
HarnessTextKind = Literal["noise", "typed", "work", "summary", "context", "recall"]

_ELEMENTS: dict[HarnessTextKind, str] = {
    "typed": "command-args bash-input user-memory-input user_shell_command",
    "work": "bash-stdout bash-stderr task-notification teammate-message subagent_notification user_action"
    " file_write_result",
    "summary": "state_snapshot",
    "context": "explicit_instructions attached_files ide_selection command-contents goal skill files",
}
ELEMENT_KINDS: dict[str, HarnessTextKind] = {name: kind for kind, names in _ELEMENTS.items() for name in names.split()}
"""Kinds of the elements that are neither noise nor declared context."""

OPENING_PHRASES: tuple[tuple[str, HarnessTextKind], ...] = (
    (r"\[\w+(?: for '[^\n]*)?\] Result:", "work"),
    (r"This session is being continued from a previous conversation", "summary"),
    (r"\[thresher t1:", "summary"),
    (r"\[earlier conversation not included\]", "summary"),
    (r"\[(?:result of an unknown call(?: of [\w.-]{1,100})?|another result of a call answered before)\]", "work"),
    (r"Another language model started to solve this problem", "summary"),
    (r"Base directory for this skill: ", "context"),
    (r"Called the \w+ tool with the following input:", "context"),
    (r"The user (?:approved|denied) this operation", "context"),
)
"""Opening phrases of harness text that is not enclosed in tags, each with the kind of the text."""

_OPENING_PHRASE = re.compile(r"\s*(?:" + "|".join(f"({pattern})" for pattern, _ in OPENING_PHRASES) + ")")
_ELEMENT = re.compile(r"\s*<(?P<name>[\w-]+)[^<>]*>(?P<blank>\s*</)?")
_COMMAND_NAME = re.compile(r"\s*<command-name>", re.IGNORECASE)
_OPEN_TAG, _CLOSE_TAG = "<system-reminder>", "</system-reminder>"


class _HarnessSpan(NamedTuple):
    start: int
    stop: int
    kind: HarnessTextKind


@dataclass(frozen=True, kw_only=True)
class StripReminders:
    """Remove harness text; keep human text, and work reported in user messages.

    `StripReminders()` removes only noise. `StripReminders(keep_context=False)` also removes project instructions and
    contents of commands. `StripReminders(keep_recall=False)` also removes recalled text.
    """

    keep_recall: bool = True
    """True if recalled text, which a memory tool inserted, stays."""
    keep_context: bool = True
    """True if instructions, facts about the machine, and harness messages without a marker stay."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first."""
        for i, message in enumerate(history.messages):
            for j, part in enumerate(message.parts):
                if isinstance(part, ToolResult):
                    gaps = _find_trailing_reminders(message).get(j, ())
                    if gaps:
                        yield Truncate(history.occurrence(Place(i, j)), POLICY_NAME, "reminder in a result", gaps)
                elif isinstance(part, Text) and message.role == "user":
                    yield from self._edit_text(history, Place(i, j), message, part.text)

    def _edit_text(self, history: History, place: Place, message: Message, text: str) -> Iterator[Edit]:
        spans = _classify_message(message)[place.part]
        removed = [span for span in spans if self._is_removed(span.kind)]
        injected = is_injected(message)
        unmarked = self._is_removed("recall" if message.author == "recall" else "context")
        if injected and len(removed) == len(spans) and (unmarked or (spans and not _remove_spans(text, spans).strip())):
            yield Drop(history.occurrence(place), POLICY_NAME, "harness message", over="injection")
        elif removed and self._is_stable(text, removed):
            gaps = tuple([Elision(span.start, span.stop) for span in removed])
            yield Truncate(history.occurrence(place), POLICY_NAME, "reminder", gaps, over="injection")

    def _is_removed(self, kind: HarnessTextKind) -> bool:
        if kind == "context":
            return not self.keep_context
        return kind == "noise" or (kind == "recall" and not self.keep_recall)

    def _is_stable(self, text: str, removed: list[_HarnessSpan]) -> bool:
        """Return whether a second run would find nothing to remove."""
        return not any(self._is_removed(span.kind) for span in _classify_text(_remove_spans(text, removed)))


def _remove_spans(text: str, spans: list[_HarnessSpan] | tuple[_HarnessSpan, ...]) -> str:
    return apply_elisions(text, tuple([Elision(span.start, span.stop) for span in spans]))


@cached_per_message
def _classify_message(message: Message) -> tuple[tuple[_HarnessSpan, ...], ...]:
    return tuple([_classify_text(part.text) if isinstance(part, Text) else () for part in message.parts])


def _classify_text(text: str) -> tuple[_HarnessSpan, ...]:
    spans = [_HarnessSpan(start, stop, _classify_span(text[start:stop])) for start, stop in find_harness_offsets(text)]
    if not any(span.kind == "typed" for span in spans):
        return tuple(spans)
    return tuple([span._replace(kind="typed") if _COMMAND_NAME.match(text, span.start) else span for span in spans])


def _classify_span(text: str) -> HarnessTextKind:
    author = detect_author(text)
    if author == "recall":
        return "recall"
    phrase = _OPENING_PHRASE.match(text)
    if phrase and phrase.lastindex:
        return OPENING_PHRASES[phrase.lastindex - 1][1]
    element = _ELEMENT.match(text)
    if element is not None and element["blank"]:
        return "noise"
    if author == "context":
        return "summary" if element and element["name"].lower() == "state_snapshot" else "context"
    return ELEMENT_KINDS.get(element["name"].lower(), "noise") if element else "noise"


@cached_per_message
def _find_trailing_reminders(message: Message) -> dict[int, tuple[Elision, ...]]:
    """Return the span of the reminders at the end of each result."""
    texts = ((j, part.text) for j, part in enumerate(message.parts) if isinstance(part, ToolResult))
    ends = {j: (_find_result_end(text), len(text)) for j, text in texts if _OPEN_TAG in text}
    return {j: (Elision(end, length),) for j, (end, length) in ends.items() if end < length}


def _find_result_end(text: str) -> int:
    """Return the position where the reminders at the end of a result start, or the text's length if it has none.

    Only a reminder after other text and a line break counts.
    """
    found = len(text)
    end = _skip_trailing_space(text, found)
    while text.endswith(_CLOSE_TAG, 0, end):
        opening = text.rfind(_OPEN_TAG, 0, end - len(_CLOSE_TAG))
        end = _skip_trailing_space(text, max(opening, 0))
        if opening < 0 or not end or "\n" not in text[end:opening]:
            break
        found = end
    return found


def _skip_trailing_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end
