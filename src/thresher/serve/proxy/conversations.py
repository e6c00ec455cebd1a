"""Find the conversation that a request belongs to, and what kind of request it is.

An id alone is not enough: requests for a title, sub-agents and parallel windows share it. So the key of a window also
has the agent, the model, and a digest of the system text and the names of the tools. Without any id, the first rows
identify the conversation.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from thresher.dialects.cache_control import strip_cache_breakpoints
from thresher.dialects.table import find_dialect
from thresher.model.jsontext import dump_json, load_json_object
from thresher.tokens import find_model

RequestKind = Literal["turn", "one_shot", "compaction", "count"]
"""Kind of a request: `turn` continues a conversation, `one_shot` is a single question such as for a title, `compaction`
is the agent's own request for a summary, `count` asks for a number of tokens."""

SESSION_HEADER = "x-thresher-session"
_SESSION_HEADERS = (
    SESSION_HEADER, "x-claude-code-session-id", "x-codex-window-id", "thread-id", "session-id", "x-session-id",
    "x-session-affinity",
)  # fmt: skip
_AGENT_HEADERS = ("x-claude-code-agent-id",)
_CODEX_HEADER = "x-codex-turn-metadata"
_BILLING_TEXT = "x-anthropic-billing-header"
"""Start of a system text that Claude Code derives from the first prompt."""
_COMPACTION_TEXTS = (
    "Your task is to create a detailed summary",
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "Provide a detailed prompt for continuing our conversation",
)
_MODEL_ROLES = ("assistant", "model")
_INSTRUCTION_ROLES = ("system", "developer")
_MAX_CODEX_WINDOWS = 100
"""Number of Codex's windows in a session, one after each compaction, whose ledgers can be deleted."""
LEDGER_FOLDER = "proxy"
"""Folder of the sessions' ledgers, in the data folder."""
_FIRST_ROWS = 4
"""Maximum number of rows that identify a conversation without an id."""
_DIGEST_BYTES = 16


class Conversation(NamedTuple):
    """The identity of a request."""

    kind: RequestKind
    session: str
    """Digest of the session's id, which names its ledger. Agents and models of a session share the ledger."""
    key: str
    """Digest that also covers the agent, the model and the prompt."""
    model: str
    agent: str
    tools: tuple[str, ...]


def identify(
    dialect: str, kind: Literal["generate", "count"], path: str, headers: Mapping[str, str], body: dict[str, Any]
) -> Conversation:
    """Return the conversation of a request."""
    rows = body[find_dialect(dialect).messages_field]
    tools = tuple(iterate_tool_names(body, rows))
    model = find_model_in_request(path, body)
    found = find_model(model) if model else None
    session = _find_session_id(headers, body) or f"rows {_digest(dialect, *_first_rows(rows))}"
    agent = next((headers[name] for name in _AGENT_HEADERS if name in headers), "")
    agent = agent or str(load_json_object(headers.get(_CODEX_HEADER, "")).get("agent_name") or "")
    prompt = _digest(*_iterate_system_texts(body), *sorted(tools))
    family = found.name if found is not None else model
    return Conversation(
        "count" if kind == "count" else _find_kind(headers, rows, tools),
        _digest(session),
        _digest(session, agent, family, dialect, prompt),
        model,
        agent,
        tools,
    )


def digest_opening(identity: Conversation, dialect: str, rows: list[Any]) -> str:
    """Return a digest of the agent and its first rows, which stays the same if its model, tools or system change."""
    return _digest(identity.session, identity.agent, dialect, *_first_rows(rows))


def delete_ledgers(folder: Path, session: str) -> None:
    """Delete the ledgers of a session of an agent. Agents send its id in different headers."""
    ids = [f"{name} {session}" for name in (*_SESSION_HEADERS, "user", "cache")]
    ids += [f"x-codex-window-id {session}:{number}" for number in range(_MAX_CODEX_WINDOWS)]
    for file in chain.from_iterable(folder.glob(f"{_digest(id)}.*") for id in ids):
        file.unlink(missing_ok=True)


def find_model_in_request(path: str, body: Mapping[str, Any]) -> str:
    """Return the model that the body names, or the path of Gemini's API; empty if none does."""
    named = body.get("model")
    if isinstance(named, str):
        return named
    return path.partition("?")[0].rpartition("/models/")[2].partition(":")[0] if "/models/" in path else ""


def _find_kind(headers: Mapping[str, str], rows: list[Any], tools: tuple[str, ...]) -> RequestKind:
    if load_json_object(headers.get(_CODEX_HEADER, "")).get("request_kind") == "compaction":
        return "compaction"
    spoken = [row for row in rows if not isinstance(row, dict) or row.get("role") not in _INSTRUCTION_ROLES]
    last = json.dumps(spoken[-1]) if spoken else ""
    if any(text in last for text in _COMPACTION_TEXTS) and len(spoken) > 1:
        return "compaction"
    return "one_shot" if len(spoken) < 2 and not tools else "turn"


def _find_session_id(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the id that the client sends; empty if it sends none."""
    by_header = next((f"{name} {headers[name]}" for name in _SESSION_HEADERS if headers.get(name)), "")
    if by_header:
        return by_header
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    session = load_json_object(user).get("session_id") if isinstance(user, str) else None
    if isinstance(session, str) and session:
        return f"user {session}"
    cache_key = body.get("prompt_cache_key")
    return f"cache {cache_key}" if isinstance(cache_key, str) and cache_key else ""


def _first_rows(rows: list[Any]) -> Iterator[str]:
    """Yield the rows before the first answer."""
    for row in rows[:_FIRST_ROWS]:
        if isinstance(row, dict) and (row.get("role") in _MODEL_ROLES or "call_id" in row):
            return
        plain = strip_cache_breakpoints([row])[0]
        if isinstance(plain, dict) and isinstance(text := plain.get("content"), str):
            plain = {**plain, "content": [{"type": "text", "text": text}]}  # a row with a breakpoint is written so
        yield dump_json(plain)


def _iterate_system_texts(body: Mapping[str, Any]) -> Iterator[str]:
    for field in ("system", "instructions", "systemInstruction", "system_instruction"):
        value = body.get(field)
        for item in value if isinstance(value, list) else [value]:
            text = item.get("text") if isinstance(item, dict) and "text" in item else item
            if isinstance(text, str) and not text.startswith(_BILLING_TEXT):
                yield text
            elif isinstance(text, dict):
                yield dump_json(text)


def iterate_tool_names(body: Mapping[str, Any], rows: list[Any] = []) -> Iterator[str]:  # noqa: B006 - never changed
    """Yield the names of the tools that a request defines, in its tools or in an item of its input."""
    yield from _iterate_names(body.get("tools"))
    for row in rows[:_FIRST_ROWS]:
        if isinstance(row, dict) and row.get("type") == "additional_tools":
            yield from _iterate_names(row.get("tools"))


def _iterate_names(tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("functionDeclarations") or tool.get("function_declarations") or tool.get("tools")
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name") or tool.get("type")
        if isinstance(inner, list):
            prefix = f"{name}__" if isinstance(name, str) and tool.get("tools") else ""
            yield from (prefix + one for one in _iterate_names(inner))
        elif isinstance(name, str):
            yield name


def _digest(*texts: str) -> str:
    hasher = blake2b(digest_size=_DIGEST_BYTES)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()
