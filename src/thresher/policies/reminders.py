"""What the harness says in the user's name: reminders, hooks, notes of commands, the editor's state.

`model.marks` knows where it speaks. Not all of that is noise, so each span is of a kind:
- noise goes: reminders, hooks, caveats, output of the program's own commands, tags around a human's words;
- what a person typed stays, although it stands in the harness's elements: `bash-input`, `user-memory-input`, and
  `command-args` with the `command-name` that gives it meaning. Such an element stays whole, tags and all: its words
  are the same byte for byte, and it is still seen what they are. An element without words is noise;
- work stays: results that are told as text, output of a person's own shell, reports of other agents (for those
  there is the policy `subagents`);
- a summary of earlier messages stays, always;
- context stays unless `keep_context` is off: project instructions, facts of the machine, bodies of commands and
  skills, and every harness message that no mark explains, since that is most often a command's prompt;
- recalled text stays unless `keep_recall` is off.

In results only reminders at the very end are taken, where harnesses append them: elsewhere they are a file's own.
A text that would be read otherwise after the cut is left alone: what seems a human's must not turn into noise.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from thresher.edits import Cut, Drop, Edit, Gap, cut
from thresher.model import History, Message, Place, Text, ToolResult
from thresher.model.marks import author_of, harness_spans
from thresher.model.memo import per_message

NAME = "reminders"
Kind = Literal["noise", "typed", "work", "summary", "context", "recall"]

_ELEMENTS: dict[Kind, str] = {
    "typed": "command-args bash-input user-memory-input user_shell_command",
    "work": "bash-stdout bash-stderr task-notification teammate-message subagent_notification user_action"
    " file_write_result",
    "summary": "state_snapshot",
    "context": "environment_context user_instructions permissions collaboration_mode apps_instructions"
    " skills_instructions plugins_instructions personality_spec session_context explicit_instructions user_info"
    " project_layout always_applied_workspace_rules agent_skills environment_info workspace_info attached_files"
    " ide_selection command-contents goal skill files",
}
KINDS: dict[str, Kind] = {name: kind for kind, names in _ELEMENTS.items() for name in names.split()}
"""Elements that are no noise; `permissions` is the first word of Codex's `permissions instructions`."""

PHRASES: tuple[tuple[str, Kind], ...] = (
    (r"\[\w+(?: for '[^\n]*)?\] Result:", "work"),
    (r"This session is being continued from a previous conversation", "summary"),
    (r"\[thresher t1:", "summary"),
    (r"\[earlier conversation not included\]", "summary"),
    (r"\[(?:result of an unknown call|another result of a call answered before)\]", "work"),
    (r"Another language model started to solve this problem", "summary"),
    (r"# AGENTS\.md instructions", "context"),
    (r"Base directory for this skill: ", "context"),
    (r"This is the Gemini CLI\.", "context"),
    (r"Called the \w+ tool with the following input:", "context"),
    (r"The user (?:approved|denied) this operation", "context"),
)
"""What opens a span that no element marks."""

_PHRASE = re.compile(r"\s*(?:" + "|".join(f"({pattern})" for pattern, _ in PHRASES) + ")")
_ELEMENT = re.compile(r"\s*<(?P<name>[\w-]+)[^<>]*>(?P<blank>\s*</)?")
_COMMAND = re.compile(r"\s*<command-name>", re.IGNORECASE)
_INSTRUCTIONS = "\n# claudeMd"
"""The heading under which Claude Code reminds of the project's instructions."""
_OPEN, _CLOSE = "<system-reminder>", "</system-reminder>"


class _Span(NamedTuple):
    start: int
    stop: int
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Reminders:
    """Strip what the harness put in; keep a human's words, and work told in the user's role.

    `Reminders()` takes noise alone; `Reminders(keep_context=False)` takes project instructions and bodies of commands
    too; `Reminders(keep_recall=False)` what a memory tool put back.
    """

    keep_recall: bool = True
    """Whether old text that a memory tool put back stays."""
    keep_context: bool = True
    """Whether instructions, facts of the machine, and harness messages without a mark stay."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose, oldest first."""
        for i, message in enumerate(history.messages):
            for j, part in enumerate(message.parts):
                if isinstance(part, ToolResult):
                    gaps = _appended(message).get(j, ())
                    if gaps:
                        yield Cut(history.occurrence(Place(i, j)), NAME, "reminder in a result", gaps)
                elif isinstance(part, Text) and message.role == "user":
                    yield from self._text(history, Place(i, j), message, part.text)

    def _text(self, history: History, place: Place, message: Message, text: str) -> Iterator[Edit]:
        spans = _spans(message)[place.part]
        going = [span for span in spans if self._goes(span.kind)]
        injected = message.author in ("harness", "recall")
        unmarked = self._goes("recall" if message.author == "recall" else "context")
        if injected and len(going) == len(spans) and (unmarked or (spans and not _rest(text, spans).strip())):
            yield Drop(history.occurrence(place), NAME, "harness message", over="injection")
        elif going and self._is_stable(text, going):
            gaps = tuple([Gap(span.start, span.stop) for span in going])
            yield Cut(history.occurrence(place), NAME, "reminder", gaps, over="injection")

    def _goes(self, kind: Kind) -> bool:
        if kind == "context":
            return not self.keep_context
        return kind == "noise" or (kind == "recall" and not self.keep_recall)

    def _is_stable(self, text: str, going: list[_Span]) -> bool:
        """Whether nothing of what stays would go the next time."""
        return not any(self._goes(span.kind) for span in _classified(_rest(text, going)))


def _rest(text: str, spans: list[_Span] | tuple[_Span, ...]) -> str:
    return cut(text, tuple([Gap(span.start, span.stop) for span in spans]))


@per_message
def _spans(message: Message) -> tuple[tuple[_Span, ...], ...]:
    return tuple([_classified(part.text) if isinstance(part, Text) else () for part in message.parts])


def _classified(text: str) -> tuple[_Span, ...]:
    spans = [_Span(start, stop, _kind(text[start:stop])) for start, stop in harness_spans(text)]
    if not any(span.kind == "typed" for span in spans):
        return tuple(spans)
    return tuple([span._replace(kind="typed") if _COMMAND.match(text, span.start) else span for span in spans])


def _kind(said: str) -> Kind:
    if author_of(said) == "recall":
        return "recall"
    phrase = _PHRASE.match(said)
    if phrase and phrase.lastindex:
        return PHRASES[phrase.lastindex - 1][1]
    element = _ELEMENT.match(said)
    if element is None or element["blank"]:
        return "noise"
    return "context" if _INSTRUCTIONS in said else KINDS.get(element["name"].lower(), "noise")


@per_message
def _appended(message: Message) -> dict[int, tuple[Gap, ...]]:
    """Where a result ends in reminders."""
    texts = ((j, part.text) for j, part in enumerate(message.parts) if isinstance(part, ToolResult))
    found = {j: (_end_of_result(text), len(text)) for j, text in texts if _OPEN in text}
    return {j: (Gap(end, length),) for j, (end, length) in found.items() if end < length}


def _end_of_result(text: str) -> int:
    """Where the reminders at the end of a result begin; its whole length where it has none, or is nothing else."""
    found = len(text)
    end = _content_end(text, found)
    while text.endswith(_CLOSE, 0, end):
        opening = text.rfind(_OPEN, 0, end - len(_CLOSE))
        end = _content_end(text, max(opening, 0))
        if opening < 0 or not end or "\n" not in text[end:opening]:
            break
        found = end
    return found


def _content_end(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end
