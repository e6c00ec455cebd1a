"""opencode's messages before a model call, as rows of Anthropic's API and back.

The hook of opencode's plug-in sees neither the system text nor the tools, so a budget covers the messages only. An
opencode message of the model holds its calls with their results, so it is two rows.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from thresher.model.jsontext import dump_json
from thresher.serve.hook.agent_rows import FittedRow, FittedRows, Row, iter_blocks, join_texts, read_result_text

SHELL_TOOL = "bash"
FINISHED = {"completed": "output", "error": "error"}
"""Fields of a call's state with its result, by status."""
INTERRUPTED = "[Tool execution was interrupted]"
NEW_ID = "thresher"


class _SourceRow(NamedTuple):
    """A row, and the opencode message that it comes from."""

    row: Row
    message: int


class OpencodeRows:
    """The messages of a request."""

    def __init__(self, messages: list[Row]) -> None:
        self._messages = messages
        self._sources = [
            _SourceRow(row, index) for index, message in enumerate(messages) for row in _convert_message(message)
        ]

    @property
    def session(self) -> str:
        """Id of the session."""
        return str(self._messages[0]["info"].get("sessionID", "")) if self._messages else ""

    def build_body(self) -> dict[str, Any]:
        """Return the messages as a request body."""
        users = [message["info"] for message in self._messages if message["info"]["role"] == "user"]
        last = users[-1] if users else {}
        has_shell = (last.get("tools") or {}).get(SHELL_TOOL) is not False
        agent = str(last.get("agent", ""))
        tools = [{"name": name} for name in ([SHELL_TOOL] if has_shell else []) + [f"agent:{agent}"]]
        model = str((last.get("model") or {}).get("modelID", ""))
        return {"model": model, "tools": tools, "messages": [source.row for source in self._sources]}

    def restore(self, fitted: FittedRows) -> list[int | Row]:
        """Return opencode's messages for fitted rows."""
        by_message: dict[int, list[FittedRow]] = {}
        new: dict[int, list[FittedRow]] = {}
        """Rows of no message, by the message before them."""
        at = -1
        for found in fitted:
            if found.source is None:
                new.setdefault(at, []).append(found)
            else:
                at = self._sources[found.source].message
                by_message.setdefault(at, []).append(found)
        counts = [0] * len(self._messages)
        for source in self._sources:
            counts[source.message] += 1
        rows: list[int | Row] = [self._build_message(found.row, number) for number, found in enumerate(new.get(-1, ()))]
        for index, message in enumerate(self._messages):
            kept = by_message.get(index, [])
            if len(kept) == counts[index] and all(found.is_unchanged for found in kept):
                rows.append(index)
            elif kept:
                rows.append({**message, "parts": _restore_parts(message, [found.row for found in kept])})
            rows += [self._build_message(found.row, index) for found in new.get(index, ())]
        return rows

    def _build_message(self, row: Row, number: int) -> Row:
        """Return a message for a text that comes from no single message, such as a summary."""
        template = next(message["info"] for message in self._messages if message["info"]["role"] == "user")
        info = next((message["info"] for message in self._messages if message["info"]["role"] == row["role"]), template)
        id_ = f"msg_{NEW_ID}_{number}"
        return {"info": {**info, "id": id_}, "parts": [_build_text({**info, "messageID": id_}, join_texts(row))]}


def _convert_message(message: Row) -> Iterator[Row]:
    """Yield the rows of a message: what it says and calls, and then the results."""
    role = message["info"]["role"]
    parts = message["parts"]
    blocks = [block for part in parts for block in _convert_part(part)]
    if not blocks:
        return
    yield {"role": role, "content": blocks}
    results = [_convert_result(part) for part in parts if part["type"] == "tool"]
    if results:
        yield {"role": "user", "content": results}


def _convert_part(part: Row) -> Iterator[Row]:
    match part["type"]:
        case "text" if part.get("text") and not part.get("ignored"):
            yield {"type": "text", "text": part["text"]}
        case "reasoning" if signature := _find_signature(part):
            yield {"type": "thinking", "thinking": part.get("text", ""), "signature": signature}
        case "tool":
            arguments = part["state"].get("input") or {}
            yield {"type": "tool_use", "id": part["callID"], "name": part["tool"], "input": arguments}
        case "file" | "subtask" | "compaction" as kind:
            yield {"type": "text", "text": f"[{kind} {part.get('filename') or part.get('description') or ''}]"}


def _find_signature(part: Row) -> str:
    metadata = (part.get("metadata") or {}).get("anthropic") or {}
    return str(metadata.get("signature") or "")


def _convert_result(part: Row) -> Row:
    state = part["state"]
    text = str(state.get(FINISHED.get(state["status"], ""), INTERRUPTED))
    is_error = {"is_error": True} if state["status"] != "completed" else {}
    return {"type": "tool_result", "tool_use_id": part["callID"], "content": text, **is_error}


def _restore_parts(message: Row, rows: list[Row]) -> list[Row]:
    """Return the parts of a message that are left, with their new texts."""
    blocks = [block for row in rows for block in iter_blocks(row)]
    calls = {block["id"]: block for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    thinking = [block["signature"] for block in blocks if block["type"] == "thinking"]
    parts: list[Row] = []
    for part in message["parts"]:
        match part["type"]:
            case "tool":
                if part["callID"] in calls:
                    parts.append(_restore_call(part, calls[part["callID"]], results.get(part["callID"])))
            case "reasoning" if _find_signature(part):
                if _find_signature(part) in thinking:
                    parts.append(part)
            case _:
                converted = next(_convert_part(part), None)
                if converted is None:
                    parts.append(part)
                elif converted["text"] in texts:
                    texts.remove(converted["text"])
                    parts.append(part)
    source = {**message["info"], "messageID": message["info"].get("id")}
    return [_build_text(source, text) for text in texts] + parts


def _restore_call(part: Row, call: Row, result: Row | None) -> Row:
    state = dict(part["state"])
    field = FINISHED.get(state["status"])
    if dump_json(call["input"]) != dump_json(state.get("input") or {}):
        state["input"] = call["input"]
    if field and result is not None and (text := read_result_text(result)) != state.get(field):
        state[field] = text
    return {**part, "state": state}


def _build_text(info: Row, text: str) -> Row:
    ids = {"id": f"prt_{NEW_ID}", "sessionID": info.get("sessionID"), "messageID": info["messageID"]}
    return {**ids, "type": "text", "text": text}
