"""Tool calls written as XML in agent text, with results in user messages.

Cline, Roo, Forge and similar agents use this notation (see `transcripts.xml_calls`). In their transcripts, Thresher
parses it to tool calls. In API messages, call and result are plain text, so removing them breaks no rule. A result
starts at its header line and ends before text of another author, because the same message may contain a human's answer.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

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
"""Maximum characters of a call's description."""
MAX_ANNOUNCEMENT_CHARS = 200
"""Maximum characters of text that only announces a call."""

_HUMAN_ANSWER = re.compile(
    r"<(?:feedback|user_message|answer|user_feedback)>|provided the following (?:feedback|context)"
)


class XmlCall(NamedTuple):
    """A call within a text."""

    name: str
    subject: str
    """Target of the call, such as a path or a command."""
    use: ToolCallDetails
    is_standalone: bool
    """True if the text contains at most `MAX_ANNOUNCEMENT_CHARS` characters besides the call."""


class XmlChain(NamedTuple):
    """A call within a text, and the texts with its result."""

    call: Place
    results: tuple[Place, ...]
    name: str
    subject: str
    use: ToolCallDetails
    is_standalone: bool

    @property
    def description(self) -> str:
        """The call in one line."""
        return clip(to_printable_line(f"{self.name} {self.subject}"), MAX_LINE_CHARS)


def find_xml_chains(history: History) -> Iterator[XmlChain]:
    """Yield the XML calls with a result in the next message, except in the last turn."""
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
    texts = (part.text if isinstance(part, Text) and "</" in part.text else "" for part in message.parts)
    return tuple([_find_call(text) if text else None for text in texts])


def _find_call(text: str) -> XmlCall | None:
    """Return the first complete element of a known tool at the start of a line."""
    found = next(find_xml_elements(text, _is_tool), None)
    if found is None:
        return None
    around = len(text[: found.start].strip()) + len(text[found.stop :].strip())
    use = describe_tool_call(ToolCall("", found.name, dump_json(found.parameters)))
    about = use.path or use.command or use.intent or " ".join(map(_format_value, found.parameters.values()))
    return XmlCall(found.name, about, use, around <= MAX_ANNOUNCEMENT_CHARS)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def _is_tool(name: str) -> bool:
    return name == WRAPPER_TAG or name.lower() in TOOLS_BY_NAME


def _find_result_parts(message: Message, name: str) -> list[int]:
    """Return the indexes of the parts with a tool's result: from its header line to the next text of another author."""
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
    # If a human answered as well, all parts stay, because human text cannot be separated from tool text.
    has_human_answer = any(_HUMAN_ANSWER.search(texts[k] or "") for k in results)
    return [] if has_human_answer or any(get_placeholder_id(message.parts[k]) for k in results) else results


def _is_answer_to(text: str, name: str) -> bool:
    found = parse_result_header(text)
    return found is not None and name.lower() == found[0].lower()


def _is_from_harness(text: str) -> bool:
    spans = find_harness_offsets(text)
    return bool(spans) and not text[: spans[0][0]].strip()
