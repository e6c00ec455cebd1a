"""Ways to keep an agent's requests small, behind one shape: started once for a trace, then asked call by call.

A `Script` is a repaired history in rows (a message, or a tool result), with one piece for each part: its text and its
weight on Thresher's scale. Whoever keeps a row sends that row's own pieces, whatever its types can hold, so that
nobody is cheaper for what a conversion lost (thinking, pictures); only what was rewritten is weighed anew. Equal pieces
are one object, so two requests are compared by identity. All counts that a tool asks for are Thresher's.

What each remembers from call to call is what its library would:
- langchain edits a copy on every call and keeps none of it; openai-agents and headroom likewise;
- pydantic-ai-harness writes its edits into the run's history: it gets its own output back, with what is new and the
  size of the last request as the provider's usage;
- agent-framework leaves its marks on the messages, which stay the same objects.

The rest are plain rules, written down here: full history, the last so many messages, a window that falls from a high to
a low mark, masks of old results (SWE-agent's rule: all but the last n, moved every `polling` results), and Anthropic's
clearing of tool uses. That runs on the server and is told only in words: once as judged anew on every request from
the whole history, which is what the client sends, and once as the kinder reading, in which what was cleared stays so.
"""

import json
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from peers import Told, _framework_message, _langchain_messages, _Tokenizer, installed

import thresher
from thresher import History, Message
from thresher.model import Part, Place, Text, Thinking, ToolCall, ToolResult, part_text
from thresher.model.identity import content_ids
from thresher.replay.trace import block_text
from thresher.store import Store
from thresher.tokens import Scale
from thresher.window import Pace, Prices, Window

FULL = "full history"
OWN = "thresher"
BOUND = 60_000
"""The same where the modes for bound thinking are compared: small enough for emergencies in an open loop."""
EAGER = (2, 4)
WIDE = 140_000
"""The tokens that Thresher may send: 70 % of a window of 200,000, as it would be by itself."""
LOW = 5 / 12
"""Where a window with two marks falls to, as a share of the higher one: from 60k to 25k."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """One part as it is sent: its words and its weight. Equal pieces of a script are one object."""

    text: str
    tokens: int


Sent = list[Piece]
Ask = Callable[[int, float | None], Sent]
"""How many messages the request has and when it is made, to what is sent."""


@dataclass(frozen=True, eq=False)
class Row:
    """A message, a tool result, or all that a model said in one go."""

    message: int
    """The first that it is of."""
    role: str
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def chat(self) -> dict[str, Any]:
        """As OpenAI's chat message."""
        words = "\n".join(part_text(part) for part in self.parts if isinstance(part, Text | ToolResult))
        row: dict[str, Any] = {"role": self.role, "content": words}
        if self.role == "tool" and isinstance(self.parts[0], ToolResult):
            return row | {"tool_call_id": self.parts[0].call_id}
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _fields(call.arguments)}}
            for call in self.parts
            if isinstance(call, ToolCall)
        ]
        return row | ({"tool_calls": calls} if calls else {})


def _fields(arguments: str) -> str:
    """Arguments as the JSON object that most insist on: free text is its only field."""
    try:
        named = isinstance(json.loads(arguments), dict)
    except ValueError:
        named = False
    return arguments if named else json.dumps({"input": arguments})


