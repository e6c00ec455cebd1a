"""Any file that holds lists of messages: who speaks, and what is said, under whatever names.

A document or a line is searched for such lists, not deep, and only under names that are used for them. A list that is
what an API takes is read as that API's; any other is read row by row (`lenient_parser`). A list of lists is one
conversation in turns, or many conversations, by the name it stands under.

Where several agents speak, each message begins with a line of its own that names the speaker, `[WebSurfer]`: a reader,
a search and a model that resumes it can tell them apart, and no word is changed. The message's id names them too.

A log of requests to a model and its responses, one a line, is what a proxy or a harness writes down. Each request
repeats the whole history, so the lines of one conversation are joined (`stitching`). A response is in the line
of its request, or in a later one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec.structs import replace

from thresher.dialects.intake import detect_dialect
from thresher.errors import UnknownFormatError
from thresher.model import History, Session, Usage
from thresher.model.jsontext import dump_json
from thresher.transcripts.base import (
    MAX_TITLE_CHARS,
    TranscriptFormat,
    make_session,
    parse_openai_chat_usage,
    parse_time,
    title_from_prompt,
)
from thresher.transcripts.coerce import as_dict, as_list, as_text, count_at, dict_at, list_at, text_at, value_at
from thresher.transcripts.generic.messages import DIALECT_ROLES, GenericChat, build_generic_messages
from thresher.transcripts.lenient_parser import (
    ROLES_BY_WORD,
    SPEAKER_KEYS,
    has_message_content,
    parse_lenient_message,
    parse_python_call,
    parse_speaker,
)
from thresher.transcripts.model_calls import LoggedCall
from thresher.transcripts.reading import load_dialect_sample
from thresher.transcripts.source import SourceFile
from thresher.transcripts.stitching import ThreadStitcher

NAME = "generic"

MESSAGE_LIST_KEYS = (
    *("messages", "history", "conversation", "conversations", "dialog", "dialogue", "chat", "chat_history"),
    *("intermediate_steps", "traj", "trajectory", "turns", "transcript", "question"),
)
"""Names under which a list of messages stands."""
TURN_LIST_KEYS = ("question", "turns")
"""Names under which a list of lists is one conversation."""
CONVERSATION_LIST_KEYS = (
    *("haystack_sessions", "sessions", "previous_dialogs", "dialogs"),
    *("conversations", "chats", "samples", "data"),
)
"""Names under which several conversations stand."""
DIALOGS = ("dialog", "dialogue")
"""Names under which two people speak in turns, be they named or not."""
MAX_SEARCH_DEPTH = 4
SNIFFED_ROWS = 40
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


def _find_conversations(
    value: Any, facts: dict[str, Any] | None = None, under: str = "", depth: int = 0
) -> Iterator[GenericChat]:
    """The conversations in a value."""
    if depth > MAX_SEARCH_DEPTH:
        return
    if isinstance(value, dict):
        yield from _find_conversations_in_object(value, depth)
    elif _is_message_list(value, under):
        yield GenericChat(value, facts or {})
    elif under in TURN_LIST_KEYS and _is_list_of_turns(value):
        yield GenericChat([row for turn in value for row in turn], facts or {})
    elif under in CONVERSATION_LIST_KEYS and _is_list_of_turns(value):
        yield from (GenericChat(rows, facts or {}) for rows in value)
    else:
        for item in as_list(value):
            yield from _find_conversations(item, facts if isinstance(item, list) else None, depth=depth + 1)


def _find_conversations_in_object(value: dict[str, Any], depth: int) -> Iterator[GenericChat]:
    told, asked = list_at(value, "ground_truth"), list_at(value, "question")
    if _is_list_of_calls(told):
        turns = asked if _is_list_of_turns(asked) and len(asked) == len(told) else [[] for _ in told]
        yield GenericChat(turns, value, calls=tuple(told))
        return
    for key in dict.fromkeys((*MESSAGE_LIST_KEYS, *CONVERSATION_LIST_KEYS)):
        if not isinstance(value.get(key), list):
            continue
        found = _find_conversations(value[key], value, under=key, depth=depth + 1)
        yield from _with_ids_and_dates(found, value) if key == "haystack_sessions" else found


def _with_ids_and_dates(found: Iterator[GenericChat], facts: dict[str, Any]) -> Iterator[GenericChat]:
    """LongMemEval has the ids and the dates of the conversations in lists beside them."""
    ids, dates = list_at(facts, "haystack_session_ids"), list_at(facts, "haystack_dates")
    for talk, id_, date in zip_longest(found, ids, dates):
        if talk:
            yield talk._replace(id=as_text(id_), started=_parse_date(date))


def _is_message_list(value: Any, under: str = "") -> bool:
    """Whether a value is a list of messages: two at least, and not only names that nobody knows."""
    rows = [row for row in as_list(value)[:SNIFFED_ROWS] if isinstance(row, dict)]
    if under in DIALOGS and len(rows) > 1 and all(isinstance(row.get("text"), str) for row in rows):
        return True
    said = [row for row in rows if _is_message_row(row)]
    if len(said) < 2 or len(said) * 2 < len(as_list(value)[:SNIFFED_ROWS]):
        return False
    return any(parse_speaker(row).role in ("user", "assistant") for row in said) or (
        under in MESSAGE_LIST_KEYS and all(text_at(row, "speaker") for row in said)
    )


def _is_message_row(value: Any) -> bool:
    """Whether a value says who speaks, and something."""
    if not isinstance(value, dict) or not has_message_content(value):
        return False
    who = parse_speaker(value)
    told = any(key in value for key in SPEAKER_KEYS)
    return who.role is not None or (told and bool(who.word))


def _is_list_of_turns(value: Any) -> bool:
    turns = as_list(value)
    return (
        bool(turns) and all(isinstance(turn, list) and all(map(_is_message_row, turn)) for turn in turns) and any(turns)
    )


def _is_list_of_calls(value: Any) -> bool:
    turns = as_list(value)
    each = [call for turn in turns for call in as_list(turn)][:SNIFFED_ROWS]
    whole = all(isinstance(turn, list) for turn in turns) and all(isinstance(call, str) for call in each)
    return bool(each) and whole and parse_python_call(each[0]) is not None


_LONGMEMEVAL_DATE = re.compile(r"(\d{4})/(\d\d)/(\d\d) \(\w+\) (\d\d:\d\d)")


def _parse_date(value: Any) -> datetime | None:
    found = _LONGMEMEVAL_DATE.fullmatch(as_text(value))
    return parse_time(f"{found[1]}-{found[2]}-{found[3]} {found[4]}" if found else value)


# Sessions


def _read(source: SourceFile) -> list[Session]:
    """One session a conversation."""
    sessions = list(_read_sessions(source))
    if not sessions:
        raise UnknownFormatError(f"`{source.path}` holds no list of messages that say who speaks and what is said")
    counts = Counter(session.id for session in sessions)
    stem = source.stem
    for number, session in enumerate(sessions):
        if not session.id or counts[session.id] > 1:
            place = f"-{number + 1}" if len(sessions) > 1 else ""
            sessions[number] = replace(session, id=f"{session.id or stem}{place}")
    sessions[0] = replace(sessions[0], problems=tuple(source.problems))
    return sessions


def _read_sessions(source: SourceFile) -> Iterator[Session]:
    if source.document is not None:
        document = source.read_document()
        yield from (_build_session(source, talk) for talk in _find_conversations(document))
    elif _is_request_log(source.head):
        yield from _read_request_log(source)
    else:
        yield from _read_lines(source)


def _read_lines(source: SourceFile) -> Iterator[Session]:
    """A conversation a line; or one in all, where the lines are messages."""
    rows, lines = [], []
    for line, _, value in source.records(_ANY):
        found = [_build_session(source, talk._replace(line=line)) for talk in _find_conversations(value)]
        yield from found
        if found:
            continue
        if _is_message_row(value):
            rows.append(value)
            lines.append(line)
        else:
            source.report("a line holds no conversation", "skipped", line)
    if rows:
        yield _build_session(source, GenericChat(rows, {}, lines=lines))


def _build_session(source: SourceFile, talk: GenericChat) -> Session:
    messages = build_generic_messages(talk, source)
    tools = list_at(talk.metadata, "tools")
    offered = bool(tools) and all(isinstance(tool, dict) for tool in tools)
    history = History(tuple(messages), dump_json(tools) if offered else "")
    times = [message.time for message in messages if message.time]
    started = talk.started or next(filter(None, (parse_time(talk.metadata.get(key)) for key in _STARTS)), None)
    ended = parse_time(talk.metadata.get("end_time"))
    title, task = (next(filter(None, (text_at(talk.metadata, key) for key in keys)), "") for keys in (_TITLES, _TASKS))
    ids = (talk.metadata.get(key) for key in _IDS)
    return make_session(
        NAME,
        source,
        talk.id or next((str(id_) for id_ in ids if type(id_) in (str, int) and str(id_)), ""),
        [history],
        records=Counter(_speaker_label(row) for row in talk.rows),
        title=(title or title_from_prompt([history]) or task)[:MAX_TITLE_CHARS],
        project=text_at(talk.metadata, "cwd"),
        started=min([*times, *filter(None, [started])], default=None),
        ended=max([*times, *filter(None, [ended])], default=None),
        problems=(),
    )


def _speaker_label(row: Any) -> str:
    """What a row calls who speaks."""
    if isinstance(row, list):
        return "turn"
    return parse_speaker(row).word or "?" if isinstance(row, dict) else "?"


# Logs of requests

_REQUEST_KEYS = ("request_params", "request", "body", "request_body")


def _is_request_log(rows: Iterable[Any]) -> bool:
    """Whether rows are such a log: requests, and responses told apart from them."""
    found = [row for row in rows if isinstance(row, dict)]
    return any(map(_request_body, found)) and any(map(_response_body, found))


def _request_body(row: Any) -> dict[str, Any]:
    """The body of a request."""
    bodies = [dict_at(row, key) for key in _REQUEST_KEYS]
    if text_at(row, "type") == "request":
        bodies.append(as_dict(row))
    return next((body for body in bodies if list_at(body, "messages")), {})


def _response_body(row: Any) -> dict[str, Any]:
    """What came back: `choices` as the API has them, or `outputs`."""
    inner = dict_at(row, "response")
    if list_at(inner, "choices"):
        return inner
    return as_dict(row) if text_at(row, "type") == "response" and list_at(row, "outputs") else {}


def _read_request_log(source: SourceFile) -> Iterator[Session]:
    threads = ThreadStitcher(source.file)
    for ask in _pair_requests(source):
        threads.add(ask)
    for thread in threads.merge_threads():
        histories = thread.histories()
        yield make_session(
            NAME,
            source,
            "",
            histories,
            branches=thread.iter_rewound_branches(),
            records={"request": len(thread.model_calls)},
            problems=(),
            times=(time for ask in thread.model_calls for time in (ask.start, ask.end)),
        )


def _pair_requests(source: SourceFile) -> Iterator[LoggedCall]:
    """Each request with its response, if one came before the next request."""
    asked: tuple[int, dict[str, Any], Any] | None = None
    others = 0
    for line, _, row in source.records(_ANY):
        body, answer, time = _request_body(row), _response_body(row), value_at(row, "timestamp")
        if body:
            if asked:
                yield _build_request(*asked, {}, None)
            asked = (line, body, time)
        if answer and asked:
            yield _build_request(*asked, answer, time)
            asked = None
        elif not body:
            others += 1
    if asked:
        yield _build_request(*asked, {}, None)
    if others:
        source.report(f"{others} lines are no requests, nor responses to one", "skipped")


def _build_request(line: int, body: dict[str, Any], start: Any, answer: dict[str, Any], end: Any) -> LoggedCall:
    choice = next(iter(list_at(answer, "choices") or list_at(answer, "outputs")), None)
    said = dict_at(choice, "message") or as_dict(choice) | {"content": value_at(choice, "message")}
    tools = list_at(body, "tools")
    return LoggedCall(
        line,
        line,
        input_messages=[
            message for row in body["messages"] if (message := parse_lenient_message(as_dict(row), "user")).parts
        ],
        output_messages=[message for message in [parse_lenient_message(said, "assistant")] if message.parts],
        start=parse_time(start),
        end=parse_time(end),
        model=text_at(answer, "model") or text_at(body, "model"),
        usage=_parse_usage(answer),
        tools=dump_json(tools) if tools else "",
    )


def _parse_usage(answer: dict[str, Any]) -> Usage | None:
    if "input_tokens" in answer:
        return Usage(count_at(answer, "input_tokens"), count_at(answer, "output_tokens"))
    return parse_openai_chat_usage(answer.get("usage"))


# The format


def _sniff(source: SourceFile) -> int:
    """Could be, where there are messages and no API claims them: anything that is sure of a file comes first."""
    if source.document is None and _is_request_log(source.head):
        return 1
    found = _first_conversations(source)
    wire = detect_dialect(load_dialect_sample(source)) if found else None
    if wire and not any(_has_foreign_role(row) for row in found[0].rows):
        return 0
    return 1 if found else 0


def _first_conversations(source: SourceFile) -> list[GenericChat]:
    """The first conversation, if there is one."""
    if source.document is not None:
        return [talk for _, talk in zip(range(1), _find_conversations(source.document), strict=False)]
    head = list(source.head)
    if _is_message_list(head):
        return [GenericChat(head, {})]
    return [talk for value in head for _, talk in zip(range(1), _find_conversations(value), strict=False)]


def _has_foreign_role(row: Any) -> bool:
    """Whether a row's role is one that people use and no API knows."""
    word = text_at(row, "role").lower()
    return word in ROLES_BY_WORD and word not in DIALECT_ROLES


FORMAT = TranscriptFormat(
    NAME,
    "lists of messages",
    _sniff,
    _read,
    layouts="documents and JSONL with lists of messages that are in no API's form",
    holds=("thinking", "usage", "times", "edits"),
    seen="Who&When, smolagents, BFCL 4, tau-bench, LongMemEval, MSC",
)
