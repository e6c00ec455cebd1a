"""An independent check of API rules on emitted JSON, without the project's own rules.

`violations(value, dialect)` describes each reason for which the dialect's API would reject the value. Rows and blocks
that do not match the API's documentation are skipped, because the API's behavior for them is unknown.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

Json = Any
KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}
LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def violations(value: Json, dialect: str) -> list[str]:
    """Describe each violation in messages or a request body."""
    rows = value[KEYS[dialect]] if isinstance(value, dict) else value
    told = [*_unsendable(rows)]
    system = (
        value.get({"anthropic": "system", "openai-responses": "instructions"}.get(dialect)) if value is not rows else ""
    )
    told += _unsendable(system) if _texts(system) else []
    return told + (list(JUDGES[dialect](rows)) if isinstance(rows, list) else [])


def _unsendable(value: Json) -> Iterator[str]:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        yield "half a surrogate pair"
    except ValueError:
        yield "no JSON number"


def _texts(*values: Json) -> bool:
    return all(isinstance(value, str) for value in values)


# --- anthropic -----------------------------------------------------------------------------------------------


def _anthropic(rows: list[Json]) -> Iterator[str]:
    ids: Counter[str] = Counter()
    before: list[str] = []
    for number, row in enumerate(rows):
        fits = isinstance(row, dict) and _texts(row.get("role")) and isinstance(row.get("content"), str | list)
        if not fits:
            yield from _missing(number, before)
            before = []
            continue
        spoken = row["role"] == "assistant"
        if row["role"] not in ("user", "assistant", "system"):
            yield f"{number}: a role that is none"
        if row["role"] == "system":
            yield from _anthropic_system_place(number, rows)
        if number == 0 and spoken:
            yield "the model speaks first"
        last = number == len(rows) - 1
        yield from _anthropic_content(number, row["content"], spoken=spoken, last=last)
        blocks = [block for block in row["content"] if isinstance(block, dict)] if not _texts(row["content"]) else []
        calls = [block for block in blocks if _is_tool_use(block)]
        results = [block["tool_use_id"] for block in blocks if _is_tool_result(block)]
        if spoken and results:
            yield f"{number}: the model's message holds results"
        if calls and not spoken:
            yield f"{number}: the user's message makes calls"
        if Counter(results) != Counter(before) and not spoken:
            yield f"{number}: results {results} for calls {before}"
        elif spoken:
            yield from _missing(number, before)
        before = [str(call.get("id")) for call in calls]
        ids.update(before)
        if any("id" not in call or not call["id"] or not LETTERS.issuperset(call["id"]) for call in calls):
            yield f"{number}: a call's id is missing or not of the form"
    yield from _missing(len(rows), before)
    yield from (f"the id {name} repeats" for name, count in ids.items() if count > 1)


def _anthropic_system_place(number: int, rows: list[Json]) -> Iterator[str]:
    """Check the row before a system row, and the row after it."""
    around = [rows[at] if 0 <= at < len(rows) else {} for at in (number - 1, number + 1)]
    before, after = (row if isinstance(row, dict) else {"role": "other"} for row in around)
    last = before["content"][-1] if isinstance(before.get("content"), list) and before["content"] else {}
    uses_server = isinstance(last, dict) and last.get("type") in ("server_tool_use", "mcp_tool_use")
    if not before or (before.get("role") == "assistant" and not uses_server):
        yield f"{number}: system text behind the model's message"
    if after and after.get("role") not in ("assistant", "other"):
        yield f"{number}: system text that the model does not answer"


def _missing(number: int, calls: list[str]) -> Iterator[str]:
    if calls:
        yield f"{number}: no results for {calls}"


def _is_tool_use(block: dict[str, Json]) -> bool:
    named = _texts(block.get("id", ""), block.get("name"))
    return block.get("type") == "tool_use" and named and isinstance(block.get("input"), dict)


def _is_tool_result(block: dict[str, Json]) -> bool:
    return block.get("type") == "tool_result" and _texts(block.get("tool_use_id"))


def _anthropic_content(number: int, content: str | list[Json], *, spoken: bool, last: bool) -> Iterator[str]:
    if not content:
        if not (spoken and last):
            yield f"{number}: empty content"
        return
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kinds = [block.get("type") if isinstance(block, dict) else None for block in blocks]
    texts = [block["text"] for block in blocks if isinstance(block, dict) and _is_text(block)]
    if "" in texts:
        yield f"{number}: an empty text"
    if texts and not any(text.strip() for text in texts):
        yield f"{number}: nothing but space"
    if spoken and last and _is_text(blocks[-1]) and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        yield f"{number}: ends in space"
    seen = False
    for block in blocks if not spoken else ():
        if isinstance(block, dict) and seen and _is_tool_result(block):
            yield f"{number}: a result behind other content"
        seen = seen or (isinstance(block, dict) and _is_text(block))
    thinks = [_is_thinking(block) for block in blocks]
    if thinks[-1]:
        yield f"{number}: ends in thinking"
    for kind, block, think in zip(kinds, blocks, thinks, strict=True):
        if think and not spoken:
            yield f"{number}: the user thinks"
        if think and not block.get("signature" if kind == "thinking" else "data"):
            yield f"{number}: unsigned thinking"


def _is_text(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and _texts(block.get("text"))


def _is_thinking(block: Json) -> bool:
    if not isinstance(block, dict):
        return False
    shown = block.get("type") == "thinking" and _texts(block.get("thinking"), block.get("signature", ""))
    return shown or (block.get("type") == "redacted_thinking" and _texts(block.get("data")))


# --- openai-chat ---------------------------------------------------------------------------------------------


def _chat(rows: list[Json]) -> Iterator[str]:
    waiting: Counter[str] = Counter()
    for number, row in enumerate(rows):
        role = _chat_role(row)
        if role == "other" and row["role"] not in ("system", "developer", "user"):
            yield f"{number}: a role that is none"
        if role == "function":
            continue
        if role == "tool":
            call_id = row.get("tool_call_id")
            if not _texts(call_id) or not waiting[call_id]:
                yield f"{number}: a tool's message that answers no call right before it"
            else:
                waiting[call_id] -= 1
            if row.get("content") is None:
                yield f"{number}: no content"
            continue
        if +waiting:
            yield f"{number}: no results for {[*+waiting]}"
        waiting = Counter()
        if role == "":
            continue
        if role == "assistant" and row.get("tool_calls") == []:
            yield f"{number}: an empty list of calls"
        calls = [entry for entry in row.get("tool_calls") or () if role == "assistant" and _is_chat_call(entry)]
        waiting.update(str(entry.get("id")) for entry in calls)
        if any(not entry.get("id") or len(entry["id"]) > 40 for entry in calls) or 2 in waiting.values():
            yield f"{number}: a call's id is missing, too long or repeated"
        excused = role == "assistant" and any(
            row.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")
        )
        if row.get("content") is None and not excused and row.get("function_call") is None:
            yield f"{number}: no content"
    if +waiting:
        yield f"at the end: no results for {[*+waiting]}"


def _chat_role(row: Json) -> str:
    """Return the role that the API assigns to a row; an empty string for an invalid row."""
    if (
        not isinstance(row, dict)
        or not _texts(row.get("role"))
        or not isinstance(row.get("content"), str | list | None)
    ):
        return ""
    if row["role"] == "assistant":
        fits = isinstance(row.get("tool_calls"), list | None) and isinstance(row.get("function_call"), dict | None)
        return "assistant" if fits else ""
    return str(row["role"]) if row["role"] in ("tool", "function") else "other"


def _is_chat_call(entry: Json) -> bool:
    if not isinstance(entry, dict):
        return False
    kind = "custom" if isinstance(entry.get("custom"), dict) else "function"
    inner = entry.get(kind)
    arguments = inner.get("input" if kind == "custom" else "arguments") if isinstance(inner, dict) else None
    return isinstance(inner, dict) and _texts(inner.get("name")) and isinstance(arguments, str | dict)


# --- openai-responses ----------------------------------------------------------------------------------------


def _responses(rows: list[Json]) -> Iterator[str]:
    waiting: Counter[tuple[str, str]] = Counter()
    items: Counter[str] = Counter()
    reasoning = False
    for number, row in enumerate(rows):
        kind = _item_kind(row)
        if reasoning and kind in ("user", "output", "odd"):
            yield f"{number}: the reasoning before it led to nothing"
        reasoning = kind == "reasoning"
        if kind == "user" and row["role"] not in ("user", "system", "developer"):
            yield f"{number}: a role that is none"
        if kind == "call":
            key = _call_key(row)
            if not key[1] or len(key[1]) > 64 or waiting[key]:
                yield f"{number}: a call's id is missing, too long, or that of an open call"
            waiting[key] += 1
        elif kind == "output":
            if not waiting[_call_key(row)]:
                yield f"{number}: an output for no open call"
            waiting[_call_key(row)] -= 1
        # A legacy shell call has only this id, and shares it with its output.
        paired_by_it = kind in ("call", "output") and not _texts(row.get("call_id"))
        if kind not in ("odd", "other") and _texts(row.get("id")) and not paired_by_it:
            items[row["id"]] += 1
    if reasoning:
        yield "at the end: reasoning that led to nothing"
    yield from (f"no output for {key}" for key in +waiting)
    yield from (f"the item id {name} repeats" for name, count in items.items() if count > 1)


_TOOLS = ("function_call", "custom_tool_call", "local_shell_call")


def _item_kind(row: Json) -> str:
    """Classify an item as `user`, `message` (by the model), `reasoning`, `call`, `output`, `other` or `odd`."""
    kind = row.get("type", "message") if isinstance(row, dict) else None
    if kind == "message" and _texts(row.get("role")) and isinstance(row.get("content"), str | list):
        return "message" if row["role"] == "assistant" else "user"
    if kind == "message" or not isinstance(kind, str):
        return "odd"
    if kind == "reasoning" and all(isinstance(row.get(key), list | None) for key in ("summary", "content")):
        return "reasoning"
    if kind in _TOOLS and _is_item_call(row):
        return "call"
    if not kind.endswith("_output"):
        return "other"
    return "output" if kind.removesuffix("_output") in _TOOLS and _is_item_output(row) else "odd"


def _is_item_call(row: dict[str, Json]) -> bool:
    if row["type"] == "local_shell_call":
        return (_texts(row.get("call_id")) or _texts(row.get("id"))) and isinstance(row.get("action"), dict)
    text = row.get("input" if row["type"] == "custom_tool_call" else "arguments")
    return _texts(row.get("call_id"), row.get("name"), text)


def _is_item_output(row: dict[str, Json]) -> bool:
    shell = row["type"] == "local_shell_call_output"
    return "output" in row and (_texts(row.get("call_id")) or (shell and _texts(row.get("id"))))


def _call_key(row: dict[str, Json]) -> tuple[str, str]:
    name = row["call_id"] if _texts(row.get("call_id")) else row["id"]
    return row["type"].removesuffix("_output"), name


# --- gemini --------------------------------------------------------------------------------------------------

_DATA = (
    *("text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data"),
    *("fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result"),
)


def _gemini(rows: list[Json]) -> Iterator[str]:
    before: list[Json] = []
    role = ""
    for number, row in enumerate(rows):
        fits = isinstance(row, dict) and isinstance(row.get("parts"), list) and isinstance(row.get("role"), str | None)
        if not fits:
            yield from _missing(number, [str(call) for call in before])
            before, role = [], "odd"
            continue
        speaks = "model" if row.get("role") == "model" else "user"
        calls = [call for part in row["parts"] if (call := _function(part, "functionCall", "function_call"))]
        answers = [one for part in row["parts"] if (one := _function(part, "functionResponse", "function_response"))]
        if row.get("role", "user") not in ("user", "model", "function", None):
            yield f"{number}: a role that is none"
        if number == 0 and speaks == "model":
            yield "the model speaks first"
        if calls and speaks == role == "model":
            yield f"{number}: calls in a second message of the model's"
        if (calls and speaks == "user") or (answers and speaks == "model"):
            yield f"{number}: a call or a response in the wrong role"
        if len(answers) != len(before):
            yield f"{number}: {len(answers)} responses for {len(before)} calls"
        if all(one.get("id") for one in (*before, *answers)) and _ids(before) != _ids(answers):
            yield f"{number}: the responses' ids are not those of the calls"
        if not row["parts"]:
            yield f"{number}: no parts"
        if any(_is_empty_text(part) for part in row["parts"]):
            yield f"{number}: an empty text"
        before, role = calls, speaks
    yield from _missing(len(rows), [str(call) for call in before])


def _ids(values: list[Json]) -> Counter[str]:
    return Counter(one["id"] for one in values)


def _function(part: Json, *names: str) -> Json:
    """Return the call or response of a part."""
    if not isinstance(part, dict):
        return None
    keys = [key for key in _DATA if part.get(key) is not None]
    inner = part[keys[0]] if len(keys) == 1 and keys[0] in names else None
    if not isinstance(inner, dict) or not _texts(inner.get("name")):
        return None
    if keys[0] in ("functionCall", "function_call"):
        return inner if isinstance(inner.get("args"), dict | None) else None
    fits = isinstance(inner.get("response"), dict | None) and isinstance(inner.get("parts"), list | None)
    return inner if inner["name"] and fits else None


def _is_empty_text(part: Json) -> bool:
    if not isinstance(part, dict):
        return False
    keys = [key for key in _DATA if part.get(key) is not None]
    signed = part.get("thought") is True or "thoughtSignature" in part or "thought_signature" in part
    return keys == ["text"] and part["text"] == "" and not signed


JUDGES: dict[str, Callable[[list[Json]], Iterator[str]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