class Script:
    """A trace, ready for everyone: its rows, and one piece for each text."""

    def __init__(self, history: History, scale: Scale, *, wire: str, model: str, store: Store) -> None:
        self.history = history
        self.scale = scale
        self.wire = wire
        """The wire format in which it was sent."""
        self.model = model
        self.store = store
        self._known: dict[tuple[str, bool], Piece] = {}
        self.tools = (Piece(history.tools, scale.tools(history.tools)),) if history.tools else ()
        self.rows = self._rows()
        ends = dict.fromkeys(range(len(history) + 1), 0)
        for row in self.rows:
            ends[row.message + 1] += 1
        self.stops = list(accumulate(ends.values()))
        """How many rows the first so many messages have."""
        self.results = [number for number, row in enumerate(self.rows) if row.role == "tool"]
        turns = {turn.start for turn in history.turns}
        self.safe = [n for n, m in enumerate(history) if n in turns or (m.role == "user" and not any(m.results))]
        """Messages that a request may begin with: no call before them waits for a result after them."""
        first = next((n for n, message in enumerate(history) if message.role == "user"), -1)
        self.head = [n for n, message in enumerate(history) if n == first or message.role == "system"]
        """System text and the first request."""
        self.weights = [sum(piece.tokens for piece in self.message(message)) for message in history]

    def message(self, message: Message) -> Sent:
        """The pieces of a message; the first carries what frames the message."""
        ids = content_ids(message)
        return [
            self._piece(name, part, first=not number)
            for number, (name, part) in enumerate(zip(ids, message.parts, strict=True))
        ]

    def _piece(self, name: str, part: Part, *, first: bool) -> Piece:
        found = self._known.get((name, first))
        if found is None:
            weight = self.scale.part(part) + self.scale.overhead * first
            found = self._known[name, first] = Piece(block_text(part), weight)
        return found

    def _rows(self) -> list[Row]:
        """One for each turn, each result and each other message: what a model said in one go is one message."""
        rows: list[Row] = []
        for number, message in enumerate(self.history):
            pairs = list(zip(message.parts, self.message(message), strict=True))
            rows += [Row(number, "tool", (part,), (piece,)) for part, piece in pairs if isinstance(part, ToolResult)]
            rest = [pair for pair in pairs if not isinstance(pair[0], ToolResult)]
            role = "user" if message.role == "tool" else message.role
            parts, pieces = tuple(part for part, _ in rest), tuple(piece for _, piece in rest)
            if role == "assistant" and rows and rows[-1].role == role:
                last = rows.pop()
                rows.append(Row(last.message, role, last.parts + parts, last.pieces + pieces))
            elif rest:
                rows.append(Row(number, role, parts, pieces))
        return rows

    def weight(self, place: Place) -> int:
        """What the part at a place weighs."""
        return self.scale.part(self.history.part(place))

    def rewritten(self, row: Row, words: str) -> tuple[Piece, ...]:
        """A row with other words in place of its own; what is no text in it stays."""
        first = row.pieces[0].tokens > self.scale.part(row.parts[0])
        old = row.parts[0]
        changed: Part = ToolResult(old.call_id, (Text(words),)) if isinstance(old, ToolResult) else Text(words)
        kept = [p for part, p in zip(row.parts, row.pieces, strict=True) if not isinstance(part, Text | ToolResult)]
        return self._piece(f"{type(changed).__name__} {words}", changed, first=first), *kept

    @property
    def names(self) -> dict[str, str]:
        """The tool's name by the id of a call."""
        return {call.id: call.name for message in self.history for call in message.calls}


class LoopPeer(NamedTuple):
    """A way, the package it comes in (empty: a rule written down here), and how it starts with a trace."""

    name: str
    package: str
    start: Callable[[Script], Ask]
    price: str = ""
    """The price list that it was told of; empty: it asks for none."""


# Plain rules


def _whole(script: Script) -> Ask:
    flat = list(chain.from_iterable(row.pieces for row in script.rows))
    ends = list(accumulate((len(row.pieces) for row in script.rows), initial=0))
    return lambda stop, _: [*script.tools, *flat[: ends[script.stops[stop]]]]


def _from(script: Script, start: int, stop: int) -> Sent:
    """The head and the messages from one on."""
    head = [row for number in script.head if number < start for row in _rows_of(script, number, number + 1)]
    return [*script.tools, *chain.from_iterable(row.pieces for row in (*head, *_rows_of(script, start, stop)))]


def _rows_of(script: Script, start: int, stop: int) -> list[Row]:
    return script.rows[script.stops[start] : script.stops[stop]]


def _last_messages(script: Script, *, keep: int) -> Ask:
    def ask(stop: int, _: float | None) -> Sent:
        fitting = [number for number in script.safe if number < stop]
        start = next((number for number in fitting if number >= stop - keep), fitting[-1] if fitting else 0)
        return _from(script, start if stop > keep else 0, stop)

    return ask


