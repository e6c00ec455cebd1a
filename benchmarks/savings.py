"""Measure savings on recorded conversations: `python benchmarks/savings.py [--split report] [--data FOLDER] [--json]`.

A conversation is one segment of a session with tool calls, up to a compaction or the end, including sub-agents. Every
preset except `auto` (which does nothing without a budget) fits all of them without a budget. Reported are the median
over conversations and the total over all tokens. In addition:

- savings claimed by five earlier designs, on the conversations that each claim covers, next to the measured ones;
- tokens sent with every tenth of the turns of the largest conversation, before and after;
- the share of each kind of text that is left. Tool calls count with their results, by tool category; placeholders and
  summaries are a kind of their own; a truncated result counts as its original kind.

Sub-agents are counted in two ways: the parent's history alone, and with the histories of the sub-agents, which a flat
transcript contains as well but which never reach the parent.
"""

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from conversations import DATA, recordings

import thresher
from thresher import History, Session
from thresher.budget import PRESETS, fit_with_plan
from thresher.edits import Drop, Edit, repair
from thresher.edits.placeholder import get_placeholder_id
from thresher.errors import BudgetError, ThresherError
from thresher.model import Message, Part, Place, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.harness_text import find_harness_offsets
from thresher.policies.subagents import DropSubagents
from thresher.policies.xml_tools import find_xml_chains
from thresher.store import InMemoryContentStore
from thresher.tokens import TokenWeights, token_weights_for

FORMATS = ("claude_code", "codex", "pi", "mini_swe", "openai_tools", "gemini_contents", "cline_roo")
NAMES = [name for name in PRESETS if name != "auto"]
NEWEST_30 = "newest 30 results"
ONLY_SUBAGENTS = "subagents alone"
GROWING: dict[str, Any] = {"smart": None, "tool-retention": None, "auto": 60_000}
"""Policies to measure with a budget."""
STEPS = 10
LARGE = 100_000
"""Minimum tokens of a large conversation; the claims about tool results refer to 142,000."""
PROMPTS = 5
"""Minimum prompts of a conversation with many prompts."""
CALLS = 30
"""Minimum calls of a long conversation, enough for a batch of old calls."""
HARNESS, PLACEHOLDERS, FRAMES = "system and harness text", "summaries and placeholders", "frames and tool definitions"
KINDS = (
    "human words", "assistant text", "thinking", "file reads", "file edits", "commands", "web", "plan", "sub-agents",
    "other tools", HARNESS, PLACEHOLDERS, FRAMES,
)  # fmt: skip
OF_TOOLS = {
    "file_read": "file reads", "file_edit": "file edits", "execution": "commands", "project": "commands", "web": "web",
    "plan": "plan", "subagent": "sub-agents",
}  # fmt: skip
BARS = "▁▂▃▄▅▆▇█"


def newest_30(history: History) -> Iterator[Edit]:
    """Keep only the latest 30 tool results with their calls, the baseline of the tool-retention design."""
    done = [chain for chain in history.chains if chain.result is not None]
    for chain in done[:-30]:
        yield Drop(history.occurrence(chain.call), NEWEST_30, "older than the newest 30 results")


POLICIES: dict[str, Any] = {**{name: name for name in NAMES}, NEWEST_30: newest_30, ONLY_SUBAGENTS: DropSubagents()}


# Conversations


class Conversation(NamedTuple):
    """A history that a model saw, with the sub-agents that it started."""

    format: str
    name: str
    history: History
    below: tuple[History, ...]
    """Yield the histories of all sub-agents, recursively."""


def conversations(data: Path, split: str, unread: Counter[str]) -> Iterator[Conversation]:
    """Yield all conversations with tool calls; count unreadable files."""
    for file in recordings(data, split):
        format = file.partition("/")[0]
        if format not in FORMATS:
            continue
        try:
            sessions = list(_sessions(data / file))
        except (ThresherError, ValueError):
            unread[format] += 1
            continue
        for session in (inner for outer in sessions for inner in _everyone(outer)):
            for history in session.segments:
                if any(True for message in history for _ in message.calls) or find_xml_chains(history):
                    yield Conversation(format, f"{file}#{session.id}", history, tuple(_below(session, history)))


