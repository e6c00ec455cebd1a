"""Any file that holds lists of messages: who speaks, and what is said, under whatever names.

A document or a line is searched for such lists, not deep, and only under names that are used for them. A list that is
what an API takes is read as that API's; any other is read row by row (`loose_messages`). A list of lists is one
conversation in turns, or many conversations, by the name it stands under.

Where several agents speak, each message begins with a line of its own that names the speaker, `[WebSurfer]`: a reader,
a search and a model that goes on from it can all tell them apart, and no word of what was said is changed. The
message's id names them too.

A log of requests to a model and its responses, one a line, is what a proxy or a harness writes down. Each request
repeats the whole history, so the lines of one conversation are put together (`threads`). A response stands in the line
of its request, or in a later one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from thresher.errors import UnknownFormatError
from thresher.formats.generic_rows import WIRE_ROLES, Talk, messages_of
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.loose_messages import ROLES, SPEAKER, call_from_source, has_content, read_message, speaker
from thresher.formats.reading import best_wire, wire_value
from thresher.formats.source import SourceFile
from thresher.formats.threads import Ask, Threads
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, chat_usage, first_prompt, timestamp
from thresher.model import History, Session, Usage
from thresher.model.jsontext import dump

NAME = "generic"

LISTS = (
    *("messages", "history", "conversation", "conversations", "dialog", "dialogue", "chat", "chat_history"),
    *("intermediate_steps", "traj", "trajectory", "turns", "transcript", "question"),
)
"""Names under which a list of messages stands."""
TURNS = ("question", "turns")
"""Names under which a list of lists is one conversation."""
MANY = ("haystack_sessions", "sessions", "previous_dialogs", "dialogs", "conversations", "chats", "samples", "data")
"""Names under which several conversations stand."""
DIALOGS = ("dialog", "dialogue")
"""Names under which two people speak in turns, be they named or not."""
DEEPEST = 4
LOOKED_AT = 40
"""Rows that are looked at to tell what a list is."""
_IDS = (
    *("session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "id", "uuid"),
    *("question_id", "question_ID", "task_id", "instance_id", "scenarioId"),
)
_TITLES = ("title", "topic")
_TASKS = ("question", "task", "instruction", "description")
_STARTS = ("start_time", "started_at", "timestamp", "created_at", "date")
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


# Where conversations are


def talks(value: Any, facts: dict[str, Any] | None = None, under: str = "", depth: int = 0) -> Iterator[Talk]:
    """The conversations in a value."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        yield from _talks_of(value, depth)
    elif is_talk(value, under):
        yield Talk(value, facts or {})
    elif under in TURNS and _are_turns(value):
        yield Talk([row for turn in value for row in turn], facts or {})
    elif under in MANY and _are_turns(value):
        yield from (Talk(rows, facts or {}) for rows in value)
    else:
        for item in items(value):
            yield from talks(item, facts if isinstance(item, list) else None, depth=depth + 1)


def _talks_of(value: dict[str, Any], depth: int) -> Iterator[Talk]:
    told, asked = items(value.get("ground_truth")), items(value.get("question"))
    if _are_calls(told):
        turns = asked if _are_turns(asked) and len(asked) == len(told) else [[] for _ in told]
        yield Talk(turns, value, calls=tuple(told))
        return
    for key in dict.fromkeys((*LISTS, *MANY)):
        if not isinstance(value.get(key), list):
            continue
        found = talks(value[key], value, under=key, depth=depth + 1)
        yield from _dated(found, value) if key == "haystack_sessions" else found


def _dated(found: Iterator[Talk], facts: dict[str, Any]) -> Iterator[Talk]:
    """LongMemEval has the ids and the dates of the conversations in lists beside them."""
    ids, dates = items(facts.get("haystack_session_ids")), items(facts.get("haystack_dates"))
    for talk, id_, date in zip_longest(found, ids, dates):
        if talk:
            yield talk._replace(id=text(id_), started=_date(date))


def is_talk(value: Any, under: str = "") -> bool:
    """Whether a value is a list of messages: two at least, and not only names that nobody knows."""
    rows = [row for row in items(value)[:LOOKED_AT] if isinstance(row, dict)]
    if under in DIALOGS and len(rows) > 1 and all(isinstance(row.get("text"), str) for row in rows):
        return True
    said = [row for row in rows if _is_row(row)]
    if len(said) < 2 or len(said) * 2 < len(items(value)[:LOOKED_AT]):
        return False
    return any(speaker(row).role in ("user", "assistant") for row in said) or (
        under in LISTS and all(text(row.get("speaker")) for row in said)
    )


