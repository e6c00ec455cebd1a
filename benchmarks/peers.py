"""Other tools that reduce a conversation, behind one interface: prepare a history once, then run it at a budget.

Each gets the repaired history in its own message types and Thresher's token counts, through its counter option or
(litellm, which has none) by replacing its counter. Only content that the tool's format can represent is passed to it
and counted. A message that the tool returns unchanged is recognized by its id, so the comparison measures the tool and
not a conversion.

The budget of each:
- langchain-core: `max_tokens`; once as documented, once with the documented workaround `start_on="human"`;
- langchain `ClearToolUsesEdit`: the `trigger`; the newest three results are kept, which is its default;
- google-adk `ContextFilterPlugin`: counts invocations, not tokens: the most that fit the budget, at least one;
- agent-framework-core: the context window, or the token budget over its tool-result compaction;
- litellm: `max_tokens`.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import thresher
from thresher import History, Message
from thresher.tokens import TokenWeights

Row = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(frozen=True)
class Told:
    """One message as it is sent: role, text, calls, results and token count."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    tokens: int = 0


Run = Callable[[int], list[Told]]
"""Return the messages to send at a budget."""


class Peer(NamedTuple):
    """A tool, its package, and a function that prepares one history."""

    name: str
    package: str
    prepare: Callable[[History, TokenWeights], Run]