def _falling_window(script: Script, *, high: int, low: int) -> Ask:
    start = 0
    tools = sum(piece.tokens for piece in script.tools)
    sums = list(accumulate(script.weights, initial=0))

    def weight(begin: int, stop: int) -> int:
        return tools + sums[stop] - sums[begin] + sum(script.weights[n] for n in script.head if n < begin)

    def ask(stop: int, _: float | None) -> Sent:
        nonlocal start
        if weight(start, stop) > high:
            fitting = [number for number in script.safe if start <= number < stop]
            start = next((number for number in fitting if weight(number, stop) <= low), fitting[-1])
        return _from(script, start, stop)

    return ask


class _Clearing:
    """What is shown of each row while results are cleared one after another, oldest first."""

    def __init__(self, script: Script, note: Callable[[Row], str]) -> None:
        self.script = script
        self._note = note
        self._shown = [row.pieces for row in script.rows]
        self.cleared = 0
        """How many results are."""

    def sent(self, stop: int) -> Sent:
        """What the first so many messages are now."""
        rows = self._shown[: self.script.stops[stop]]
        return [*self.script.tools, *chain.from_iterable(rows)]

    def there(self, stop: int) -> int:
        """How many results there are."""
        return bisect_left(self.script.results, self.script.stops[stop])

    def gain(self, count: int, since: int) -> int:
        """What it saves to clear so many results, those from one on counted."""
        rows = [self.script.rows[number] for number in self.script.results[since:count]]
        return sum(row.tokens - self._stub(row)[0].tokens for row in rows)

    def clear(self, count: int) -> None:
        """Clear so many in all; what is cleared stays so."""
        for number in self.script.results[self.cleared : count]:
            self._shown[number] = self._stub(self.script.rows[number])
        self.cleared = max(self.cleared, count)

    def _stub(self, row: Row) -> tuple[Piece, ...]:
        return self.script.rewritten(row, self._note(row))