def _sessions(path: Path) -> Iterator[Session]:
    try:
        yield from thresher.read_all(path)
    except ThresherError:
        # tau-bench files contain a list of results, each with chat messages under `traj`.
        rows = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or "traj" not in row:
                raise
            yield Session("tau", str(number), str(path), segments=(thresher.parse(row["traj"], "openai-chat"),))


def _everyone(session: Session) -> Iterator[Session]:
    yield session
    for child in session.children:
        yield from _everyone(child)


def _below(session: Session, history: History) -> Iterator[History]:
    """Return the histories of the sub-agents that a history started."""
    started = {call.id for message in history for call in message.calls}
    for child in session.children:
        if child.call_id in started:
            yield from (segment for one in _everyone(child) for segment in one.segments)


# Measurements


class Outcome(NamedTuple):
    """One conversation under one policy."""

    format: str
    policy: str
    before: int
    after: int
    messages: int
    messages_after: int
    calls: int
    prompts: int
    subagents: int
    below: int
    """Tokens of the sub-agents' histories."""


def outcomes(one: Conversation, left: dict[str, Counter[str]]) -> Iterator[Outcome]:
    """Measure a conversation with every policy, and add up what is left of each kind."""
    scale = token_weights_for(one.history)
    whole = repair(one.history).history
    left["before"].update(by_kind(whole, scale))
    below = sum(map(scale.history, one.below))
    for name, policy in POLICIES.items():
        if name == ONLY_SUBAGENTS and not whole.spawns:
            continue
        done = fit_with_plan(one.history, policy=policy, store=InMemoryContentStore())
        left[name].update(by_kind(done.history, scale))
        sizes = (done.plan.tokens_before, done.plan.tokens_after, len(whole), len(done.history))
        counts = (len(whole.chains), len(whole.exchanges), len(whole.spawns))
        yield Outcome(one.format, name, *sizes, *counts, below)


def by_kind(history: History, scale: TokenWeights) -> Counter[str]:
    """Count the tokens of each kind."""
    tools = {place: OF_TOOLS.get(link.use.category) for link in history.links for place in link.chain[:2]}
    found = Counter({FRAMES: scale.tools(history.tools)})
    for i, message in enumerate(history.messages):
        found[FRAMES] += scale.message_overhead
        for j, (part, weight) in enumerate(zip(message.parts, scale.parts(message), strict=True)):
            harness = _harness(part, message, scale, weight)
            found[HARNESS] += harness
            found[_kind(part, message, tools.get(Place(i, j)) or "other tools")] += weight - harness
    return found


def _harness(part: Part, message: Message, scale: TokenWeights, weight: int) -> int:
    """Return the harness text within a human's message."""
    if not isinstance(part, Text) or message.role != "user" or get_placeholder_id(part):
        return 0
    return min(weight, sum(scale.text(part.text[start:stop]) for start, stop in find_harness_offsets(part.text)))


def _kind(part: Part, message: Message, tool: str) -> str:
    if isinstance(part, Summary) or (get_placeholder_id(part) and not _is_cut(part)):
        return PLACEHOLDERS
    if isinstance(part, ToolCall | ToolResult):
        return tool
    if isinstance(part, Thinking):
        return "thinking"
    if message.role == "assistant":
        return "assistant text"
    return "human words" if message.role == "user" and message.author in ("human", "model") else HARNESS


def _is_cut(part: Part) -> bool:
    """Return whether a part is truncated, not replaced: it has text before the note, and a call has no placeholder."""
    if isinstance(part, ToolCall):
        return '"left_out"' not in part.arguments
    return isinstance(part, Text | ToolResult) and not part.text.startswith("[thresher ")


def reduction(before: int, after: int) -> float:
    """Return the removed share."""
    return 1 - after / before if before else 0.0


# Claims


class Promise(NamedTuple):
    """Savings that a design claimed, and the conversations that the claim covers."""

    design: str
    says: str
    least: float
    policy: str
    of: str
    """`tokens`, `messages`, or `with sub-agents`: tokens including the sub-agents' histories."""
    on: str
    """Conversations: `all`, `sub-agents`, `many sub-agents`, `many prompts`, `long`, `large`."""
    best: bool = False
    """Whether the claim is about the best case only."""


