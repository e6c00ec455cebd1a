"""Working sessions for policy tests: reads, edits, commands, failures, plans, sub-agents, in every dialect.

Unlike those of `strategies`, these texts are long and repeat, so that there is content to remove. A session is a script
of small choices, so a failing example shrinks to a few turns.
"""

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import structs

from thresher.dialects import emit, parse
from thresher.model import History, Message, Part, Summary, Text, Thinking, ToolCall, ToolResult, VendorExtras

LONG = "The quick brown fox jumps over the lazy dog, line after line.\n" * 40
LOG = "".join(f"step {n}: ok\n" for n in range(400))
COLOURED = "\x1b[32mPASS\x1b[0m tests\n" * 300
WIDE = "漢字とかな交じりの文。😀👩‍💻é\n" * 120
REMINDER = "<system-reminder>\nremember the rules of this house, they are many and long\n</system-reminder>"
FEEDBACK = "<feedback>\nNo, use the other port 🙂\n</feedback>"
DENIED = f"The user denied this operation and provided the following feedback:\n{FEEDBACK}"
APPROVED = f"{LOG}\nThe user approved this operation and provided the following context:\n{FEEDBACK}"
TEXTS = ("done", "", LONG, LOG, COLOURED, WIDE, LONG * 6, "Error: no such file", " \n ", DENIED, APPROVED)


class Step(NamedTuple):
    """One call: its tool, its target, its result."""

    tool: str
    what: str
    text: str
    failed: bool


TOOLS: dict[str, str] = {
    "Read": "file_path",
    "Edit": "file_path",
    "Write": "file_path",
    "Bash": "command",
    "LS": "path",
    "WebFetch": "url",
    "TodoWrite": "todos",
    "Task": "prompt",
    "AskUserQuestion": "question",
    "ExitPlanMode": "plan",
    "attempt_completion": "result",
    "mcp__db__query": "sql",
}
WHATS = ("src/a.py", "/work/src/a.py", "lib/a.py", "pytest -q", "git status")

steps: SearchStrategy[Step] = st.builds(
    Step, st.sampled_from(list(TOOLS)), st.sampled_from(WHATS), st.sampled_from(TEXTS), st.booleans()
)


class Exchange(NamedTuple):
    """A prompt and the turns that answer it: text, thinking, parallel calls."""

    prompt: str
    turns: tuple[tuple[str, bool, tuple[Step, ...]], ...]


turns = st.tuples(
    st.sampled_from(("", "I will look.", "Why? Because the root cause is in a.py.", LONG)),
    st.booleans(),
    st.lists(steps, max_size=3).map(tuple),
)
exchanges: SearchStrategy[Exchange] = st.builds(
    Exchange,
    st.sampled_from(("fix the bug in a.py", f"{REMINDER}\ngo on", "why?", LONG, "[keep] this")),
    st.lists(turns, min_size=1, max_size=5).map(tuple),
)


def _call(step: Step, number: int) -> ToolCall:
    arguments: dict[str, Any] = {TOOLS[step.tool]: step.what}
    if step.tool == "Edit":
        arguments |= {"old_string": "a\n" * 30, "new_string": "b 😀\n" * 40, "intent": "tidy up"}
    if step.tool == "Write":
        arguments |= {"content": LONG}
    return ToolCall(f"call_{number}", step.tool, json.dumps(arguments))


def _turn(turn: tuple[str, bool, tuple[Step, ...]], number: int) -> list[Message]:
    text, thinks, called = turn
    parts: list[Part] = [Thinking("let me think about this for a while. " * 9, "c2lnbmVk")] if thinks else []
    parts += [Text(text)] if text else []
    parts += [_call(step, number + n) for n, step in enumerate(called)]
    if not called and not text:
        parts.append(Text("ok"))
    results: list[Part] = [
        ToolResult(f"call_{number + n}", (Text(step.text or "."),), step.failed) for n, step in enumerate(called)
    ]
    messages = [Message("assistant", tuple(parts), author="model")]
    return [*messages, Message("tool", tuple(results), author="tool")] if results else messages


def told(script: list[Exchange], *, system: bool, summary: bool, ends: bool) -> History:
    """Return the history of a script."""
    messages = [Message("system", (Text("You are careful."),), author="harness")] if system else []
    if summary:
        messages.append(Message("user", (Summary("Earlier: the parser was written. " * 20),), author="harness"))
    number = 0
    for exchange in script:
        messages.append(Message("user", (Text(exchange.prompt),)))
        for turn in exchange.turns:
            messages += _turn(turn, number)
            number += len(turn[2])
    if ends:
        messages.append(Message("assistant", (Text("All done."),), author="model"))
    return History(tuple(messages))


sessions: SearchStrategy[History] = st.builds(
    told,
    st.lists(exchanges, min_size=1, max_size=7),
    system=st.booleans(),
    summary=st.booleans(),
    ends=st.booleans(),
)


def native(history: History, dialect: str) -> History:
    """Return the conversation as the client of that API would have recorded it."""
    body = parse(emit(history, dialect, body=True), dialect)
    if dialect == "gemini":  # signed like Gemini: the first call of every step
        return structs.replace(body, messages=tuple(_signed(message) for message in body.messages))
    return body


def _signed(message: Message) -> Message:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if not calls:
        return message
    pocket = calls[0].pocket or VendorExtras("gemini")
    signed = structs.replace(calls[0], pocket=structs.replace(pocket, fields='{"thoughtSignature":"c2ln"}'))
    return structs.replace(message, parts=tuple(signed if part is calls[0] else part for part in message.parts))
