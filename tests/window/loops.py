"""Simulated agent loops for window tests: conversations in each dialect, call by call, checked against the laws.

A conversation consists of beats, each a prompt or a model turn, so one conversation can be encoded in all four
dialects. `Watched` is a window that checks the laws on every request and returns the output of the window.
"""

import json
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import oracle
import working
from thresher.dialects import parse
from thresher.dialects.cache_control import strip_cache_breakpoints
from thresher.edits import check, repair
from thresher.edits.placeholder import find_placeholder_ids
from thresher.edits.repair_history import RepairError
from thresher.model import History, Part, Thinking, ToolCall, ToolResult, Unknown, part_text
from thresher.model.harness_text import extract_human_text
from thresher.store import ContentStore, InMemoryContentStore, StoreError, exact_id, get_restorable_text
from thresher.tokens import default_token_weights
from thresher.window import Ledger, Prices, Thresholds, Window
from working import Step

Json = Any
Rows = list[Json]
Bytes = tuple[str, list[str]]
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini")
KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}
PROMPT = ("system", "tools", "instructions", "systemInstruction")
SCALE = default_token_weights(counter="estimate")
EAGER = Thresholds(keep_calls=1, min_saving=10, min_expected_calls=5, patience=0)
"""Replans as often as possible."""
IDLE = Thresholds(high_water=1.0, low_water=1.0, min_saving=10**9)
"""Never replans unless it must."""
CHEAP = Prices(minimum=0)
WARM, COLD = 20.0, 4_000.0
SIGNED = "c2lnbmVk"
SLACK = 30
"""Tokens by which a repair may enlarge a history, by words that mark a result as a failure."""


# --- beats: a conversation independent of dialects -----------------------------------------------------------


class Turn(NamedTuple):
    """Text and calls of a model turn, with the results."""

    said: str
    thinks: bool
    steps: tuple[Step, ...] = ()


Beat = str | Turn


WORDS = "the parser reads every line and tells where it broke so that whoever wrote it can put it right"
SIZES = (2, 2, 8, 30, 30, 120, 120, 400, 1200)


def some_text(random: Random) -> str:
    """Return random words, sometimes with newlines, colors, wide characters, lone surrogates, or no text."""
    kind = random.random()
    if kind < 0.1:
        return random.choice(("done", "", " ", "Error: no such file", "\ud83d half", working.LONG, working.WIDE[:600]))
    size = random.choice(SIZES)
    text = " ".join(random.choices(WORDS.split(), k=size))
    return text if kind < 0.6 else text.replace(" the ", "\nthe ") + "\n"


def some_turn(random: Random, *, calls: bool = True) -> Turn:
    """Return a random model turn."""
    said = random.choice(("", "", "I will look.", some_text(random).strip() or "so"))
    steps = tuple(some_step(random) for _ in range(random.choice((1, 1, 1, 2, 3) if calls else (0,))))
    return Turn(said, random.random() < 0.3, steps)


def some_step(random: Random) -> Step:
    """Return a random call with its result; some repeat."""
    what = random.choice((*working.WHATS, f"src/{random.randrange(9)}.py"))
    return Step(random.choice(list(working.TOOLS)), what, some_text(random), random.random() < 0.15)


def some_beats(random: Random, length: int) -> list[Beat]:
    """Return prompts, turns with calls, and answers."""
    beats: list[Beat] = [some_text(random).strip() or "go on"]
    while len(beats) < length:
        beats += [some_turn(random) for _ in range(random.randrange(1, 7))]
        beats += [some_turn(random, calls=False), random.choice(("go on", "why?", some_text(random).strip() or "and?"))]
    return beats


class Story(NamedTuple):
    """A conversation generated from a seed: reproducible, and short to print."""

    seed: int
    length: int

    @property
    def beats(self) -> list[Beat]:
        """The beats of the conversation."""
        return some_beats(Random(self.seed), self.length)


# --- encoding ------------------------------------------------------------------------------------------------


def rows_of(dialect: str, beat: Beat, number: int, *, named: bool = True) -> Rows:
    """Encode a beat in a dialect; call ids count from `number`, or are absent if `named` is false."""
    return _WRITERS[dialect](beat, number, named)


def _arguments(step: Step) -> dict[str, Json]:
    extra = {"old_string": "a\n" * 9, "new_string": "b 😀\n" * 9} if step.tool == "Edit" else {}
    return {working.TOOLS[step.tool]: step.what, **extra}