_000 = ("000", "60-80 % with many sub-agents", 0.6)
_001 = ("001", "up to 90.9 % of messages", 0.909, "exchanges", "messages")
_002 = ("002", "40-60 %", 0.4, "batch-summary", "tokens")
_004 = ("004", "about 50 %, of 142k tokens", 0.5, "tool-retention", "tokens")
PROMISES = (
    Promise(*_000, ONLY_SUBAGENTS, "tokens", "sub-agents"),
    *(Promise(*_000, policy, "tokens", "many sub-agents") for policy in (ONLY_SUBAGENTS, "minimal", "smart")),
    *(Promise(*_000, policy, "with sub-agents", "many sub-agents") for policy in (ONLY_SUBAGENTS, "minimal", "smart")),
    *(Promise(*_001, on, best=True) for on in ("all", "many prompts")),
    *(Promise(*_002, on) for on in ("all", "long")),
    *(Promise(*_004, on) for on in ("all", "large")),
    Promise("004", "86 % by the newest 30 results", 0.86, NEWEST_30, "tokens", "large"),
)


def meant(one: Outcome, on: str) -> bool:
    """Return whether a claim covers a conversation."""
    fewest = {"sub-agents": 1, "many sub-agents": 2}.get(on, 0)
    sizes = {"long": one.calls >= CALLS, "large": one.before >= LARGE, "many prompts": one.prompts >= PROMPTS}
    return one.subagents >= fewest and sizes.get(on, True)


def kept_promise(promise: Promise, found: Iterable[Outcome]) -> dict[str, Any]:
    """Return the measured savings next to the claimed ones."""
    pairs = [
        (one.messages, one.messages_after)
        if promise.of == "messages"
        else (one.before + (one.below if promise.of == "with sub-agents" else 0), one.after)
        for one in found
        if one.policy == promise.policy and meant(one, promise.on) and (one.below or promise.of != "with sub-agents")
    ]
    row: dict[str, Any] = {**promise._asdict(), "conversations": len(pairs)}
    if not pairs:
        return {**row, "verdict": "no such conversation"}
    reached = [reduction(*pair) for pair in pairs]
    row |= {"median": median(reached), "total": reduction(*map(sum, zip(*pairs, strict=True))), "most": max(reached)}
    row["share_that_reach_it"] = sum(one >= promise.least for one in reached) / len(reached)
    compared, which = (row["most"], "at best") if promise.best else (row["median"], "by the median")
    verdict = "reached" if compared >= promise.least else f"LOWER than {promise.least:.1%}"
    return {**row, "verdict": f"{verdict} {which}"}


# Growing conversation


