"""Strategies from other libraries, in addition to those in `thresher.replay`.

Each is a `Strategy` that gets a growing `ReplayConversation` at every call. A strategy that keeps a row sends the row's
own pieces; only rewritten text is counted again. All token counts that a tool asks for are Thresher's. A library is
imported when its strategy starts.

Each keeps the state that its library keeps between calls:
- openai-agents and headroom edit a copy on every call and keep no state, like langchain;
- pydantic-ai-harness writes its edits into the history of the run: it gets its own output again, with the new messages
  and with the size of the last request as the provider's usage;
- agent-framework sets marks on the messages, which remain the same objects.

The others are plain rules: the full history, the last n messages, a window that shrinks from a high to a low mark,
masks of old results (SWE-agent's rule), and Anthropic's clearing of tool uses in three variants
(`thresher.replay.strategies.peer_rules`).
"""

import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs
from peers import Told, _framework_message, _Tokenizer, installed

import thresher
from thresher.model import Part, Thinking, ToolCall, ToolResult, part_text
from thresher.replay import Rates, ResidencyChecker
from thresher.replay.conversation import ConversationRow, ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.simulate import Strategy
from thresher.replay.strategies.baselines import LOW_WATER_SHARE, full_history_strategy, newest_batched_strategy
from thresher.replay.strategies.peer_libraries import langchain_clear_strategy, langchain_trim_strategy, to_chat_message
from thresher.replay.strategies.peer_rules import (
    clear_tool_uses_sticky_strategy,
    clear_tool_uses_strategy,
    cline_strategy,
    opencode_strategy,
    openhands_strategy,
    swe_agent_strategy,
)
from thresher.replay.strategies.window import window_strategy
from thresher.window import Prices, Thresholds, Window

FULL = "full history"
OWN = "thresher"
WIDE = 140_000
"""Thresher's token budget: 70 % of a context window of 200,000, which is its default."""
BOUND = 60_000
"""Token budget of the comparison of modes for bound thinking: small enough for emergencies in an open loop."""


class LoopPeer(NamedTuple):
    """A strategy and its package; empty for this package."""

    strategy: Strategy
    package: str = ""

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.strategy.name


# Last messages


def _last_messages(conversation: ReplayConversation, _: ResidencyChecker, *, keep: int) -> RequestBuilder:
    def build_request(_: float | None) -> list[RequestPiece]:
        stop = len(conversation.messages)
        start = next(
            (number for number in conversation.safe_starts if number >= stop - keep),
            conversation.safe_starts[-1] if conversation.safe_starts else 0,
        )
        return conversation.pieces_since(start if stop > keep else 0)

    return build_request


# Pydantic AI


class _PydanticRun:
    """The messages of a Pydantic AI run. Their parts are recognized by identity."""

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self._types = import_module("pydantic_ai.messages")
        self._usage = import_module("pydantic_ai.usage").RequestUsage
        self._pieces: dict[int, tuple[Any, RequestPiece]] = {}
        self._rows: dict[str, ConversationRow] = {}
        """Results by call id."""
        self.messages: list[Any] = []
        self._seen = 0

    def grow(self, tokens: int) -> None:
        """Add the new messages. The first response in them was to a request of that many tokens."""
        run: list[ConversationRow] = []
        for row in self._conversation.rows[self._seen :]:
            if isinstance(row.parts[0], ToolResult):
                self._rows[row.parts[0].call_id] = row
            if run and (row.role == "assistant") != (run[0].role == "assistant"):
                self._add(run, tokens)
                run = []
            run.append(row)
        if run:
            self._add(run, tokens)
        self._seen = len(self._conversation.rows)

    def _add(self, rows: Sequence[ConversationRow], tokens: int) -> None:
        parts = [
            self._part(row, part, piece) for row in rows for part, piece in zip(row.parts, row.pieces, strict=True)
        ]
        if rows[0].role == "assistant":
            output = sum(row.tokens for row in rows)
            usage = self._usage(input_tokens=tokens, output_tokens=output)
            self.messages.append(self._types.ModelResponse(parts=parts, usage=usage))
        else:
            self.messages.append(self._types.ModelRequest(parts=parts))

    def _part(self, row: ConversationRow, part: Part, piece: RequestPiece) -> Any:
        made = self._made(row, part)
        self._pieces[id(made)] = (made, piece)
        return made

    def _made(self, row: ConversationRow, part: Part) -> Any:
        types = self._types
        if isinstance(part, ToolResult):
            name = self._conversation.tool_names.get(part.call_id, "tool")
            return types.ToolReturnPart(tool_name=name, content=part.text, tool_call_id=part.call_id)
        if isinstance(part, ToolCall):
            return types.ToolCallPart(tool_name=part.name, args=part.arguments, tool_call_id=part.id)
        if isinstance(part, Thinking):
            return types.ThinkingPart(content=part.text)
        if row.role == "assistant":
            return types.TextPart(content=part_text(part))
        return (types.SystemPromptPart if row.role == "system" else types.UserPromptPart)(content=part_text(part))

    def piece(self, part: Any) -> RequestPiece:
        """Return the piece of a part; a rewritten result is counted again."""
        known = self._pieces.get(id(part))
        if known is not None:
            return known[1]
        row = self._rows.get(getattr(part, "tool_call_id", ""))
        found = self._conversation.rewrite_row(row, str(part.content))[0] if row else self._added(part)
        self._pieces[id(part)] = (part, found)
        return found

    def _added(self, part: Any) -> RequestPiece:
        return RequestPiece(str(part.content), self._conversation.token_weights.text(str(part.content)))