def _spoken(turn: Turn) -> str:
    return turn.said or ("" if turn.steps else "ok")


def _anthropic(beat: Beat, number: int, _: bool) -> Rows:
    if isinstance(beat, str):
        return [{"role": "user", "content": beat}]
    thought = [{"type": "thinking", "thinking": "let me see", "signature": SIGNED}] if beat.thinks else []
    said = [{"type": "text", "text": _spoken(beat)}] if _spoken(beat) else []
    calls = [
        {"type": "tool_use", "id": f"toolu_{number + n}", "name": step.tool, "input": _arguments(step)}
        for n, step in enumerate(beat.steps)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"toolu_{number + n}", "content": step.text}
        | ({"is_error": True} if step.failed else {})
        for n, step in enumerate(beat.steps)
    ]
    rows: Rows = [{"role": "assistant", "content": [*thought, *said, *calls]}]
    return [*rows, {"role": "user", "content": results}] if results else rows


def _chat(beat: Beat, number: int, named: bool) -> Rows:
    if isinstance(beat, str):
        return [{"role": "user", "content": beat}]
    said = _spoken(beat) or None
    if not named and beat.steps:
        step = beat.steps[0]
        called = {"name": step.tool, "arguments": json.dumps(_arguments(step))}
        answer = {"role": "function", "name": step.tool, "content": step.text}
        return [{"role": "assistant", "content": said, "function_call": called}, answer]
    rows: Rows = [{"role": "assistant", "content": said}]
    if beat.steps:
        rows[0]["tool_calls"] = [
            {
                "id": f"call_{number + n}",
                "type": "function",
                "function": {"name": step.tool, "arguments": json.dumps(_arguments(step))},
            }
            for n, step in enumerate(beat.steps)
        ]
    answers = enumerate(beat.steps)
    return rows + [{"role": "tool", "tool_call_id": f"call_{number + n}", "content": step.text} for n, step in answers]


def _responses(beat: Beat, number: int, _: bool) -> Rows:
    if isinstance(beat, str):
        return [{"role": "user", "content": beat}]
    rows: Rows = []
    if beat.thinks:
        rows.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": SIGNED})
    if _spoken(beat):
        said = [{"type": "output_text", "text": _spoken(beat), "annotations": []}]
        rows.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": said})
    for n, step in enumerate(beat.steps, number):
        call = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": step.tool}
        rows.append(call | {"arguments": json.dumps(_arguments(step))})
    answers = enumerate(beat.steps, number)
    return rows + [{"type": "function_call_output", "call_id": f"call_{n}", "output": one.text} for n, one in answers]


def _gemini(beat: Beat, number: int, named: bool) -> Rows:
    if isinstance(beat, str):
        return [{"role": "user", "parts": [{"text": beat}]}]
    parts: Rows = [{"text": "let me see", "thought": True}] if beat.thinks else []
    parts += [{"text": _spoken(beat)}] if _spoken(beat) else []
    answers: Rows = []
    for n, step in enumerate(beat.steps):
        named_so: dict[str, Json] = {"id": f"call_{number + n}"} if named else {}
        signed = {"thoughtSignature": SIGNED} if n == 0 else {}
        parts.append({"functionCall": {**named_so, "name": step.tool, "args": _arguments(step)}, **signed})
        said = {"error" if step.failed else "output": step.text}
        answers.append({"functionResponse": {**named_so, "name": step.tool, "response": said}})
    rows: Rows = [{"role": "model", "parts": parts}]
    return [*rows, {"role": "user", "parts": answers}] if answers else rows


_WRITERS = {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _responses, "gemini": _gemini}


def is_models(row: Json) -> bool:
    """Return True if the model wrote a row."""
    said = row if isinstance(row, dict) else vars(row)
    return said.get("role") in ("assistant", "model") or said.get("type") in ("reasoning", "function_call")


