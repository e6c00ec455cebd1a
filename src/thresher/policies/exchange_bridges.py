"""Bridges: the summary that replaces removed exchanges, with one line for each of them."""

import posixpath
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from thresher.edits.placeholder import PLACEHOLDER_PREFIX, get_placeholder_id
from thresher.model import Exchange, History, Image, Part, Place, Summary, Text, part_text
from thresher.model.harness_text import extract_human_text
from thresher.model.human_words import extract_human_words
from thresher.model.text import clip, count_with_noun, to_printable_line
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import is_failed_call
from thresher.summarize.quotes import quote_opening

MAX_REQUEST_CHARS, MAX_ANSWER_CHARS, MAX_FILES = 160, 120, 5
"""Maximum characters of a request and of an answer, and maximum files, in one line of a bridge."""


def is_bridge(part: Part) -> bool:
    """Return whether a part is a bridge that an earlier run has written."""
    if not isinstance(part, Summary | Text) or not part.text.startswith(PLACEHOLDER_PREFIX):
        return False
    label = part.text.partition("\n")[0]
    # The first version of Thresher wrote "left out".
    return bool(get_placeholder_id(part)) and (" removed, " in label or " left out, " in label)


def describe_exchange(history: History, exchange: Exchange, prompt: int | None, places: Sequence[Place]) -> str:
    """Describe an exchange in one line: request, actions, outcome."""
    removed = set(places)
    has_prompt = any(place.message == prompt for place in places)
    requests = [_quote_prompt(history, prompt)] if prompt is not None and has_prompt else []
    words = (
        extract_human_words(part_text(history.part(place))[slice(*span)])
        for place, span in history.human_words.items()
        if place in removed
    )
    request = "; ".join(filter(None, [*requests, *(f'answered: "{_clip_request(text)}"' for text in words)]))
    links = [link for link in _exchange_links(history, exchange) if link.chain.call in removed]
    answer = next(_agent_texts(history, places), "")
    calls = count_with_noun(len(links), "call") if links else ""
    facts = ", ".join(filter(None, (calls, _describe_edited_files(links))))
    end = f"ended: {_describe_ending(links[-1])}" if links else ""
    done = "; ".join(filter(None, (facts, end, f'said: "{answer}"' if answer else "")))
    return f"{request} → {done}" if request and done else request or done


def _exchange_links(history: History, exchange: Exchange) -> Sequence[ToolUse]:
    """Return the chains whose call is in an exchange."""
    first, last = (bisect_left(history.links, end, key=lambda link: link.chain.call.message) for end in exchange)
    return history.links[first:last]


def _quote_prompt(history: History, prompt: int) -> str:
    parts = history[prompt].parts
    words = _clip_request("\n".join(part.text for part in parts if isinstance(part, Text)))
    images = sum(isinstance(part, Image) for part in parts)
    shown = f" with {count_with_noun(images, 'image')}" if images else ""
    return f'asked: "{words}"{shown}' if words or images else ""


def _describe_ending(link: ToolUse) -> str:
    return "failed" if is_failed_call(link) else "ok"


@lru_cache(maxsize=1024)
def _clip_request(text: str) -> str:
    return clip(to_printable_line(extract_human_text(text)), MAX_REQUEST_CHARS)


@lru_cache(maxsize=1024)
def _clip_answer(text: str) -> str:
    return clip(quote_opening(text), MAX_ANSWER_CHARS)


def _agent_texts(history: History, places: Sequence[Place]) -> Iterator[str]:
    """Yield the openings of the agent's texts, latest first."""
    for place in reversed(places):
        part = history.part(place)
        if isinstance(part, Text) and history[place.message].role == "assistant":
            text = _clip_answer(part.text)
            if text:
                yield text


def _describe_edited_files(links: Sequence[ToolUse]) -> str:
    edits = (link for link in links if link.use.category == "file_edit" and not is_failed_call(link))
    paths = [to_printable_line(link.use.path) for link in edits]
    names = list(dict.fromkeys(posixpath.basename(path.replace("\\", "/")) for path in paths if path))
    more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
    return f"edited {', '.join(names[:MAX_FILES])}{more}" if names else ""