def _pydantic(
    conversation: ReplayConversation, _: ResidencyChecker, *, make: Callable[[Any, Callable[[str], int]], Any]
) -> RequestBuilder:
    memo: dict[str, int] = {}

    def count(text: str) -> int:
        if text not in memo:
            memo[text] = conversation.token_weights.text(text)
        return memo[text]

    models, usage = import_module("pydantic_ai.models"), import_module("pydantic_ai.usage")
    model = import_module("pydantic_ai.models.test").TestModel()
    context = import_module("pydantic_ai.tools").RunContext
    strategy = make(import_module("pydantic_ai_harness.compaction"), count)
    run, tokens = _PydanticRun(conversation), 0

    def build_request(_: float | None) -> list[RequestPiece]:
        nonlocal tokens
        run.grow(tokens)
        here = context(deps=None, model=model, usage=usage.RunUsage(), messages=run.messages)
        asked = models.ModelRequestContext(
            model=model,
            messages=list(run.messages),
            model_settings=None,
            model_request_parameters=models.ModelRequestParameters(),
        )
        told = _result_of(strategy.before_model_request(here, asked))
        sent = [*conversation.tool_pieces, *(run.piece(part) for message in told.messages for part in message.parts)]
        tokens = sum(piece.tokens for piece in sent)
        return sent

    return build_request


def _result_of(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, without an event loop per call."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a strategy that needs no model waited for something")


# Microsoft Agent Framework


def _framework(
    conversation: ReplayConversation, _: ResidencyChecker, *, make: Callable[[Any, Any], Any]
) -> RequestBuilder:
    framework = import_module("agent_framework")
    weights: list[Told] = []
    tokenizer = _Tokenizer(weights, conversation.token_weights)
    strategy = make(framework, tokenizer)
    kept: list[Any] = []
    written: dict[str, RequestPiece] = {}

    def pieces(message: Any) -> Iterable[RequestPiece]:
        if message.message_id.isdigit():
            return conversation.rows[int(message.message_id)].pieces
        if message.text not in written:
            written[message.text] = RequestPiece(
                message.text,
                conversation.token_weights.message_overhead + conversation.token_weights.text(message.text),
            )
        return (written[message.text],)

    def build_request(_: float | None) -> list[RequestPiece]:
        for number, row in enumerate(conversation.rows[len(weights) :], len(weights)):
            weights.append(Told(row.role, "", tokens=row.tokens))
            kept.append(_framework_message(to_chat_message(row), number))
        told = _result_of(framework.apply_compaction(kept, strategy=strategy, tokenizer=tokenizer))
        return [*conversation.tool_pieces, *chain.from_iterable(map(pieces, told))]

    return build_request


# OpenAI Agents


def _trimmer(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
    trim = import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer()
    config = import_module("agents.run_config")
    items: list[tuple[dict[str, Any], ConversationRow, RequestPiece]] = []
    seen = 0

    def build_request(_: float | None) -> list[RequestPiece]:
        nonlocal seen
        for row in conversation.rows[seen:]:
            items.extend((_item(row, part), row, piece) for part, piece in zip(row.parts, row.pieces, strict=True))
        seen = len(conversation.rows)
        asked = config.ModelInputData(input=[item for item, _, _ in items], instructions=None)
        told = trim(config.CallModelData(model_data=asked, agent=None, context=None)).input
        return [
            *conversation.tool_pieces,
            *(
                piece if new is item else conversation.rewrite_row(row, new["output"])[0]
                for new, (item, row, piece) in zip(told, items, strict=True)
            ),
        ]

    return build_request


def _item(row: ConversationRow, part: Part) -> dict[str, Any]:
    if isinstance(part, ToolResult):
        return {"type": "function_call_output", "call_id": part.call_id, "output": part.text}
    if isinstance(part, ToolCall):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "summary": []}
    return {"role": row.role, "content": part_text(part)}