def installed(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# Chat messages


def chat_rows(history: History) -> list[Row]:
    """Convert a history to OpenAI chat messages, with the keys and roles that the other tools require."""
    rows: list[Row] = thresher.emit(history, "openai-chat", body=False)
    return [{"content": None} | row | ({} if row["role"] in ROLES else {"role": "user"}) for row in rows]


def told_chat(row: Row, scale: TokenWeights | None) -> Told:
    """Convert one chat message; without token weights it is not counted."""
    role = str(row.get("role"))
    calls = [str(call.get("id", "")) for call in row.get("tool_calls") or ()]
    calls += [""] if row.get("function_call") else []
    results = (str(row.get("tool_call_id", "")),) if role in ("tool", "function") else ()
    weight = 0 if scale is None else scale.history(thresher.parse([row], "openai-chat"))
    return Told(role, content_text(row.get("content")), tuple(calls), results, weight)


def content_text(content: Any) -> str:
    """Return the text of a chat message's content."""
    if isinstance(content, str):
        return content
    pieces = content if isinstance(content, list) else []
    return "\n".join(piece if isinstance(piece, str) else str(piece.get("text") or "") for piece in pieces)


# LangChain


def _langchain_messages(rows: Sequence[Row]) -> list[Any]:
    messages: list[Any] = import_module("langchain_core.messages.utils").convert_to_messages(rows)
    for index, message in enumerate(messages):
        message.id = str(index)
    return messages


class _LangChain:
    """Chat rows with their token counts, and the conversion from LangChain's messages."""

    def __init__(self, history: History, scale: TokenWeights) -> None:
        self.rows = chat_rows(history)
        self.told = [told_chat(row, scale) for row in self.rows]
        self.messages = _langchain_messages(self.rows)
        self._scale = scale

    def back(self, message: Any) -> Told:
        index = int(message.id)
        if message.content == self.messages[index].content:
            return self.told[index]
        return told_chat(self.rows[index] | {"content": message.content}, self._scale)

    def tokens(self, messages: Sequence[Any]) -> int:
        return sum(self.back(message).tokens for message in messages)


def _trim_messages(history: History, scale: TokenWeights, **options: Any) -> Run:
    trim = import_module("langchain_core.messages.utils").trim_messages
    chat = _LangChain(history, scale)

    def run(budget: int) -> list[Told]:
        kept = trim(
            chat.messages,
            max_tokens=budget,
            token_counter=chat.tokens,
            strategy="last",
            include_system=True,
            **options,
        )
        return [chat.back(message) for message in kept]

    return run


def _clear_tool_uses(history: History, scale: TokenWeights) -> Run:
    edit = import_module("langchain.agents.middleware.context_editing").ClearToolUsesEdit
    chat = _LangChain(history, scale)

    def run(budget: int) -> list[Told]:
        messages = list(chat.messages)
        edit(trigger=budget).apply(messages, count_tokens=chat.tokens)
        return [chat.back(message) for message in messages]

    return run


# Google ADK


def _context_filter(history: History, scale: TokenWeights) -> Run:
    plugin = import_module("google.adk.plugins.context_filter_plugin").ContextFilterPlugin
    request = import_module("google.adk.models.llm_request").LlmRequest
    content = import_module("google.genai.types").Content
    body = thresher.emit(history, "gemini", body=True)
    whole = [_told_message(message, scale) for message in thresher.parse(body, "gemini")]
    contents = [content.model_validate(_without_media(row)) for row in body["contents"]]
    head, told = whole[: len(whole) - len(contents)], whole[len(whole) - len(contents) :]
    numbers = {id(one): number for number, one in enumerate(contents)}

    def kept(invocations: int) -> list[Told]:
        asked = request(contents=contents)
        keep = plugin(num_invocations_to_keep=invocations)
        asyncio.run(keep.before_model_callback(callback_context=None, llm_request=asked))
        return head + [told[numbers[id(one)]] for one in asked.contents]

    prompts = sum(one.role == "user" for one in told)
    options = [kept(number) for number in range(1, prompts + 1)] or [whole]

    def run(budget: int) -> list[Told]:
        fitting = (one for one in (whole, *reversed(options)) if sum(row.tokens for row in one) <= budget)
        return next(fitting, options[0])

    return run


def _told_message(message: Message, scale: TokenWeights) -> Told:
    """Convert one Gemini content. Ids are optional there: the parser has paired calls and results."""
    calls, results = (call.id for call in message.calls), (result.call_id for result in message.results)
    return Told(message.role, message.text, tuple(calls), tuple(results), scale.message(message))


def _without_media(row: Row) -> Row:
    """Remove media and signatures: the filter ignores them, and some recordings contain invalid ones."""
    parts = [
        {key: part[key] for key in ("text", "functionCall", "functionResponse") if key in part} for part in row["parts"]
    ]
    for part in parts:
        if "functionResponse" in part:
            part["functionResponse"] = {**part["functionResponse"], "parts": None}
    return row | {"parts": [part or {"text": ""} for part in parts]}


# Microsoft Agent Framework


class _Tokenizer:
    """Thresher's token counts for messages known by id; text of the framework is counted."""

    def __init__(self, told: Sequence[Told], scale: TokenWeights) -> None:
        self._told = told
        self._scale = scale

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a message in the framework's serialized form."""
        value = json.loads(text)
        name = str(value["message_id"])
        if name.isdigit():
            return self._told[int(name)].tokens
        words = "\n".join(str(piece.get("text", "")) for piece in value["contents"])
        return told_chat({"role": value["role"], "content": words}, self._scale).tokens


def _framework_message(row: Row, index: int) -> Any:
    framework = import_module("agent_framework")
    if row["role"] == "tool":
        words = content_text(row.get("content"))
        pieces = [framework.Content.from_function_result(row.get("tool_call_id", ""), result=words)]
    else:
        pieces = [*_framework_words(row), *_framework_calls(row)]
    return framework.Message(row["role"], pieces, message_id=str(index))


def _framework_words(row: Row) -> Iterator[Any]:
    make = import_module("agent_framework").Content
    content = row.get("content") or []
    pieces: list[Any] = [{"text": content}] if isinstance(content, str) else content
    for piece in pieces:
        if "image_url" in piece:
            yield make.from_uri(piece["image_url"]["url"], media_type="image/png")
        elif piece.get("text"):
            yield make.from_text(piece["text"])


def _framework_calls(row: Row) -> Iterator[Any]:
    make = import_module("agent_framework").Content
    for call in row.get("tool_calls") or ():
        inner = call.get("function") or call["custom"]
        arguments = inner.get("arguments", inner.get("input"))
        yield make.from_function_call(call.get("id", ""), inner["name"], arguments=arguments)


def _framework(history: History, scale: TokenWeights, *, window: bool) -> Run:
    framework = import_module("agent_framework")
    rows = chat_rows(history)
    told = [told_chat(row, scale) for row in rows]
    tokenizer = _Tokenizer(told, scale)

    def strategy(budget: int) -> Any:
        if window:
            return framework.ContextWindowCompactionStrategy(
                max_context_window_tokens=budget, max_output_tokens=0, tokenizer=tokenizer
            )
        collapse = framework.ToolResultCompactionStrategy()
        return framework.TokenBudgetComposedStrategy(token_budget=budget, tokenizer=tokenizer, strategies=[collapse])

    def back(message: Any) -> Told:
        if message.message_id.isdigit():
            return told[int(message.message_id)]
        return told_chat({"role": message.role, "content": message.text}, scale)

    def run(budget: int) -> list[Told]:
        messages = [_framework_message(row, index) for index, row in enumerate(rows)]
        kept = asyncio.run(framework.apply_compaction(messages, strategy=strategy(budget), tokenizer=tokenizer))
        return [back(message) for message in kept]

    return run


# litellm


def _litellm(history: History, scale: TokenWeights) -> Run:
    utils: Any = import_module("litellm.utils")
    rows = chat_rows(history)
    known: dict[Any, Told] = {}

    def told(row: Row) -> Told:
        content = row.get("content")
        words = content if isinstance(content, str | None) else json.dumps(content)
        calls = tuple(str(call.get("id", "")) for call in row.get("tool_calls") or ())
        key = (row["role"], words, calls, row.get("tool_call_id"))
        if key not in known:
            known[key] = told_chat(row, scale)
        return known[key]

    def run(budget: int) -> list[Told]:
        own = utils.token_counter
        utils.token_counter = lambda messages, **_: sum(told(row).tokens for row in messages)
        try:
            kept = utils.trim_messages(rows, max_tokens=budget)
        finally:
            utils.token_counter = own
        return [told(row) for row in kept]

    return run


PEERS = (
    Peer("langchain-core trim_messages", "langchain-core", _trim_messages),
    Peer('  with start_on="human"', "langchain-core", partial(_trim_messages, start_on="human")),
    Peer("langchain ClearToolUsesEdit", "langchain", _clear_tool_uses),
    Peer("google-adk ContextFilterPlugin", "google-adk", _context_filter),
    Peer("agent-framework context window", "agent-framework-core", partial(_framework, window=True)),
    Peer("agent-framework token budget", "agent-framework-core", partial(_framework, window=False)),
    Peer("litellm trim_messages", "litellm", _litellm),
)


def available() -> tuple[list[Peer], list[str]]:
    """Return the installed tools and the missing packages. Silence the tools' logs."""
    missing = sorted({peer.package for peer in PEERS if not installed(peer.package)})
    for name in ("agent_framework", "LiteLLM", "google_adk"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return [peer for peer in PEERS if peer.package not in missing], missing