def _is_row(value: Any) -> bool:
    """Whether a value says who speaks, and something."""
    if not isinstance(value, dict) or not has_content(value):
        return False
    who = speaker(value)
    told = any(key in value for key in SPEAKER)
    return who.role is not None or (told and bool(who.word))


def _are_turns(value: Any) -> bool:
    turns = items(value)
    return bool(turns) and all(isinstance(turn, list) and all(map(_is_row, turn)) for turn in turns) and any(turns)


def _are_calls(value: Any) -> bool:
    turns = items(value)
    each = [call for turn in turns for call in items(turn)][:LOOKED_AT]
    whole = all(isinstance(turn, list) for turn in turns) and all(isinstance(call, str) for call in each)
    return bool(each) and whole and call_from_source(each[0]) is not None


_DAY = re.compile(r"(\d{4})/(\d\d)/(\d\d) \(\w+\) (\d\d:\d\d)")


def _date(value: Any) -> datetime | None:
    found = _DAY.fullmatch(text(value))
    return timestamp(f"{found[1]}-{found[2]}-{found[3]} {found[4]}" if found else value)


# Sessions


def read(source: SourceFile) -> list[Session]:
    """One session a conversation."""
    sessions = list(_sessions(source))
    if not sessions:
        raise UnknownFormatError(f"`{source.path}` holds no list of messages that say who speaks and what is said")
    counts = Counter(session.id for session in sessions)
    stem = source.path.name.split(".")[0]
    for number, session in enumerate(sessions):
        if not session.id or counts[session.id] > 1:
            place = f"-{number + 1}" if len(sessions) > 1 else ""
            sessions[number] = structs.replace(session, id=f"{session.id or stem}{place}")
    sessions[0] = structs.replace(sessions[0], problems=tuple(source.problems))
    return sessions


def _sessions(source: SourceFile) -> Iterator[Session]:
    if source.document is not None:
        document = source.take_document()
        yield from (_session(source, talk) for talk in talks(document))
    elif _is_log(source.head):
        yield from _logged(source)
    else:
        yield from _lines(source)


def _lines(source: SourceFile) -> Iterator[Session]:
    """A conversation a line; or one in all, where the lines are messages."""
    rows, lines = [], []
    for line, _, value in source.rows(_ANY):
        found = [_session(source, talk._replace(line=line)) for talk in talks(value)]
        yield from found
        if found:
            continue
        if _is_row(value):
            rows.append(value)
            lines.append(line)
        else:
            source.problem("a line holds no conversation", "skipped", line)
    if rows:
        yield _session(source, Talk(rows, {}, lines=lines))


def _session(source: SourceFile, talk: Talk) -> Session:
    messages = messages_of(talk, source)
    tools = items(talk.facts.get("tools"))
    offered = bool(tools) and all(isinstance(tool, dict) for tool in tools)
    history = History(tuple(messages), dump(tools) if offered else "")
    times = [message.time for message in messages if message.time]
    started = talk.started or next(filter(None, (timestamp(talk.facts.get(key)) for key in _STARTS)), None)
    ended = timestamp(talk.facts.get("end_time"))
    title, task = (next(filter(None, (text(talk.facts.get(key)) for key in keys)), "") for keys in (_TITLES, _TASKS))
    ids = (talk.facts.get(key) for key in _IDS)
    return Session(
        agent=NAME,
        id=talk.id or next((str(id_) for id_ in ids if type(id_) in (str, int) and str(id_)), ""),
        file=str(source.path),
        segments=(history,),
        records=dict(Counter(_word(row) for row in talk.rows)),
        title=(title or first_prompt([history]) or task)[:TITLE],
        project=text(talk.facts.get("cwd")),
        started=min([*times, *filter(None, [started])], default=None),
        ended=max([*times, *filter(None, [ended])], default=None),
    )


def _word(row: Any) -> str:
    """What a row calls who speaks."""
    if isinstance(row, list):
        return "turn"
    return speaker(row).word or "?" if isinstance(row, dict) else "?"


# Logs of requests

_BODIES = ("request_params", "request", "body", "request_body")


def _is_log(rows: Iterable[Any]) -> bool:
    """Whether rows are such a log: requests, and responses told apart from them."""
    found = [row for row in rows if isinstance(row, dict)]
    return any(map(_request, found)) and any(map(_response, found))


