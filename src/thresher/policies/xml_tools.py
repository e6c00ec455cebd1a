"""Tool calls that are written as XML in an agent's words, and answered in the user's role.

Cline, Roo and their kin write `<read_file><path>a.py</path></read_file>` at the end of what they say; the next user
message holds a line `[read_file for 'a.py'] Result:` and what the tool gave. Forge wraps the call as
`<tool><tool_name>read_file</tool_name>…</tool>`. For an API both sides are plain text, so nothing breaks when they go;
but a human's answer may stand in the same message, so only what follows the line is the tool's, up to the next
thing that somebody else wrote.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from thresher.edits.standin import is_pointer
from thresher.model import History, Message, Place, Text, ToolCall
from thresher.model.jsontext import dump
from thresher.model.marks import harness_spans
from thresher.model.memo import per_message
from thresher.model.tool_table import TABLE
from thresher.model.tools import ToolUse, tool_use
from thresher.summarise.words import clip, line

LINE = 120
"""Characters that tell of one call."""
LITTLE = 200
"""Characters around a call that are no more than an announcement of it."""

_OPENING = re.compile(r"^[ \t]*<([A-Za-z_][\w.\-]{0,60})>", re.MULTILINE)
_WRAPPED = re.compile(r"<tool_name>\s*([\w.\-]{1,80})\s*</tool_name>")
_FIELD = re.compile(r"<([A-Za-z_]\w{0,40})>([^<]{0,2000})</\1>")
_ANSWERED = re.compile(r"\s*(?:\[(\w[\w.\-]*)(?: for '[^\n]*)?\] Result:|Tool '(\w[\w.\-]*)' [Rr]esult:)")
_HUMAN = re.compile(r"<(?:feedback|user_message|answer|user_feedback)>|provided the following (?:feedback|context)")


class XmlCall(NamedTuple):
    """A call in a text."""

    name: str
    about: str
    """What it works on."""
    use: ToolUse
    is_alone: bool
    """Little else is said in the text."""


class XmlChain(NamedTuple):
    """A call in a text, and the texts that answer it."""

    call: Place
    results: tuple[Place, ...]
    name: str
    about: str
    use: ToolUse
    is_alone: bool

    @property
    def line(self) -> str:
        """What was called, in one line."""
        return clip(line(f"{self.name} {self.about}"), LINE)


def xml_chains(history: History) -> Iterator[XmlChain]:
    """Every such call that the next message answers, and that the agent has spoken after."""
    last = history.turns[-1].start if history.turns else 0
    for i in range(last - 1):
        message, answer = history[i], history[i + 1]
        if message.role != "assistant" or answer.role != "user":
            continue
        for j, call in enumerate(_calls(message)):
            results = _results(answer, call.name) if call is not None else []
            if call is not None and results:
                yield XmlChain(Place(i, j), tuple([Place(i + 1, k) for k in results]), *call)


@per_message
def _calls(message: Message) -> tuple[XmlCall | None, ...]:
    return tuple([_call(part.text) if isinstance(part, Text) and "</" in part.text else None for part in message.parts])


def _call(text: str) -> XmlCall | None:
    """The first known tool whose element opens a line and is closed."""
    tried: set[str] = set()
    for found in _OPENING.finditer(text):
        name = found[1]
        if name in tried or (name != "tool" and name.lower() not in TABLE):
            continue
        tried.add(name)  # one look a name: the time stays linear
        stop = text.rfind(f"</{name}>", found.end())
        inner = text[found.end() : max(stop, found.end())]
        wrapped = _WRAPPED.search(inner) if name == "tool" else None
        if stop < 0 or (name == "tool" and wrapped is None):
            continue
        called = wrapped[1] if wrapped else name
        around = len(text[: found.start()].strip()) + len(text[stop + len(name) + 3 :].strip())
        fields = dict(_FIELD.findall(inner))
        use = tool_use(ToolCall("", called, dump(fields)))
        about = use.path or use.command or use.intent or " ".join(fields.values())
        return XmlCall(called, about, use, around <= LITTLE)
    return None


def _results(message: Message, name: str) -> list[int]:
    """Which parts of a message a tool's answer is: from its opening line to what somebody else wrote."""
    texts = [part.text if isinstance(part, Text) else None for part in message.parts]
    start = next((k for k, text in enumerate(texts) if text and _answers(text, name)), None)
    if start is None:
        return []
    results: list[int] = []
    for k in range(start, len(texts)):
        text = texts[k]
        if text is None or (k > start and (_ANSWERED.match(text) or _by_harness(text))):
            break
        results.append(k)
    # Where a human answered too, all of it stays: their words are not ours to part from the tool's.
    human = any(_HUMAN.search(texts[k] or "") for k in results)
    return [] if human or any(is_pointer(message.parts[k]) for k in results) else results


def _answers(text: str, name: str) -> bool:
    found = _ANSWERED.match(text)
    return found is not None and name.lower() in ((found[1] or "").lower(), (found[2] or "").lower())


def _by_harness(text: str) -> bool:
    spans = harness_spans(text)
    return bool(spans) and not text[: spans[0][0]].strip()
