"""pi: a session file of version 3, a tree of entries behind one header.

Every entry names its parent, so a branch is simply a second child. Here the user rewinds with `/tree`; the abandoned
branch becomes a `branch_summary`, and a later `compaction` names the first entry of the history that it keeps.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from make_samples import pi_story as tale
from make_samples.seeds import (
    Clock,
    Record,
    hexadecimal,
    line_of,
    milliseconds,
    opaque,
    random_uuid,
    stamp,
    start,
    token,
    weight,
)
from make_samples.story import ROOT, Change

PROVIDER, MODEL = "anthropic", "claude-sonnet-4-5"


def words(text: str) -> Record:
    """Build a text block."""
    return {"type": "text", "text": text}


def thought(text: str) -> Record:
    """Build a thinking block."""
    return {"type": "thinking", "thinking": text, "thinkingSignature": opaque(text, 260)}


def call(name: str, **arguments: Any) -> Record:
    """Build a tool call block."""
    return {"type": "toolCall", "name": name, "arguments": arguments}


@dataclass(frozen=True)
class Outcome:
    """Result of a tool."""

    text: str
    error: bool = False
    details: Record | None = None


@dataclass
class Tree:
    """A session file under construction."""

    clock: Clock
    records: list[Record] = field(default_factory=list)
    leaf: str | None = None
    cached: int = 0
    fresh: int = 2_900

    def entry(self, kind: str, *, seconds: float = 1, **fields: Any) -> str:
        """Write an entry under the leaf; it becomes the leaf."""
        identity = hexadecimal(f"pi entry {len(self.records)}", 8)
        time = stamp(self.clock.tick(seconds))
        head = {"type": kind, "id": identity, "parentId": self.leaf, "timestamp": time}
        self.records.append({**head, **fields})
        self.leaf = identity
        return identity

    def message(self, content: Record, *, seconds: float = 1) -> str:
        """Write a message with its own time."""
        moment = milliseconds(self.clock.now)
        return self.entry("message", seconds=seconds, message={**content, "timestamp": moment})

    def prompt(self, text: str) -> str:
        """Write a user message."""
        self.fresh += weight(text)
        return self.message({"role": "user", "content": [words(text)]}, seconds=25)

    def say(self, *blocks: Record) -> list[str]:
        """Write a model answer and return the ids of its calls."""
        content = []
        for number, block in enumerate(blocks):
            identity = token("toolu_01", f"pi call {len(self.records)} {number}")
            named = block["type"] == "toolCall"
            content.append({"type": "toolCall", "id": identity, **block} if named else block)
        calls = [block["id"] for block in content if block["type"] == "toolCall"]
        fields = {"api": "anthropic-messages", "provider": PROVIDER, "model": MODEL}
        spent = weight(content)
        message = {"role": "assistant", "content": content, **fields, "usage": self.usage(spent)}
        self.message({**message, "stopReason": "toolUse" if calls else "stop"}, seconds=4)
        self.cached, self.fresh = self.cached + self.fresh, spent
        return calls

    def usage(self, spent: int) -> Record:
        """Return tokens and dollars of one request."""
        total = 3 + spent + self.cached + self.fresh
        cost = {
            "input": round(3 * 3e-6, 8),
            "output": round(spent * 15e-6, 8),
            "cacheRead": round(self.cached * 0.3e-6, 8),
            "cacheWrite": round(self.fresh * 3.75e-6, 8),
        }
        tokens = {"input": 3, "output": spent, "cacheRead": self.cached, "cacheWrite": self.fresh}
        return {**tokens, "totalTokens": total, "cost": {**cost, "total": round(sum(cost.values()), 8)}}

    def answer(self, identity: str, name: str, outcome: Outcome) -> str:
        """Write a tool result."""
        head = {
            "role": "toolResult",
            "toolCallId": identity,
            "toolName": name,
            "content": [words(outcome.text)],
        }
        details = {} if outcome.details is None else {"details": outcome.details}
        self.fresh += weight(outcome.text)
        return self.message({**head, **details, "isError": outcome.error}, seconds=0.3)

    def do(self, *blocks: Record, gives: Outcome) -> str:
        """Write a model answer that ends with one call, and the tool result."""
        (identity,) = self.say(*blocks)
        return self.answer(identity, blocks[-1]["name"], gives)


def edit(name: str, change: Change) -> Record:
    """Build a call that edits a file."""
    return call("edit", path=name, oldText=change.old, newText=change.new)


def edited(name: str, before: str, change: Change) -> Outcome:
    """Build the result of that call."""
    text = f"Successfully replaced text in {name}. Changed {len(change.old)} characters to {len(change.new)} \
characters."
    lines = difflib.unified_diff(before.splitlines(), change.apply(before).splitlines(), n=2, lineterm="")
    return Outcome(text, details={"diff": "\n".join(list(lines)[2:])})


def read(name: str) -> Record:
    """Build a call that reads a file."""
    return call("read", path=name)


def shell(command: str) -> Record:
    """Build a call that runs a command."""
    return call("bash", command=command)


def write(folder: Path) -> list[Path]:
    """Write the session to pi's folder."""
    clock = start(2026, 3, 16, 14, 5, 30)
    session = random_uuid("the receipt session")
    header = {"type": "session", "version": 3, "id": session, "timestamp": stamp(clock.now), "cwd": ROOT}
    tree = Tree(clock)
    first_try(tree)
    second_try(tree)
    after_compaction(tree)
    path = folder / ".pi" / "agent" / "sessions" / "--home-sam-shop--" / f"2026-03-16T14-05-30-000Z_{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(line_of, (header, *tree.records))))
    return [path]