class Talk:
    """A conversation in one dialect that can continue, rewind and take other branches."""

    def __init__(self, dialect: str, *, system: str = "", body: bool = True, named: bool = True) -> None:
        self.dialect = dialect
        self.system = system
        self.body = body
        self.named = named
        self.number = 0
        """Number of the next beat: ids are never reused, even after a rewind."""
        first = {"role": "system", "content": system}
        self.rows: Rows = [first] if dialect == "openai-chat" and system else []

    def add(self, beat: Beat) -> None:
        """Append a beat."""
        self.rows = [*self.rows, *rows_of(self.dialect, beat, self.number, named=self.named)]
        self.number += 10

    def request(self) -> Json:
        """Return the next request of the agent: a list or a body."""
        if not self.body:
            return list(self.rows)
        fields: dict[str, Json] = {"model": "a-model"}
        if self.system and self.dialect != "openai-chat":
            key = {"anthropic": "system", "openai-responses": "instructions", "gemini": "systemInstruction"}
            said: Json = {"parts": [{"text": self.system}]} if self.dialect == "gemini" else self.system
            fields[key[self.dialect]] = said
        return {**fields, KEYS[self.dialect]: list(self.rows)}

    def copy(self) -> "Talk":
        """Return a copy that can continue differently."""
        return copy(self)

    @property
    def awaits(self) -> bool:
        """True if the model has the next turn."""
        return bool(self.rows) and not is_models(self.rows[-1])


def requests(dialect: str, beats: Iterable[Beat], **options: Any) -> Iterator[Json]:
    """Yield the requests of an agent as a conversation grows."""
    talk = Talk(dialect, **options)
    for beat in beats:
        talk.add(beat)
        if talk.awaits:
            yield talk.request()


# --- moves of a loop -----------------------------------------------------------------------------------------


class Said:
    """A row or a block as an SDK object."""

    def __init__(self, fields: dict[str, Json]) -> None:
        self.__dict__.update(fields)

    def model_dump(self, **_: object) -> dict[str, Json]:
        """Return the fields as a dict."""
        return dict(vars(self))


def rewind(talk: Talk, random: Random) -> None:
    """Remove the last few exchanges."""
    ends = [n for n in range(1, len(talk.rows)) if is_models(talk.rows[n]) and not is_models(talk.rows[n - 1])]
    if ends:
        talk.rows = talk.rows[: random.choice(ends[-4:])]


def truncate(talk: Talk, random: Random) -> None:
    """Remove the oldest exchanges, as some agents do."""
    first = sum(row.get("role") == "system" for row in talk.rows[:1] if isinstance(row, dict))
    prompts = [n for n in range(first + 1, len(talk.rows)) if _is_prompt(talk.rows[n])]
    if prompts:
        talk.rows = [*talk.rows[:first], *talk.rows[random.choice(prompts) :]]


def edit_old(talk: Talk, random: Random) -> None:
    """Change the text of an old prompt."""
    prompts = [n for n in range(len(talk.rows)) if _is_prompt(talk.rows[n])]
    if prompts:
        at = random.choice(prompts)
        new = rows_of(talk.dialect, f"rather this: {random.randrange(99)}", 0)
        talk.rows = [*talk.rows[:at], *new, *talk.rows[at + 1 :]]


def change_system(talk: Talk, random: Random) -> None:
    """Change the time in the system text."""
    if not talk.system:
        return
    talk.system = f"You are careful. It is {random.randrange(24)} o'clock."
    if talk.dialect == "openai-chat" and talk.rows[0]["role"] == "system":
        talk.rows = [{"role": "system", "content": talk.system}, *talk.rows[1:]]


def reorder_keys(talk: Talk, random: Random) -> None:
    """Reverse the keys of some rows, as a database may do."""
    turned = [random.random() < 0.5 and isinstance(row, dict) for row in talk.rows]
    talk.rows = [dict(reversed(row.items())) if turn else row for row, turn in zip(talk.rows, turned, strict=True)]


def move_marks(talk: Talk, random: Random) -> None:
    """Move the user's cache breakpoint to a recent message."""
    bare: Rows = strip_cache_breakpoints(as_json(talk.rows))
    at = random.randrange(max(0, len(bare) - 3), len(bare))
    content = bare[at].get("content") if talk.dialect == "anthropic" else None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content.strip() else content
    if isinstance(blocks, list) and blocks and blocks[-1]["type"] != "thinking":
        marked = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
        talk.rows = [*bare[:at], {**bare[at], "content": [*blocks[:-1], marked]}, *bare[at + 1 :]]


def use_objects(talk: Talk, random: Random) -> None:
    """Keep some model rows as SDK objects."""
    talk.rows = [
        _as_object(row) if isinstance(row, dict) and is_models(row) and random.random() < 0.5 else row
        for row in talk.rows
    ]


