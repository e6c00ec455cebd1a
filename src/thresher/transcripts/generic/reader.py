"""Read lists of messages from files of unknown origin, with various field names.

The reader searches a document or a line for such lists, up to a small depth and only under known keys. A list that
matches a dialect is parsed as that dialect. Any other list is parsed row by row (`lenient_parser`). Depending on its
key, a list of lists is one conversation in turns, or several conversations.

If several agents speak, the reader adds a text part with the name of the agent, such as `[WebSurfer]`, at the start of
each message. A person, a search and a model can then tell the agents apart. The message's id also includes the name.

A file can also be a log that a proxy or a harness writes, with one request or response per line. Each request repeats
the whole history, so `stitching` groups the requests into conversations. A response can also be in the line of its
request.
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
from thresher.model import History, Session
from thresher.model.jsontext import dump_json
from thresher.transcripts.base import (
    MAX_TITLE_CHARS,
    TranscriptFormat,
    make_session,
    parse_chat_usage,
    parse_time,
    title_from_prompt,
)
from thresher.transcripts.coerce import (
    as_dict,
    as_list,
    as_text,
    dict_at,
    first_text,
    list_at,
    text_at,
    value_at,
)
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
"""Keys of a list of messages."""
TURN_LIST_KEYS = ("question", "turns")
"""Keys of a list of turns. Each turn is a list of messages, and all turns are one conversation."""
CONVERSATION_LIST_KEYS = (
    *("haystack_sessions", "sessions", "previous_dialogs", "dialogs"),
    *("conversations", "chats", "samples", "data"),
)
"""Keys of a list of conversations."""
DIALOGS = ("dialog", "dialogue")
"""Keys of a dialog: a list of texts in which two people take turns, with or without names."""
MAX_SEARCH_DEPTH = 4
SNIFFED_ROWS = 40
"""Maximum number of rows that the reader tests to detect what a list contains."""
_IDS = (
    *("session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "id", "uuid"),
    *("question_id", "question_ID", "task_id", "instance_id", "scenarioId"),
)
_TITLES = ("title", "topic")
_TASKS = ("question", "task", "instruction", "description")
_STARTS = ("start_time", "started_at", "timestamp", "created_at", "date")
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


# Search for conversations


def _find_conversations(
    value: Any, metadata: dict[str, Any] | None = None, key: str = "", depth: int = 0
) -> Iterator[GenericChat]:
    """Yield the conversations in a value. `metadata` is the object that contains the value under `key`."""
    if depth > MAX_SEARCH_DEPTH:
        return
    if isinstance(value, dict):
        yield from _find_conversations_in_object(value, depth)
    elif _is_message_list(value, key):
        yield GenericChat(value, metadata or {})
    elif key in TURN_LIST_KEYS and _is_list_of_turns(value):
        yield GenericChat([row for turn in value for row in turn], metadata or {})
    elif key in CONVERSATION_LIST_KEYS and _is_list_of_turns(value):
        yield from (GenericChat(rows, metadata or {}) for rows in value)
    else:
        for item in as_list(value):
            yield from _find_conversations(item, metadata if isinstance(item, list) else None, depth=depth + 1)


def _find_conversations_in_object(value: dict[str, Any], depth: int) -> Iterator[GenericChat]:
    calls, questions = list_at(value, "ground_truth"), list_at(value, "question")
    if _is_list_of_calls(calls):
        turns = questions if _is_list_of_turns(questions) and len(questions) == len(calls) else [[] for _ in calls]
        yield GenericChat(turns, value, calls=tuple(calls))
        return
    for key in dict.fromkeys((*MESSAGE_LIST_KEYS, *CONVERSATION_LIST_KEYS)):
        if not isinstance(value.get(key), list):
            continue
        talks = _find_conversations(value[key], value, key, depth + 1)
        yield from _with_ids_and_dates(talks, value) if key == "haystack_sessions" else talks


def _with_ids_and_dates(talks: Iterator[GenericChat], metadata: dict[str, Any]) -> Iterator[GenericChat]:
    """Add the ids and dates of conversations, which LongMemEval stores in separate lists."""
    ids, dates = list_at(metadata, "haystack_session_ids"), list_at(metadata, "haystack_dates")
    for talk, id_, date in zip_longest(talks, ids, dates):
        if talk:
            yield talk._replace(id=as_text(id_), started=_parse_date(date))


def _is_message_list(value: Any, key: str = "") -> bool:
    """Return whether a value is a list of messages: at least two rows, and at least half of all rows, are messages."""
    sample = as_list(value)[:SNIFFED_ROWS]
    rows = [row for row in sample if isinstance(row, dict)]
    if key in DIALOGS and len(rows) > 1 and all(isinstance(row.get("text"), str) for row in rows):
        return True
    messages = [row for row in rows if _is_message_row(row)]
    if len(messages) < 2 or len(messages) * 2 < len(sample):
        return False
    has_known_role = any(parse_speaker(row).role in ("user", "assistant") for row in messages)
    return has_known_role or (key in MESSAGE_LIST_KEYS and all(text_at(row, "speaker") for row in messages))


def _is_message_row(value: Any) -> bool:
    """Return whether a value has a speaker and content."""
    if not isinstance(value, dict) or not has_message_content(value):
        return False
    who = parse_speaker(value)
    return who.role is not None or (bool(who.word) and any(key in value for key in SPEAKER_KEYS))


def _is_list_of_turns(value: Any) -> bool:
    turns = as_list(value)
    return any(turns) and all(isinstance(turn, list) and all(map(_is_message_row, turn)) for turn in turns)


def _is_list_of_calls(value: Any) -> bool:
    turns = as_list(value)
    calls = [call for turn in turns for call in as_list(turn)][:SNIFFED_ROWS]
    has_texts = all(isinstance(turn, list) for turn in turns) and all(isinstance(call, str) for call in calls)
    return bool(calls) and has_texts and parse_python_call(calls[0]) is not None


_LONGMEMEVAL_DATE = re.compile(r"(\d{4})/(\d\d)/(\d\d) \(\w+\) (\d\d:\d\d)")


def _parse_date(value: Any) -> datetime | None:
    match = _LONGMEMEVAL_DATE.fullmatch(as_text(value))
    return parse_time(f"{match[1]}-{match[2]}-{match[3]} {match[4]}" if match else value)


# Sessions


def _read(source: SourceFile) -> list[Session]:
    """Read one session per conversation."""
    sessions = list(_read_sessions(source))
    if not sessions:
        raise UnknownFormatError(f"`{source.path}` contains no list of messages with a speaker and content")
    counts = Counter(session.id for session in sessions)
    stem = source.stem
    for number, session in enumerate(sessions):
        if not session.id or counts[session.id] > 1:
            suffix = f"-{number + 1}" if len(sessions) > 1 else ""
            sessions[number] = replace(session, id=f"{session.id or stem}{suffix}")
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
    """Read each conversation in a line as a session. Lines that are single messages form one more session."""
    rows, lines = [], []
    for line, _, value in source.records(_ANY):
        sessions = [_build_session(source, talk._replace(line=line)) for talk in _find_conversations(value)]
        yield from sessions
        if sessions:
            continue
        if _is_message_row(value):
            rows.append(value)
            lines.append(line)
        else:
            source.report("a line has no conversation", "skipped", line)
    if rows:
        yield _build_session(source, GenericChat(rows, {}, lines=lines))


def _build_session(source: SourceFile, talk: GenericChat) -> Session:
    metadata = talk.metadata
    messages = build_generic_messages(talk, source)
    tools = list_at(metadata, "tools")
    is_valid = bool(tools) and all(isinstance(tool, dict) for tool in tools)
    history = History(tuple(messages), dump_json(tools) if is_valid else "")
    times = [message.time for message in messages if message.time]
    started = talk.started or next(filter(None, (parse_time(metadata.get(key)) for key in _STARTS)), None)
    ended = parse_time(metadata.get("end_time"))
    title = first_text(metadata, *_TITLES) or title_from_prompt([history]) or first_text(metadata, *_TASKS)
    ids = (metadata.get(key) for key in _IDS)
    return make_session(
        NAME,
        source,
        talk.id or next((str(id_) for id_ in ids if type(id_) in (str, int) and str(id_)), ""),
        [history],
        records=Counter(_speaker_label(row) for row in talk.rows),
        title=title[:MAX_TITLE_CHARS],
        project=text_at(metadata, "cwd"),
        started=min([*times, *filter(None, [started])], default=None),
        ended=max([*times, *filter(None, [ended])], default=None),
        problems=(),
    )


def _speaker_label(row: Any) -> str:
    """Return the label under which a row is counted: the word for its speaker, or `turn` for a list."""
    if isinstance(row, list):
        return "turn"
    return parse_speaker(row).word or "?" if isinstance(row, dict) else "?"


# Request logs

_REQUEST_KEYS = ("request_params", "request", "body", "request_body")


def _is_request_log(rows: Iterable[Any]) -> bool:
    """Return whether rows include both requests and responses."""
    objects = [row for row in rows if isinstance(row, dict)]
    return any(map(_request_body, objects)) and any(map(_response_body, objects))


def _request_body(row: Any) -> dict[str, Any]:
    """Return the body of a request; empty for any other row."""
    bodies = [dict_at(row, key) for key in _REQUEST_KEYS]
    if text_at(row, "type") == "request":
        bodies.append(as_dict(row))
    return next((body for body in bodies if list_at(body, "messages")), {})


def _response_body(row: Any) -> dict[str, Any]:
    """Return the body of a response, with the API's `choices` or with `outputs`; empty for any other row."""
    inner = dict_at(row, "response")
    if list_at(inner, "choices"):
        return inner
    return as_dict(row) if text_at(row, "type") == "response" and list_at(row, "outputs") else {}