def first_try(tree: Tree) -> None:
    """Try locales, which do not work here; the user rewinds to the read of the file."""
    tree.entry("model_change", provider=PROVIDER, modelId=MODEL)
    tree.entry("thinking_level_change", thinkingLevel="medium")
    tree.prompt(tale.FIRST_PROMPT)
    known = tree.do(
        thought("format_amount is in prices.py. Look at it before choosing between locale and a format spec."),
        words("Let me look at how amounts are written now."),
        read(tale.PRICES),
        gives=Outcome(tale.PRICES_TEXT),
    )
    tree.do(
        words("I'll use the locale's grouping, so that other countries come for free."),
        edit(tale.PRICES, tale.BY_LOCALE),
        gives=edited(tale.PRICES, tale.PRICES_TEXT, tale.BY_LOCALE),
    )
    tree.do(shell("python -m pytest -x -q --tb=short"), gives=Outcome(tale.LOCALE_FAILED, error=True))
    tree.say(words(tale.LOCALE_WORDS))
    left = tree.leaf
    tree.leaf = known
    files = {"readFiles": [tale.PRICES], "modifiedFiles": [tale.PRICES]}
    tree.entry("branch_summary", seconds=50, fromId=left, summary=tale.BRANCH_SUMMARY, details=files)


def second_try(tree: Tree) -> None:
    """Write the simple solution, and adapt the test."""
    tree.prompt(tale.SECOND_PROMPT)
    tree.do(
        edit(tale.PRICES, tale.BY_FORMAT),
        gives=edited(tale.PRICES, tale.PRICES_TEXT, tale.BY_FORMAT),
    )
    tree.do(shell("python -m pytest -q --tb=short"), gives=Outcome(tale.TEST_FAILED, error=True))
    first, second = tree.say(
        words("One test still wants the old form. I'll look at it, and for others that spell an amount out."),
        read("tests/test_prices.py"),
        shell("grep -rn '£' tests src"),
    )
    tree.answer(first, "read", Outcome(tale.TESTS_TEXT))
    tree.answer(second, "bash", Outcome(tale.GREP))
    tree.do(
        edit("tests/test_prices.py", tale.TEST_CHANGE),
        gives=edited("tests/test_prices.py", tale.TESTS_TEXT, tale.TEST_CHANGE),
    )
    good = tree.do(shell("python -m pytest -q"), gives=Outcome(tale.PASSED))
    tree.say(words(tale.FIRST_DONE))
    tree.entry("label", targetId=good, label="thousands separated")
    tree.entry("session_info", name="Thousands on receipts")
    outcome = {"output": tale.DIFFSTAT, "exitCode": 0, "cancelled": False, "truncated": False}
    tree.message({"role": "bashExecution", "command": "git diff --stat", **outcome}, seconds=20)
    tree.entry("custom_message", customType="branch-watch", content=tale.NOTE, display=True)


def after_compaction(tree: Tree) -> None:
    """Compact the history by hand, and answer a last request from the kept part."""
    before = tree.cached + tree.fresh
    asked = tree.prompt(tale.THIRD_PROMPT)
    tree.entry("compaction", seconds=15, summary=tale.SUMMARY, firstKeptEntryId=asked, tokensBefore=before)
    tree.cached, tree.fresh = 0, 2_900 + weight(tale.SUMMARY)
    tree.do(
        thought("The column is ten wide; £12,500.00 is ten characters, so it still fits. £125,000.00 would not."),
        read("src/shop/cart.py"),
        gives=Outcome(tale.CART_TEXT),
    )
    tree.do(read(tale.PRICES), gives=Outcome(tale.BY_FORMAT.apply(tale.PRICES_TEXT)))
    tree.do(shell(tale.TRY_COMMAND), gives=Outcome(tale.TRY_OUTPUT))
    tree.say(words(tale.LAST_WORDS))