def _as_object(row: Json) -> Json:
    content = row.get("content")
    if isinstance(content, list):
        return {**row, "content": [Said(block) if isinstance(block, dict) else block for block in content]}
    return Said({key: value for key, value in row.items() if value is not None})


def repeat(talk: Talk, random: Random) -> None:
    """Send the same prompt twice."""
    prompts = [row for row in talk.rows if _is_prompt(row)]
    if prompts and talk.awaits:
        talk.rows = [*talk.rows, random.choice(prompts)]


def lose_row(talk: Talk, random: Random) -> None:
    """Lose a call or a result."""
    at = random.randrange(len(talk.rows))
    if not _is_prompt(talk.rows[at]):
        talk.rows = [*talk.rows[:at], *talk.rows[at + 1 :]]


def _is_prompt(row: Json) -> bool:
    said = row if isinstance(row, dict) else vars(row)
    texts = isinstance(said.get("content"), str) or any("text" in part for part in said.get("parts", ()))
    return said.get("role") == "user" and texts


MOVES = {
    move.__name__: move
    for move in (rewind, truncate, edit_old, change_system, reorder_keys, move_marks, use_objects, repeat, lose_row)
}


# --- checks of the laws --------------------------------------------------------------------------------------


class BrokenLawError(AssertionError):
    """A law is broken."""


def hold(law: str, truth: object, detail: object = "") -> None:
    """Raise `BrokenLawError` with the name of the law if a condition is false."""
    if not truth:
        raise BrokenLawError(f"{law}: {detail}")


class Watched:
    """A window that checks the laws on every request."""

    def __init__(
        self,
        dialect: str,
        *,
        store: ContentStore | None = None,
        ledger: str | Path | Ledger | None = None,
        reads: bool = True,
        shared: bool = False,
        **options: Any,
    ) -> None:
        """`reads` compares each request with a second window on the same ledger; `shared` allows other writers."""
        self.dialect = dialect
        self.store = InMemoryContentStore() if store is None else store
        self.options = {"counter": "estimate", "thresholds": EAGER, "prices": CHEAP, "format": dialect, **options}
        self.window = Window(store=self.store, ledger=ledger, **self.options)
        self.reads = reads
        self.shared = shared
        self.sent: dict[str, tuple[Bytes, Bytes]] = {}
        """Each request with its output, newest last."""
        self.kept: set[str] = set()
        """Content that the store is known to restore."""
        self.at = 1_000.0

    def call(self, request: Json, gap: float = WARM) -> Json:
        """Make one call of the loop."""
        self.at += gap
        before, events = as_json(request), len(self.window.events)
        sent = self.window.fit(request, at=self.at)
        hold("the input stays unchanged", as_json(request) == before)
        self.judge(before, as_json(sent), {event.trigger for event in self.window.events[events:]})
        return sent

    def judge(self, request: Json, sent: Json, triggers: set[str]) -> None:
        """Check all laws on one request."""
        hold("the same shape", type(request) is type(sent))
        before, after = parse(request, self.dialect), parse(sent, self.dialect)
        flaws = check(before, self.dialect)
        repaired = _repaired(before, self.dialect) if flaws else before
        if repaired is not None:
            legal(after, sent, self.dialect)
            lost_never(repaired, after, self.store, self.kept)
            keeps_words(repaired, after)
        if not flaws:
            in_order(before, after)
        limit = self.window.budget + (SLACK if flaws else 0)
        size = SCALE.history(after)
        hold("fits", size <= limit or "overflow" in triggers, f"{size} > {limit} {triggers}")
        self._prefix_stable(written(request, self.dialect), written(sent, self.dialect), triggers)
        if self.reads:
            again = as_json(self.another(budget=10**9, thresholds=IDLE).fit(request, at=self.at))
            same = written(again, self.dialect) == written(sent, self.dialect)
            hold("same ledger, same bytes", same, triggers)

    def _prefix_stable(self, request: Bytes, sent: Bytes, triggers: set[str]) -> None:
        """Check law 8 against the previous request and against the longest one whose rows this request extends.

        A replan is recorded for rows, whatever the prompt was. So under another prompt, the longest one proves nothing.
        """
        earlier = list(self.sent.values())
        known_rows = (one for one in reversed(earlier) if request[1][: len(one[0][1])] == one[0][1])
        longest = max(known_rows, key=lambda one: len(one[0][1]), default=None)
        if not triggers - {"overflow", "store"}:
            for old_request, old_sent in [*earlier[-1:], *([longest] if longest and not self.shared else [])]:
                hold("prefix-stable", not extends(request, old_request) or extends(sent, old_sent), triggers)
        self.sent.pop(repr(request), None)
        self.sent[repr(request)] = request, sent

    def another(self, **options: Any) -> Window:
        """Return a second window on the same ledger."""
        return Window(store=self.store, ledger=self.window.ledger, **{**self.options, **options})

    def restart(self, ledger: str | Path | Ledger) -> None:
        """Continue with a new window on a ledger, as another process would."""
        self.window = Window(store=self.store, ledger=ledger, **self.options)