def _masked(script: Script, *, keep: int, polling: int) -> Ask:
    def note(row: Row) -> str:
        return f"Old environment output: ({len(row.pieces[0].text.splitlines())} lines omitted)"

    clearing = _Clearing(script, note)

    def ask(stop: int, _: float | None) -> Sent:
        clearing.clear(max(0, clearing.there(stop) // polling * polling - keep))
        return clearing.sent(stop)

    return ask


def _clear_tool_uses(script: Script, *, trigger: int, at_least: int = 0, stays: bool = False, keep: int = 3) -> Ask:
    clearing = _Clearing(script, lambda _: "[cleared to save context]")

    def ask(stop: int, _: float | None) -> Sent:
        sent = clearing.sent(stop)
        tokens = sum(piece.tokens for piece in sent) + (0 if stays else clearing.gain(clearing.cleared, 0))
        wanted = clearing.there(stop) - keep
        if tokens > trigger and clearing.gain(wanted, clearing.cleared if stays else 0) >= max(1, at_least):
            clearing.clear(wanted)
            return clearing.sent(stop)
        return sent

    return ask


# LangChain


def _langchain(script: Script, *, trigger: int) -> Ask:
    edit = import_module("langchain.agents.middleware.context_editing").ClearToolUsesEdit(trigger=trigger)
    messages = _langchain_messages([row.chat for row in script.rows])

    def pieces(message: Any) -> tuple[Piece, ...]:
        number = int(message.id)
        row = script.rows[number]
        return row.pieces if message is messages[number] else script.rewritten(row, message.content)

    def weight(shown: Sequence[Any]) -> int:
        return sum(piece.tokens for message in shown for piece in pieces(message))

    def ask(stop: int, _: float | None) -> Sent:
        shown = messages[: script.stops[stop]]
        edit.apply(shown, count_tokens=weight)
        return [*script.tools, *chain.from_iterable(map(pieces, shown))]

    return ask


# Pydantic AI


class _PydanticRun:
    """The messages of a run in Pydantic AI's types, grown by what is new; its parts are known by identity."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._types = import_module("pydantic_ai.messages")
        self._usage = import_module("pydantic_ai.usage").RequestUsage
        self._names = script.names
        self._pieces: dict[int, tuple[Any, Piece]] = {}
        self._rows = {row.parts[0].call_id: row for row in script.rows if isinstance(row.parts[0], ToolResult)}
        self.messages: list[Any] = []
        self._seen = 0

    def grow(self, stop: int, tokens: int) -> None:
        """Take in the messages up to one; the first answer among them was to a request of so many tokens."""
        run: list[Row] = []
        for row in _rows_of(self._script, self._seen, stop):
            if run and (row.role == "assistant") != (run[0].role == "assistant"):
                self._add(run, tokens)
                run = []
            run.append(row)
        if run:
            self._add(run, tokens)
        self._seen = stop

    def _add(self, rows: Sequence[Row], tokens: int) -> None:
        parts = [
            self._part(row, part, piece) for row in rows for part, piece in zip(row.parts, row.pieces, strict=True)
        ]
        if rows[0].role == "assistant":
            output = sum(row.tokens for row in rows)
            usage = self._usage(input_tokens=tokens, output_tokens=output)
            self.messages.append(self._types.ModelResponse(parts=parts, usage=usage))
        else:
            self.messages.append(self._types.ModelRequest(parts=parts))

    def _part(self, row: Row, part: Part, piece: Piece) -> Any:
        made = self._made(row, part)
        self._pieces[id(made)] = (made, piece)
        return made

    def _made(self, row: Row, part: Part) -> Any:
        types = self._types
        if isinstance(part, ToolResult):
            name = self._names.get(part.call_id, "tool")
            return types.ToolReturnPart(tool_name=name, content=part.text, tool_call_id=part.call_id)
        if isinstance(part, ToolCall):
            return types.ToolCallPart(tool_name=part.name, args=part.arguments, tool_call_id=part.id)
        if isinstance(part, Thinking):
            return types.ThinkingPart(content=part.text)
        if row.role == "assistant":
            return types.TextPart(content=part_text(part))
        return (types.SystemPromptPart if row.role == "system" else types.UserPromptPart)(content=part_text(part))

    def piece(self, part: Any) -> Piece:
        """What a part is sent as; a result that was rewritten is weighed anew."""
        known = self._pieces.get(id(part))
        if known is not None:
            return known[1]
        row = self._rows.get(getattr(part, "tool_call_id", ""))
        found = self._script.rewritten(row, str(part.content))[0] if row else self._added(part)
        self._pieces[id(part)] = (part, found)
        return found

    def _added(self, part: Any) -> Piece:
        return Piece(str(part.content), self._script.scale.text(str(part.content)))


def _pydantic(script: Script, *, make: Callable[[Any, Callable[[str], int]], Any]) -> Ask:
    memo: dict[str, int] = {}

    def count(text: str) -> int:
        if text not in memo:
            memo[text] = script.scale.text(text)
        return memo[text]

    models, usage = import_module("pydantic_ai.models"), import_module("pydantic_ai.usage")
    model = import_module("pydantic_ai.models.test").TestModel()
    context = import_module("pydantic_ai.tools").RunContext
    strategy = make(import_module("pydantic_ai_harness.compaction"), count)
    run, tokens = _PydanticRun(script), 0

    def ask(stop: int, _: float | None) -> Sent:
        nonlocal tokens
        run.grow(stop, tokens)
        here = context(deps=None, model=model, usage=usage.RunUsage(), messages=run.messages)
        asked = models.ModelRequestContext(
            model=model,
            messages=list(run.messages),
            model_settings=None,
            model_request_parameters=models.ModelRequestParameters(),
        )
        told = _result_of(strategy.before_model_request(here, asked))
        sent = [*script.tools, *(run.piece(part) for message in told.messages for part in message.parts)]
        tokens = sum(piece.tokens for piece in sent)
        return sent

    return ask


def _result_of(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that never waits comes to, without an event loop for each call."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a strategy that needs no model waited for something")


# Microsoft Agent Framework


def _framework(script: Script, *, make: Callable[[Any, Any], Any]) -> Ask:
    framework = import_module("agent_framework")
    tokenizer = _Tokenizer([Told(row.role, "", tokens=row.tokens) for row in script.rows], script.scale)
    strategy = make(framework, tokenizer)
    messages = [_framework_message(row.chat, number) for number, row in enumerate(script.rows)]
    kept: list[Any] = []
    seen = 0
    written: dict[str, Piece] = {}

    def pieces(message: Any) -> Iterable[Piece]:
        if message.message_id.isdigit():
            return script.rows[int(message.message_id)].pieces
        if message.text not in written:
            written[message.text] = Piece(message.text, script.scale.overhead + script.scale.text(message.text))
        return (written[message.text],)

    def ask(stop: int, _: float | None) -> Sent:
        nonlocal seen
        kept.extend(messages[seen : script.stops[stop]])
        seen = script.stops[stop]
        told = _result_of(framework.apply_compaction(kept, strategy=strategy, tokenizer=tokenizer))
        return [*script.tools, *chain.from_iterable(map(pieces, told))]

    return ask


# OpenAI Agents


def _trimmer(script: Script) -> Ask:
    trim = import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer()
    config = import_module("agents.run_config")
    items: list[tuple[dict[str, Any], Row, Piece]] = []
    ends = [0]
    for row in script.rows:
        items += [(_item(row, part), row, piece) for part, piece in zip(row.parts, row.pieces, strict=True)]
        ends.append(len(items))

    def ask(stop: int, _: float | None) -> Sent:
        whole = items[: ends[script.stops[stop]]]
        asked = config.ModelInputData(input=[item for item, _, _ in whole], instructions=None)
        told = trim(config.CallModelData(model_data=asked, agent=None, context=None)).input
        return [
            *script.tools,
            *(
                piece if new is item else script.rewritten(row, new["output"])[0]
                for new, (item, row, piece) in zip(told, whole, strict=True)
            ),
        ]

    return ask


def _item(row: Row, part: Part) -> dict[str, Any]:
    if isinstance(part, ToolResult):
        return {"type": "function_call_output", "call_id": part.call_id, "output": part.text}
    if isinstance(part, ToolCall):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "summary": []}
    return {"role": row.role, "content": part_text(part)}


# headroom


def _headroom(script: Script, *, frozen: bool) -> Ask:
    """As its page shows it; `frozen` names the messages of the last request, which it then leaves as they were."""
    compress = import_module("headroom").compress
    original = [row.chat for row in script.rows]
    shown: list[dict[str, Any]] = []

    def pieces(number: int, row: dict[str, Any]) -> tuple[Piece, ...]:
        if row["content"] == original[number]["content"]:
            return script.rows[number].pieces
        return script.rewritten(script.rows[number], row["content"])

    def ask(stop: int, _: float | None) -> Sent:
        nonlocal shown
        known = len(shown) if frozen else 0
        asked = [dict(row) for row in (*shown[:known], *original[known : script.stops[stop]])]
        told = compress(asked, model=script.model, kompress_model="disabled", frozen_message_count=known)
        shown = told.messages
        return [*script.tools, *chain.from_iterable(pieces(number, row) for number, row in enumerate(shown))]

    return ask


# Thresher


def _thresher(script: Script, *, budget: int, pace: Pace, prices: Prices, thinking: Any = None) -> Ask:
    """By its own door: a request body in, the same shape out."""
    window = Window(
        budget=budget,
        model=script.model,
        prices=prices,
        pace=pace,
        thinking=thinking,
        store=script.store,
        counter=script.scale.counter.name,
        format=script.wire,
        marks="leave",
    )
    whole = thresher.emit(script.history, script.wire, body=True)
    key = "input" if "input" in whole else "messages"
    beside = len(script.history) - len(whole[key])
    """Messages that the format holds beside the others: system text."""

    def ask(stop: int, at: float | None) -> Sent:
        told = window.fit({**whole, key: whole[key][: stop - beside]}, at=at)
        messages = thresher.parse(told, script.wire).messages
        return [*script.tools, *chain.from_iterable(map(script.message, messages))]

    return ask


# All of them


def _k(tokens: int) -> str:
    return f"{round(tokens / 1000)}k"


def rules(budget: int) -> list[LoopPeer]:
    """Plain rules; the first is what all others are measured against."""
    low = round(budget * LOW)
    clear = partial(_clear_tool_uses, trigger=100_000)
    return [
        LoopPeer(FULL, "", _whole),
        LoopPeer("last 20 messages", "", partial(_last_messages, keep=20)),
        LoopPeer("last 40 messages", "", partial(_last_messages, keep=40)),
        LoopPeer(f"window {_k(budget)} to {_k(low)}", "", partial(_falling_window, high=budget, low=low)),
        LoopPeer("mask all but 10 results", "", partial(_masked, keep=10, polling=1)),
        LoopPeer("mask, in batches of 25", "", partial(_masked, keep=10, polling=25)),
        LoopPeer("clear_tool_uses 100k", "", clear),
        LoopPeer("clear_tool_uses 100k, 20k at least", "", partial(clear, at_least=20_000)),
        LoopPeer("clear_tool_uses 100k, sticky", "", partial(clear, at_least=20_000, stays=True)),
        LoopPeer(
            f"clear_tool_uses {_k(budget)}, sticky",
            "",
            partial(_clear_tool_uses, trigger=budget, at_least=20_000, stays=True),
        ),
    ]


def libraries(budget: int) -> list[LoopPeer]:
    """What others ship, at their defaults where those fit and at the budget."""
    low = round(budget * LOW)
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
        LoopPeer("langchain ClearToolUsesEdit 100k", "langchain", partial(_langchain, trigger=100_000)),
        LoopPeer(f"langchain ClearToolUsesEdit {_k(budget)}", "langchain", partial(_langchain, trigger=budget)),
        LoopPeer("pydantic-ai ClearToolResults", harness, partial(_pydantic, make=clear)),
        LoopPeer("pydantic-ai SlidingWindow", harness, partial(_pydantic, make=slide)),
        LoopPeer("pydantic-ai SlidingWindow 80 to 40", harness, partial(_pydantic, make=slide_messages)),
        LoopPeer("pydantic-ai TieredCompaction", harness, partial(_pydantic, make=tiers)),
        LoopPeer("agent-framework Truncation", framework, partial(_framework, make=truncate)),
        LoopPeer("agent-framework ContextWindow", framework, partial(_framework, make=context)),
        LoopPeer("openai-agents ToolOutputTrimmer", "openai-agents", _trimmer),
        LoopPeer("headroom compress", "headroom-ai", partial(_headroom, frozen=False)),
        LoopPeer("headroom compress, frozen prefix", "headroom-ai", partial(_headroom, frozen=True)),
    ]


def windows(budget: int, kept: Sequence[int], prices: Mapping[str, Prices]) -> list[LoopPeer]:
    """Thresher with so many results kept, at each price list; and with the least patience that pays."""
    paces = [(f"{OWN} keep {keep}", Pace(keep=keep)) for keep in kept]
    paces += [(f"{OWN} keep {keep}, eager", Pace(keep=keep, patience=1)) for keep in EAGER if kept]
    return [
        LoopPeer(name, "", partial(_thresher, budget=budget, pace=pace, prices=told), price)
        for name, pace in paces
        for price, told in prices.items()
    ]


def modes(budget: int, prices: Mapping[str, Prices]) -> list[LoopPeer]:
    """Thresher as it is by itself, for a model whose thinking is bound to what stands before it, in each mode."""
    return [
        LoopPeer(
            f"{OWN}, {rule}", "", partial(_thresher, budget=budget, pace=Pace(), prices=told, thinking=rule), price
        )
        for rule in ("append_only", "strip_after_edit", "drop_block")
        for price, told in prices.items()
        if price == "anthropic"
    ]


def settle_in(folder: str) -> None:
    """Let what the others write go into a folder, one for each process, and let them call nobody."""
    os.environ |= {"HEADROOM_OFFLINE": "1", "HEADROOM_TELEMETRY": "off", "HEADROOM_BEACON": "off"}
    os.environ["HEADROOM_WORKSPACE_DIR"] = str(Path(folder) / str(os.getpid()))


def available(budget: int, settings: Sequence[int], prices: Mapping[str, Prices]) -> tuple[list[LoopPeer], list[str]]:
    """All that can run here, and the packages that cannot; their logs are turned off."""
    found = [*rules(budget), *libraries(budget), *windows(WIDE, settings, prices), *modes(BOUND, prices)]
    missing = sorted({one.package for one in found if one.package and not installed(one.package)})
    for name in ("agent_framework", "headroom", "openai.agents", "LiteLLM"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return [one for one in found if one.package not in missing], missing