def _request(row: Any) -> dict[str, Any]:
    """The body of a request."""
    bodies = [fields(fields(row).get(key)) for key in _BODIES]
    if text(fields(row).get("type")) == "request":
        bodies.append(fields(row))
    return next((body for body in bodies if items(body.get("messages"))), {})


def _response(row: Any) -> dict[str, Any]:
    """What came back: `choices` as the API has them, or `outputs`."""
    inner = fields(fields(row).get("response"))
    if items(inner.get("choices")):
        return inner
    return fields(row) if text(fields(row).get("type")) == "response" and items(fields(row).get("outputs")) else {}


def _logged(source: SourceFile) -> Iterator[Session]:
    threads = Threads(str(source.path))
    for ask in _asks(source):
        threads.add(ask)
    for thread in threads.conversations():
        histories = thread.histories()
        times = [time for ask in thread.asks for time in (ask.start, ask.end) if time]
        yield Session(
            agent=NAME,
            id="",
            file=str(source.path),
            segments=tuple(histories),
            branches=tuple(thread.taken_back()),
            compactions=len(histories) - 1,
            records={"request": len(thread.asks)},
            title=first_prompt(histories),
            started=min(times, default=None),
            ended=max(times, default=None),
        )


def _asks(source: SourceFile) -> Iterator[Ask]:
    """Each request with its response, if one came before the next request."""
    asked: tuple[int, dict[str, Any], Any] | None = None
    others = 0
    for line, _, row in source.rows(_ANY):
        body, answer, time = _request(row), _response(row), fields(row).get("timestamp")
        if body:
            if asked:
                yield _ask(*asked, {}, None)
            asked = (line, body, time)
        if answer and asked:
            yield _ask(*asked, answer, time)
            asked = None
        elif not body:
            others += 1
    if asked:
        yield _ask(*asked, {}, None)
    if others:
        source.problem(f"{others} lines are no requests, nor responses to one", "skipped")


def _ask(line: int, body: dict[str, Any], start: Any, answer: dict[str, Any], end: Any) -> Ask:
    choice = next(iter(items(answer.get("choices")) or items(answer.get("outputs"))), None)
    said = fields(at(choice, "message")) or {**fields(choice), "content": at(choice, "message")}
    tools = items(body.get("tools"))
    return Ask(
        line,
        line,
        given=[message for row in body["messages"] if (message := read_message(fields(row), "user")).parts],
        said=[message for message in [read_message(said, "assistant")] if message.parts],
        start=timestamp(start),
        end=timestamp(end),
        model=text(answer.get("model")) or text(body.get("model")),
        usage=_usage(answer),
        tools=dump(tools) if tools else "",
    )


def _usage(answer: dict[str, Any]) -> Usage | None:
    if "input_tokens" in answer:
        return Usage(count(answer.get("input_tokens")), count(answer.get("output_tokens")))
    return chat_usage(answer.get("usage"))


# The format


def sniff(source: SourceFile) -> int:
    """Could be, where there are messages and no API claims them: anything that is sure of a file comes first."""
    if source.document is None and _is_log(source.head):
        return 1
    found = _looked_at(source)
    wire = best_wire(wire_value(source)) if found else None
    if wire and not any(_is_foreign(row) for row in found[0].rows):
        return 0
    return 1 if found else 0


def _looked_at(source: SourceFile) -> list[Talk]:
    """The first conversation, if there is one."""
    if source.document is not None:
        return [talk for _, talk in zip(range(1), talks(source.document), strict=False)]
    head = list(source.head)
    if is_talk(head):
        return [Talk(head, {})]
    return [talk for value in head for _, talk in zip(range(1), talks(value), strict=False)]


def _is_foreign(row: Any) -> bool:
    """Whether a row's role is one that people use and no API knows."""
    word = text(fields(row).get("role")).lower()
    return word in ROLES and word not in WIRE_ROLES


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:  # noqa: ARG001 - a format's homes depend on both
    """None: no agent keeps its sessions in this way."""
    return []


FORMAT = TranscriptFormat(
    NAME,
    "lists of messages",
    sniff,
    read,
    homes,
    layouts="documents and JSONL with lists of messages that are in no API's form",
    holds=("thinking", "usage", "times", "edits"),
    seen="Who&When, smolagents, BFCL 4, tau-bench, LongMemEval, MSC",
)