# headroom


def _headroom(conversation: ReplayConversation, _: ResidencyChecker, *, frozen: bool) -> RequestBuilder:
    """Run it as documented. `frozen` marks the messages of the last request, which it then keeps unchanged."""
    compress = import_module("headroom").compress
    original: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []

    def pieces(number: int, row: dict[str, Any]) -> tuple[RequestPiece, ...]:
        if row["content"] == original[number]["content"]:
            return conversation.rows[number].pieces
        return conversation.rewrite_row(conversation.rows[number], row["content"])

    def build_request(_: float | None) -> list[RequestPiece]:
        nonlocal shown
        original.extend(to_chat_message(row) for row in conversation.rows[len(original) :])
        known = len(shown) if frozen else 0
        asked = [dict(row) for row in (*shown[:known], *original[known:])]
        model = conversation.recording.model
        told = compress(asked, model=model, kompress_model="disabled", frozen_message_count=known)
        shown = told.messages
        return [
            *conversation.tool_pieces,
            *chain.from_iterable(pieces(number, row) for number, row in enumerate(shown)),
        ]

    return build_request


# Thresher with thinking that is bound to its prefix


def _bound(conversation: ReplayConversation, _: ResidencyChecker, *, rates: Rates, thinking: Any) -> RequestBuilder:
    recording = conversation.recording
    window = Window(
        budget=BOUND,
        model=recording.model or None,
        prices=Prices(rates.input, rates.read, rates.write, rates.ttl, rates.minimum),
        thinking=thinking,
        store=conversation.store,
        counter=recording.token_weights.counter.name,
        format=recording.dialect,
        cache_breakpoints="leave",
    )

    def build_request(at: float | None) -> list[RequestPiece]:
        told = window.fit({**recording.body, recording.rows_field: list(conversation.dialect_rows)}, at=at)
        messages = thresher.parse(told, recording.dialect).messages
        return [*conversation.tool_pieces, *chain.from_iterable(map(conversation.make_message_pieces, messages))]

    return build_request


# All strategies


def _k(tokens: int) -> str:
    return f"{round(tokens / 1000)}k"


def _named(name: str, strategy: Strategy) -> LoopPeer:
    return LoopPeer(structs.replace(strategy, name=name))


def rules(budget: int) -> list[LoopPeer]:
    """Return the plain rules. The first one is the reference for all others."""
    window = f"window {_k(budget)} to {_k(round(budget * LOW_WATER_SHARE))}"
    return [
        _named(FULL, full_history_strategy()),
        LoopPeer(Strategy("last 20 messages", partial(_last_messages, keep=20))),
        LoopPeer(Strategy("last 40 messages", partial(_last_messages, keep=40))),
        _named(window, newest_batched_strategy(budget)),
        _named("mask all but 10 results", swe_agent_strategy(30_000)),
        _named("mask, in batches of 25", swe_agent_strategy(30_000, polling=25)),
        _named("openhands mask, 100 events", openhands_strategy(150_000)),
        _named("opencode prune", opencode_strategy(60_000)),
        _named(f"cline {_k(budget)}", cline_strategy(budget)),
        _named("clear_tool_uses 100k", clear_tool_uses_strategy(100_000)),
        _named("clear_tool_uses 100k, 20k at least", clear_tool_uses_strategy(100_000, at_least=20_000)),
        _named("clear_tool_uses 100k, sticky", clear_tool_uses_sticky_strategy(100_000)),
        _named(f"clear_tool_uses {_k(budget)}, sticky", clear_tool_uses_sticky_strategy(budget, at_least=20_000)),
    ]


