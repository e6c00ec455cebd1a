"""Tool calls that are written as XML in an agent's words, and answered in the user's role.

Cline, Roo, Forge and their kin do so (`formats.xml_calls` says how). In their own files such calls are read as calls;
in messages as an API takes them both sides are plain text, so nothing breaks when they go. But a human's answer may
stand in the same message, so only what follows the line that opens a result is the tool's, up to the next thing that
somebody else wrote.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from thresher.edits.placeholder import get_placeholder_id
from thresher.model import History, Message, Place, Text, ToolCall
from thresher.model.harness_text import find_harness_offsets
from thresher.model.jsontext import dump_json
from thresher.model.message_cache import cached_per_message
from thresher.model.text import clip, to_printable_line
from thresher.model.tool_calls import ToolCallDetails, describe_tool_call
from thresher.model.tool_catalog import TOOLS_BY_NAME
from thresher.transcripts.xml_calls import WRAPPER_TAG, find_xml_elements, parse_result_header

MAX_LINE_CHARS = 120
"""Characters that tell of one call."""
MAX_ANNOUNCEMENT_CHARS = 200
"""Characters around a call that are no more than an announcement of it."""

_HUMAN_ANSWER = re.compile(
    r"<(?:feedback|user_message|answer|user_feedback)>|provided the following (?:feedback|context)"
)


class XmlCall(NamedTuple):
    """A call in a text."""

    name: str
    subject: str
    """What it works on."""
    use: ToolCallDetails
    is_standalone: bool
    """Little else is said in the text."""


class XmlChain(NamedTuple):
    """A call in a text, and the texts that answer it."""

    call: Place
    results: tuple[Place, ...]
    name: str
    subject: str
    use: ToolCallDetails
    is_standalone: bool

    @property
    def description(self) -> str:
        """What was called, in one line."""
        return clip(to_printable_line(f"{self.name} {self.subject}"), MAX_LINE_CHARS)


def find_xml_chains(history: History) -> Iterator[XmlChain]:
    """Every such call that the next message answers, and that the agent has spoken after."""
    last = history.turns[-1].start if history.turns else 0
    for i in range(last - 1):
        message, answer = history[i], history[i + 1]
        if message.role != "assistant" or answer.role != "user":
            continue
        for j, call in enumerate(_find_calls(message)):
            results = _find_result_parts(answer, call.name) if call is not None else []
            if call is not None and results:
                yield XmlChain(Place(i, j), tuple([Place(i + 1, k) for k in results]), *call)


@cached_per_message
def _find_calls(message: Message) -> tuple[XmlCall | None, ...]:
    return tuple(
        [_find_call(part.text) if isinstance(part, Text) and "</" in part.text else None for part in message.parts]
    )


def _find_call(text: str) -> XmlCall | None:
    """The first known tool whose element opens a line and is closed."""
    found = next(find_xml_elements(text, _is_tool), None)
    if found is None:
        return None
    around = len(text[: found.start].strip()) + len(text[found.stop :].strip())
    use = describe_tool_call(ToolCall("", found.name, dump_json(found.parameters)))
    about = use.path or use.command or use.intent or " ".join(map(str, found.parameters.values()))
    return XmlCall(found.name, about, use, around <= MAX_ANNOUNCEMENT_CHARS)


def _is_tool(name: str) -> bool:
    return name == WRAPPER_TAG or name.lower() in TOOLS_BY_NAME


def _find_result_parts(message: Message, name: str) -> list[int]:
    """Which parts of a message a tool's answer is: from its opening line to what somebody else wrote."""
    texts = [part.text if isinstance(part, Text) else None for part in message.parts]
    start = next((k for k, text in enumerate(texts) if text and _is_answer_to(text, name)), None)
    if start is None:
        return []
    results: list[int] = []
    for k in range(start, len(texts)):
        text = texts[k]
        if text is None or (k > start and (parse_result_header(text) or _is_from_harness(text))):
            break
        results.append(k)
    # Where a human answered too, all of it stays: their words are not ours to part from the tool's.
    human = any(_HUMAN_ANSWER.search(texts[k] or "") for k in results)
    return [] if human or any(get_placeholder_id(message.parts[k]) for k in results) else results


def _is_answer_to(text: str, name: str) -> bool:
    found = parse_result_header(text)
    return found is not None and name.lower() == found[0].lower()


def _is_from_harness(text: str) -> bool:
    spans = find_harness_offsets(text)
    return bool(spans) and not text[: spans[0][0]].strip()