def as_json(value: Json) -> Json:
    """Convert a value to plain JSON, SDK objects included."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return as_json(value.model_dump()) if isinstance(value, Said) else value


def rows_in(value: Json, dialect: str) -> Rows:
    """Return the rows of a list or of a body."""
    rows: Rows = value[KEYS[dialect]] if isinstance(value, dict) else value
    return rows


def written(value: Json, dialect: str) -> Bytes:
    """Return the prompt and each row byte for byte, without cache breakpoints."""
    bare = strip_cache_breakpoints(value)
    head = {key: _plain(bare[key]) for key in PROMPT if key in bare} if isinstance(bare, dict) else {}
    rows = (
        {**row, "content": _plain(row["content"])} if isinstance(row, dict) and "content" in row else row
        for row in rows_in(bare, dialect)
    )
    return json.dumps(head), [json.dumps(row) for row in rows]


def _plain(content: Json) -> Json:
    """Replace a single text block by its string: a breakpoint turns one into the other."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        return block["text"] if block.keys() == {"type", "text"} and block["type"] == "text" else content
    return content


def extends(now: Bytes, before: Bytes) -> bool:
    """Return True if a request extends another one."""
    return now[0] == before[0] and now[1][: len(before[1])] == before[1]


def _repaired(history: History, dialect: str) -> History | None:
    """Return the repaired history that the laws refer to, or None if no repair is possible."""
    try:
        return repair(history, dialect).history
    except RepairError:
        return None


def legal(history: History, value: Json, dialect: str) -> None:
    """Law 1, by Thresher's rules and by an oracle that sees only the output."""
    problems = check(history, dialect)
    hold("legal by our rules", not problems, problems)
    flaws = oracle.violations(value, dialect)
    hold("legal by the oracle", not flaws, flaws)


def _parts(history: History) -> list[Part]:
    return [part for message in history for part in message.parts]


def lost_never(before: History, after: History, store: ContentStore, kept: set[str]) -> None:
    """Law 6: each text of the input is in the output or can be restored byte for byte, as can every placeholder."""
    there = {exact_id(part) for part in _parts(after)}
    whole = [part_text(part) for part in _parts(after)]
    for part in _parts(before):
        if isinstance(part, Thinking | Unknown) or not part_text(part).strip() or exact_id(part) in there | kept:
            continue
        if _in_store(part, store):
            kept.add(exact_id(part))
        else:
            hold("nothing lost", part_text(part) in whole, part)
    named = {id_ for part in _parts(before) for id_ in find_placeholder_ids(part_text(part))}
    for id_ in {id_ for said in whole for id_ in find_placeholder_ids(said)} - named:
        hold("placeholders are stored", store.has([id_]), id_)


def _in_store(part: Part, store: ContentStore) -> bool:
    try:
        return store.text(exact_id(part)) == get_restorable_text(part)
    except StoreError:
        return False


def _sound(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def in_order(before: History, after: History) -> None:
    """Law 4: unchanged parts are a subsequence of the input; a placeholder may equal one from the input."""
    given = [exact_id(part) for part in _parts(before)]
    given_parts, rest = set(given), iter(given)
    for part in _parts(after):
        one = "" if find_placeholder_ids(part_text(part)) else exact_id(part)
        hold("order is kept", one not in given_parts or one in rest, part)


def keeps_words(before: History, after: History) -> None:
    """Law 2: the system text and the last human text are unchanged."""
    said = {extract_human_text(part_text(part)) for part in _parts(after)}
    current = before.current.parts if before.current is not None else ()
    system = [part for message in before if message.role == "system" for part in message.parts]
    for part in (*current, *system):
        words = "" if isinstance(part, ToolResult | Thinking | ToolCall) else extract_human_text(part_text(part))
        hold("pinned words stay", not words.strip() or words in said or _sound(words) in said, words)
