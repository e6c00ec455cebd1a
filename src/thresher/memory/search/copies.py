"""Recognize copies among the found sessions, and show an original before a fork that only asked something.

A fork repeats the history of its original, often under new ids, and may contain the words of the query more often: in
the question that it was made for.

Two sessions are copies if their first messages have the same texts and times. The same texts at other or unknown times
are other sessions, such as runs of one script.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from thresher.memory.records import ArchivedSession
from thresher.memory.search.rank import RankedSession
from thresher.model import Message
from thresher.model.parts import part_text
from thresher.model.tool_calls import describe_tool_call

COMPARED_MESSAGES = 6
"""Number of messages that two copies share, or all messages of the shorter session."""
MIN_COPIED_CHARACTERS = 40
MAX_OWN_MESSAGES = 20
"""Maximum number of messages that a fork adds if it only asked something."""
MIN_ORIGINAL_SCORE = 0.5
"""Minimum score of an original that stands before a fork, as a share of the fork's score. With less, the query is about
the fork's own question."""
_LATEST = datetime.max.replace(tzinfo=UTC)
ReadMessage = Callable[[int, int], Message]


def group_copies(ranked: Sequence[RankedSession], read: ReadMessage) -> list[RankedSession]:
    """Join the families of copies, and let the original represent a family whose best session only asked something."""
    by_first_text: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    groups: list[list[RankedSession]] = []
    for one in ranked:
        facts = one.session
        candidates = by_first_text[facts.agent, _texts(read(facts.key, 0))]
        place = next((place for place in candidates if _is_copy(groups[place][0].session, facts, read)), None)
        if place is None:
            candidates.append(len(groups))
            groups.append([one, *one.relatives])
        else:
            groups[place] += [one, *one.relatives]
    return [_choose_representative(group, read) for group in groups]


def _is_copy(one: ArchivedSession, other: ArchivedSession, read: ReadMessage) -> bool:
    compared = min(COMPARED_MESSAGES, one.messages, other.messages)
    beginning = [read(one.key, at) for at in range(compared)]
    characters = sum(len(text) for message in beginning for text in _texts(message))
    has_answer = any(message.role == "assistant" for message in beginning)
    return has_answer and characters >= MIN_COPIED_CHARACTERS and _count_shared(one, other, read, compared) == compared


def _choose_representative(members: Sequence[RankedSession], read: ReadMessage) -> RankedSession:
    first = members[0]
    original = min((one for one in members if one.matches), key=_by_origin, default=first)
    is_close = original.score >= MIN_ORIGINAL_SCORE * first.score
    if original is not first and is_close and _only_asks(first.session, original.session, read):
        score = first.score
        first, members = original._replace(score=score), [original, *(one for one in members if one is not original)]
    return first._replace(relatives=tuple(one._replace(relatives=()) for one in members[1:]))


def _by_origin(one: RankedSession) -> tuple[bool, datetime, datetime, int]:
    facts = one.session
    return bool(facts.parent), facts.started or _LATEST, facts.ended or _LATEST, facts.key


def _only_asks(fork: ArchivedSession, original: ArchivedSession, read: ReadMessage) -> bool:
    """Return whether a fork adds at most one prompt to the messages of the original, and no edit or command."""
    start = _count_shared(fork, original, read, min(fork.messages, original.messages))
    if not start or fork.messages - start > MAX_OWN_MESSAGES:
        return False
    added = [read(fork.key, at) for at in range(start, fork.messages)]
    prompts = sum(message.role == "user" and message.author == "human" for message in added)
    calls = (describe_tool_call(call) for message in added for call in message.calls)
    return prompts <= 1 and not any(call.category in ("file_edit", "execution") for call in calls)


def _count_shared(one: ArchivedSession, other: ArchivedSession, read: ReadMessage, limit: int) -> int:
    """Return the number of messages with the same texts and times at the beginning of both sessions."""
    pairs = ((read(one.key, at), read(other.key, at)) for at in range(limit))
    return sum(takewhile(bool, (_is_same(old, new) for old, new in pairs)))


def _is_same(one: Message, other: Message) -> bool:
    return one.time is not None and one.time == other.time and _texts(one) == _texts(other)


def _texts(message: Message) -> tuple[str, ...]:
    return (message.role, *map(part_text, message.parts))
