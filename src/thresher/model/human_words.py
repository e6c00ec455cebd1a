"""Find a person's words inside tool results.

Agents report some of what a person writes as the result of a call: the answer to a question, the comment on a plan or
on a rejected command, and, after the agent has reported that it is done, the next request. The author of such words is
the person, so edits must keep them. A tool's output can quote similar text. So these patterns match only where an
agent writes them: at the start of a result, or in an element at its end that a phrase introduces.
"""

import re
from collections.abc import Iterable, Sequence

from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import ToolResult
from thresher.model.structure import Place
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_catalog import PLAN_APPROVAL_TOOLS, ToolCategory

HumanSpan = tuple[int, int]
"""Start and end of a person's words in the text of a result."""

ANSWERED_CATEGORIES = frozenset({"question", "completion"})
"""Categories of calls whose whole result is a person's answer."""
HUMAN_ELEMENTS = "feedback|user_message|answer|user_feedback"
"""Elements that Cline, Roo and Kilo put around a person's words."""
MAX_INTRODUCTION_CHARS = 1_000
"""Distance from the start of a result in which a phrase must introduce a person's words."""
MAX_CLOSING_TAG_CHARS = 40
"""Maximum distance from the end of a text to the closing tag of a person's comment."""

_PLAN_COPY = re.compile(r"^## Approved Plan:?[ \t]*$", re.MULTILINE)
"""Heading before a copy of the plan that the call already contains."""
_OPENING = r"\s*(?:\[thresher [^\n]*\]\n)?(?:\[\w[^\n]*\] Result:\s*)?(?:\[?Error:?\]?:? )?"
"""Placeholder, header and prefix before the first words of a result."""
_DECISION = re.compile(
    rf"{_OPENING}(?P<words>[^\n]*?\bthe user said:|(?:The )?(?:User|user)\b[^\n]*?\b(?:said|feedback|comments?|reason"
    r"|message|responded|answered|replied|rejected|instructions?|context)\b[^\n:]{0,80}:)"
)
_STATUS = re.compile(rf'{_OPENING}(?P<words>\{{"status":\s?"(?:approved|denied)"[^\n]*"feedback":[^\n]*)')
_OPENING_ELEMENT = re.compile(rf"{_OPENING}(?P<words>(?:[^\n]*(?:User|user) [^\n]*\n)?<(?P<name>{HUMAN_ELEMENTS})>)")
_CLOSING_TAG = re.compile(rf"</({HUMAN_ELEMENTS})>\s*(?:\[/thresher\]\s*)?\Z")
_INTRODUCTION = re.compile(r"[^\n]*(?:[Tt]he user |New (?:instructions|message) )")


def find_human_words(result: ToolResult, name: str, category: ToolCategory) -> HumanSpan | None:
    """Return the span of a person's words in the text of a call's result, if it has any."""
    text = result.text
    if not text or text.isspace():
        return None
    if category in ANSWERED_CATEGORIES or name.lower() in PLAN_APPROVAL_TOOLS:
        copy = _PLAN_COPY.search(text)
        return 0, copy.start() if copy else len(text)
    head = text[:MAX_INTRODUCTION_CHARS]
    if '"feedback":' in text and (match := _STATUS.match(text)):
        return match.span("words")
    if "<" in head and (match := _OPENING_ELEMENT.match(head)):
        closing = f"</{match['name']}>"
        stop = text.find(closing, match.end())
        return (match.start("words"), stop + len(closing)) if stop >= 0 else None
    if ("user" in head or "User" in head) and (match := _DECISION.match(head)):
        return match.start("words"), len(text)
    start = find_closing_comment(text)
    return None if start is None else (start, len(text))


def index_human_words(messages: Sequence[Message], links: Iterable[ToolUse]) -> dict[Place, HumanSpan]:
    """Return the span of a person's words in each result that contains some, in order."""
    found: dict[Place, HumanSpan] = {}
    for link in links:
        place = link.chain.result
        if place is not None and link.result is not None:
            known = _spans_by_call(messages[place.message])
            key = (place.part, link.call.name, link.use.category)
            if key not in known:
                known[key] = find_human_words(link.result, link.call.name, link.use.category)
            span = known[key]
            if span is not None:
                found[place] = span
    return dict(sorted(found.items()))


@cached_per_message
def _spans_by_call(_: Message) -> dict[tuple[int, str, ToolCategory], HumanSpan | None]:
    """Return an empty cache of a message's spans, by part and call."""
    return {}


def find_closing_comment(text: str) -> int | None:
    """Return the start of a person's comment at the end of a tool's output, with the line that introduces it."""
    closing = _CLOSING_TAG.search(text, max(len(text) - MAX_CLOSING_TAG_CHARS, 0))
    start = text.rfind(f"<{closing[1]}>") if closing else -1
    if start < 0:
        return None
    before = text[:start].rstrip()
    line = before.rfind("\n") + 1
    return line if not before or _INTRODUCTION.match(before, line) else None
