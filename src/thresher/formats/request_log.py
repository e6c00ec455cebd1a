"""A log of requests to a model and its responses, one a line: what a proxy or a harness writes down.

Each request repeats the whole history, so the lines of one conversation are put together (`threads`). A response
stands in the line of its request, or in a later one.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.loose_messages import read_row, speaker
from thresher.formats.thread import Ask
from thresher.formats.transcript import chat_usage, timestamp
from thresher.model import Message, Usage
from thresher.model.jsontext import dump

_BODIES = ("request_params", "request", "body", "request_body")


def is_log(rows: Iterable[Any]) -> bool:
    """Whether rows are such a log: requests, and responses told apart from them."""
    found = [row for row in rows if isinstance(row, dict)]
    return any(_request(row) for row in found) and any(_response(row) for row in found)


def asks_in(rows: Iterable[tuple[int, Any]]) -> Iterator[Ask]:
    """Each request with its response, if one came before the next request."""
    open_line = 0
    asked: dict[str, Any] = {}
    for line, row in rows:
        body, answer = _request(row), _response(row)
        if body:
            if asked:
                yield _ask(open_line, asked, {})
            open_line, asked = line, {**body, "timestamp": fields(row).get("timestamp")}
        if answer and asked:
            yield _ask(open_line, asked, answer | {"timestamp": fields(row).get("timestamp")})
            asked = {}
    if asked:
        yield _ask(open_line, asked, {})


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


def _ask(line: int, body: dict[str, Any], answer: dict[str, Any]) -> Ask:
    choice = next(iter(items(answer.get("choices")) or items(answer.get("outputs"))), None)
    said = fields(at(choice, "message")) or {**fields(choice), "content": at(choice, "message")}
    tools = body.get("tools")
    return Ask(
        line,
        line,
        "",
        frozenset(),
        "",
        "",
        [message for row in items(body["messages"]) if (message := _message(row, "user")).parts],
        [message for message in [_message(said, "assistant")] if message.parts],
        start=timestamp(body.get("timestamp")),
        end=timestamp(answer.get("timestamp")),
        model=text(answer.get("model")) or text(body.get("model")),
        usage=_usage(answer),
        tools=dump(tools) if items(tools) else "",
    )


def _message(row: Any, otherwise: str) -> Message:
    row = fields(row)
    who = speaker(row)
    return read_row(row, who if who.word else speaker({"role": otherwise}))


def _usage(answer: dict[str, Any]) -> Usage | None:
    if "input_tokens" in answer:
        return Usage(count(answer.get("input_tokens")), count(answer.get("output_tokens")))
    return chat_usage(answer.get("usage"))