def _read_request_log(source: SourceFile) -> Iterator[Session]:
    stitcher = ThreadStitcher(source.file)
    for call in _pair_requests(source):
        stitcher.add(call)
    for thread in stitcher.merge_threads():
        yield make_session(
            NAME,
            source,
            "",
            thread.histories(),
            branches=thread.iter_rewound_branches(),
            records={"request": len(thread.model_calls)},
            problems=(),
            times=(time for call in thread.model_calls for time in (call.start, call.end)),
        )


def _pair_requests(source: SourceFile) -> Iterator[LoggedCall]:
    """Yield each request with its response. A request has no response if the next request comes first."""
    request: tuple[int, dict[str, Any], Any] | None = None
    others = 0
    for line, _, row in source.records(_ANY):
        body, response, time = _request_body(row), _response_body(row), value_at(row, "timestamp")
        if body:
            if request:
                yield _build_call(*request, {}, None)
            request = (line, body, time)
        if response and request:
            yield _build_call(*request, response, time)
            request = None
        elif not body:
            others += 1
    if request:
        yield _build_call(*request, {}, None)
    if others:
        source.report(f"{others} lines are neither requests nor responses to a request", "skipped")


def _build_call(line: int, body: dict[str, Any], start: Any, response: dict[str, Any], end: Any) -> LoggedCall:
    choice = next(iter(list_at(response, "choices") or list_at(response, "outputs")), None)
    answer = dict_at(choice, "message") or as_dict(choice) | {"content": value_at(choice, "message")}
    inputs = [parse_lenient_message(as_dict(row), "user") for row in body["messages"]]
    outputs = [parse_lenient_message(answer, "assistant")]
    tools = list_at(body, "tools")
    return LoggedCall(
        line,
        line,
        input_messages=[message for message in inputs if message.parts],
        output_messages=[message for message in outputs if message.parts],
        start=parse_time(start),
        end=parse_time(end),
        model=text_at(response, "model") or text_at(body, "model"),
        usage=parse_chat_usage(response if "input_tokens" in response else response.get("usage")),
        tools=dump_json(tools) if tools else "",
    )