def growing(largest: Conversation) -> list[dict[str, int]]:
    """Return the tokens sent with every tenth of the turns, before and after."""
    history, scale = largest.history, token_weights_for(largest.history)
    rows = []
    for step in range(1, STEPS + 1):
        turn = history.turns[len(history.turns) * step // STEPS - 1]
        sent = History(history.messages[: turn.start], history.tools, history.pocket)
        row = {"turn": len(history.turns) * step // STEPS, "full": scale.history(repair(sent).history)}
        for policy, budget in GROWING.items():
            name = f"{policy} {budget // 1000}k" if budget else policy
            try:
                row[name] = fit_with_plan(
                    sent, policy=policy, budget=budget, store=InMemoryContentStore()
                ).plan.tokens_after
            except BudgetError as error:
                row[name] = error.smallest
        rows.append(row)
    return rows


# Reports


def reductions(found: list[Outcome], measure: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return median and total by policy and format; `all` is all formats."""
    pairs: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        pair = (one.before, one.after) if measure == "tokens" else (one.messages, one.messages_after)
        for format in (one.format, "all"):
            pairs[one.policy][format].append(pair)
    return {
        policy: {
            format: (median(reduction(*pair) for pair in all_), reduction(*map(sum, zip(*all_, strict=True))))
            for format, all_ in formats.items()
        }
        for policy, formats in pairs.items()
    }


def show_reductions(found: list[Outcome], unread: Counter[str]) -> None:
    """Print two tables: tokens and messages."""
    once = [one for one in found if one.policy == NAMES[0]]
    counts = Counter(one.format for one in once)
    tokens = Counter({format: sum(one.before for one in once if one.format == format) for format in counts})
    columns = [format for format in FORMATS if counts[format]]
    for measure in ("tokens", "messages"):
        print(f"{measure} removed, %: median / total")
        print(f"{'':<20}" + "".join(f"{format:>17}" for format in (*columns, "all")))
        table = reductions(found, measure)
        for policy in (*NAMES, NEWEST_30):
            cells = (table[policy][format] for format in (*columns, "all"))
            print(f"{policy:<20}" + "".join(f"{f'{100 * a:.1f} / {100 * b:.1f}':>17}" for a, b in cells))
        print()
    for name, numbers in (("conversations", counts), ("tokens", tokens), ("files not read", unread)):
        cells_of = (*(numbers[format] for format in columns), numbers.total())
        print(f"{name:<20}" + "".join(f"{number:>17,}" for number in cells_of))
    absent = [format for format in FORMATS if not counts[format]]
    print(f"no conversation with tool calls: {', '.join(absent)}\n" if absent else "")


def show_promises(rows: list[dict[str, Any]]) -> None:
    """Print the claims and the measured savings."""
    print(f"{'design, promise':<36}{'policy':<19}{'of':<17}{'on':<17}{'conv.':>6}{'median':>9}{'total':>9}{'most':>9}")
    for row in rows:
        where = f"{row['design']} {row['says']:<32}{row['policy']:<19}{row['of']:<17}{row['on']:<17}"
        figures = "".join(f"{row[key]:>9.1%}" for key in ("median", "total", "most") if key in row)
        reached = f"; {row['share_that_reach_it']:.0%} reach it" if figures else ""
        print(f"{where}{row['conversations']:>6}{figures}   {row['verdict']}{reached}")
    print(f"at least: long {CALLS} calls, large {LARGE:,} tokens, many prompts {PROMPTS}, many sub-agents 2;")
    print("with sub-agents: tokens of their own histories, if recorded, count before, but not after\n")


def show_growing(name: str, rows: list[dict[str, int]]) -> None:
    """Print a table, and a line of bars for each column."""
    print(f"tokens sent with a turn of {name}")
    columns = list(rows[0])
    print("".join(f"{column:>16}" for column in columns))
    for row in rows:
        print("".join(f"{row[column]:>16,}" for column in columns))
    top = max(row["full"] for row in rows)
    for column in columns[1:]:
        bars = "".join(BARS[min(len(BARS) - 1, row[column] * len(BARS) // (top + 1))] * 2 for row in rows)
        print(f"{column:>16} {bars}")
    print()


def show_kinds(left: dict[str, Counter[str]]) -> None:
    """Print the share left of each kind; for placeholders, their share of all tokens before."""
    before = left["before"]
    print("left of each kind, % (placeholders: % of all tokens before)")
    print(f"{'':<28}{'tokens before':>14}{'share':>8}" + "".join(f"{name:>15}" for name in NAMES))
    for kind in (*KINDS, "all"):
        whole = before.total() if kind == "all" else before[kind]
        base = before.total() if kind in ("all", PLACEHOLDERS) else whole
        amounts = (left[name].total() if kind == "all" else left[name][kind] for name in NAMES)
        cells = "".join(f"{100 * amount / base:>15.1f}" if base else f"{'-':>15}" for amount in amounts)
        print(f"{kind:<28}{whole:>14,}{whole / before.total():>8.1%}{cells}")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--split", choices=("report", "tune", "all"), default="report")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    unread: Counter[str] = Counter()
    left: dict[str, Counter[str]] = defaultdict(Counter)
    found: list[Outcome] = []
    largest: tuple[int, Conversation | None] = (0, None)
    for one in conversations(chosen.data, chosen.split, unread):
        found += outcomes(one, left)
        if found[-1].before > largest[0] and len(one.history.turns) >= 5 * STEPS:
            largest = (found[-1].before, one)
    promises = [kept_promise(promise, found) for promise in PROMISES]
    steps = growing(largest[1]) if largest[1] else []
    if chosen.json:
        told = {measure: reductions(found, measure) for measure in ("tokens", "messages")}
        value = {**told, "promises": promises, "growing": steps, "kinds": left, "files_not_read": unread}
        print(json.dumps(value, indent=2))
        return
    show_reductions(found, unread)
    show_promises(promises)
    if largest[1]:
        show_growing(largest[1].name, steps)
    show_kinds(left)


if __name__ == "__main__":
    main()