def libraries(budget: int) -> list[LoopPeer]:
    """Return the strategies of other libraries, with their defaults if those fit and with the budget."""
    low = round(budget * LOW_WATER_SHARE)
    harness, framework = "pydantic-ai-harness", "agent-framework-core"

    def clear(ours: Any, count: Any, trigger: int = budget) -> Any:
        return ours.ClearToolResults(max_tokens=trigger, tokenizer=count)

    def slide(ours: Any, count: Any) -> Any:
        return ours.SlidingWindowCompaction(max_tokens=budget, keep_tokens=low, tokenizer=count)

    def slide_messages(ours: Any, count: Any) -> Any:
        return ours.SlidingWindowCompaction(max_messages=80, keep_messages=40, tokenizer=count)

    def tiers(ours: Any, count: Any) -> Any:
        steps = [clear(ours, count, 1), slide(ours, count)]
        return ours.TieredCompaction(tiers=steps, target_tokens=budget, tokenizer=count)

    def truncate(ours: Any, count: Any) -> Any:
        return ours.TruncationStrategy(max_n=budget, compact_to=low, tokenizer=count, preserve_first_user_group=True)

    def context(ours: Any, count: Any) -> Any:
        return ours.ContextWindowCompactionStrategy(
            max_context_window_tokens=2 * budget, max_output_tokens=0, tokenizer=count, preserve_first_user_group=True
        )

    return [
        *_langchain(budget),
        LoopPeer(Strategy("pydantic-ai ClearToolResults", partial(_pydantic, make=clear)), harness),
        LoopPeer(Strategy("pydantic-ai SlidingWindow", partial(_pydantic, make=slide)), harness),
        LoopPeer(Strategy("pydantic-ai SlidingWindow 80 to 40", partial(_pydantic, make=slide_messages)), harness),
        LoopPeer(Strategy("pydantic-ai TieredCompaction", partial(_pydantic, make=tiers)), harness),
        LoopPeer(Strategy("agent-framework Truncation", partial(_framework, make=truncate)), framework),
        LoopPeer(Strategy("agent-framework ContextWindow", partial(_framework, make=context)), framework),
        LoopPeer(Strategy("openai-agents ToolOutputTrimmer", _trimmer), "openai-agents"),
        LoopPeer(Strategy("headroom compress", partial(_headroom, frozen=False)), "headroom-ai"),
        LoopPeer(Strategy("headroom compress, frozen prefix", partial(_headroom, frozen=True)), "headroom-ai"),
    ]


def _langchain(budget: int) -> list[LoopPeer]:
    """Return LangChain's strategies. They are created when they start, because that fails without LangChain."""
    ways = [
        ("langchain ClearToolUsesEdit 100k", langchain_clear_strategy, 100_000),
        (f"langchain ClearToolUsesEdit {_k(budget)}", langchain_clear_strategy, budget),
        (f"langchain trim_messages {_k(budget)}", langchain_trim_strategy, budget),
    ]
    return [LoopPeer(Strategy(name, _made_late(make, at)), "langchain") for name, make, at in ways]


def _made_late(
    make: Callable[[int], Strategy], budget: int
) -> Callable[[ReplayConversation, ResidencyChecker], RequestBuilder]:
    return lambda conversation, checker: make(budget).start(conversation, checker)


def windows(ages: Sequence[int], rates: Rates) -> list[LoopPeer]:
    """Return Thresher with its defaults, and with reads kept for that many calls."""
    paces = [(OWN, Thresholds())] if ages else []
    paces += [(f"{OWN} age {age}", Thresholds(keep_calls=age)) for age in ages]
    return [LoopPeer(window_strategy("auto", WIDE, rates, name=name, thresholds=pace)) for name, pace in paces]


def modes(rates: Rates) -> list[LoopPeer]:
    """Return Thresher in each mode for models that bind thinking to its prefix."""
    return [
        LoopPeer(Strategy(f"{OWN}, {rule}", partial(_bound, rates=rates, thinking=rule)))
        for rule in ("append_only", "strip_after_edit", "drop_block")
    ]


def settle_in(folder: str) -> None:
    """Let libraries write into one folder per process, and block their network access."""
    os.environ |= {"HEADROOM_OFFLINE": "1", "HEADROOM_TELEMETRY": "off", "HEADROOM_BEACON": "off"}
    os.environ["HEADROOM_WORKSPACE_DIR"] = str(Path(folder) / str(os.getpid()))


def available(budget: int) -> tuple[list[LoopPeer], list[str]]:
    """Return the strategies that can run here and the missing packages. Silence the libraries' logs."""
    found = [*rules(budget), *libraries(budget)]
    missing = sorted({one.package for one in found if one.package and not installed(one.package)})
    for name in ("agent_framework", "headroom", "openai.agents", "LiteLLM"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return [one for one in found if one.package not in missing], missing