# The format


def _sniff(source: SourceFile) -> int:
    """Return 1 for a request log or messages that match no dialect: any other format takes precedence."""
    if source.document is None and _is_request_log(source.head):
        return 1
    talk = _first_conversation(source)
    if talk is None:
        return 0
    is_dialect = detect_dialect(load_dialect_sample(source)) is not None
    return 0 if is_dialect and not any(_has_foreign_role(row) for row in talk.rows) else 1


def _first_conversation(source: SourceFile) -> GenericChat | None:
    if source.document is not None:
        return next(_find_conversations(source.document), None)
    head = list(source.head)
    if _is_message_list(head):
        return GenericChat(head, {})
    return next((talk for value in head for talk in _find_conversations(value)), None)


def _has_foreign_role(row: Any) -> bool:
    """Return whether a row's role is a known word that no dialect uses."""
    word = text_at(row, "role").lower()
    return word in ROLES_BY_WORD and word not in DIALECT_ROLES


FORMAT = TranscriptFormat(
    NAME,
    "lists of messages",
    _sniff,
    _read,
    layouts="documents and JSONL with lists of messages that match no dialect",
    holds=("thinking", "usage", "times", "edits"),
    seen="Who&When, smolagents, BFCL 4, tau-bench, LongMemEval, MSC",
)
