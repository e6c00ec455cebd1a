"""Compare Thresher and other tools: legality, preservation of pinned parts, and budget compliance.

    python benchmarks/legality.py [--split report] [--budgets 100] [--peer-budgets 10] [--jobs 2] [--limit N] [--json]

Every recorded conversation with tool calls is repaired, then fitted to budgets on a logarithmic scale, from the
smallest that Thresher can reach to its full size. Other tools get a subset of these budgets. The judge below checks the
messages to send (OpenAI's chat messages; Gemini's contents for google-adk), with the same token counter for all:

- broken pair: a result without an open call, or a call whose results do not follow directly;
- over budget: larger than the budget, without an error. Tool definitions count, so other tools get the rest;
- lost a pinned part: system text, the human's latest message, open tool calls or their results are missing;
- lost the request: no message contains the first words of the first request;
- only system: no other message remains.

Shares are of all runs. Thresher's results are also validated by `thresher.edits.check` in all dialects, and its pinned
parts must be byte-identical. Every failure is reported with file and budget.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time

from conversations import DATA, Conversation, conversations, recordings, spread
from peers import PEERS, Run, Told, available, chat_rows, installed, told_chat

from thresher import History
from thresher.budget import fit_with_plan
from thresher.edits import check, find_pins, repair
from thresher.errors import BudgetError
from thresher.model import Text, ToolResult, part_text
from thresher.model.harness_text import extract_human_text
from thresher.store import InMemoryContentStore
from thresher.tokens import TokenWeights, token_weights_for

COUNTER = "estimate"
OPENING = 60  # characters of the first request to search for
FAULTS = ("broken pair", "over budget", "lost pinned", "lost request", "only system", "error")
OWN = ("illegal", "changed pinned", "miscounted")
"""Additional checks of Thresher's output."""
SHOWN = 20


# The judge


@dataclass(frozen=True)
class Pinned:
    """Required content: texts, calls with their results, and the opening of the first request."""

    texts: tuple[str, ...]
    calls: tuple[str, ...]
    opening: str


def pinned_in(history: History, whole: Sequence[Told]) -> Pinned:
    """Return the pinned content of a history that its messages contain before fitting."""
    texts, calls = [], []
    for place, pin in find_pins(history).items():
        part = history.part(place)
        if pin in ("system", "current") and isinstance(part, Text):
            texts.append(part.text)
        elif pin == "active" and isinstance(part, ToolResult):
            calls.append(part.call_id)
    asked = (m for m in history if m.role == "user" and m.author in ("human", "model"))
    opening = next((words[:OPENING] for words in (extract_human_text(m.text) for m in asked) if words), "")
    lost = missing(Pinned(tuple(texts), tuple(calls), opening), whole)
    texts, calls = [one for one in texts if one and one not in lost], [one for one in calls if one not in lost]
    return Pinned(tuple(texts), tuple(calls), "" if opening in lost else opening)


def missing(pinned: Pinned, sent: Sequence[Told]) -> set[str]:
    """Yield the faults for missing pinned texts, calls and opening."""
    whole = {row.text for row in sent}
    called = {call for row in sent for call in row.calls} & {call for row in sent for call in row.results}
    sought = [text for text in (*pinned.texts, pinned.opening) if text and text not in whole]
    lost = {text for text in sought if not any(text in row.text for row in sent)}
    return lost | (set(pinned.calls) - called)


def broken(sent: Iterable[Told]) -> bool:
    """Return whether a result has no call, or a call no result."""
    waiting: Counter[str] = Counter()
    for row in sent:
        if not row.results and waiting.total():
            return True
        for result in row.results:
            if not waiting[result]:
                return True
            waiting[result] -= 1
        waiting.update(row.calls)
    return bool(waiting.total())


def faults(sent: Sequence[Told], pinned: Pinned, budget: int, tokens: int) -> Iterator[str]:
    """Return all faults of the messages."""
    if broken(sent):
        yield "broken pair"
    if tokens > budget:
        yield "over budget"
    lost = missing(pinned, sent)
    if lost - {pinned.opening} or (pinned.opening in lost and pinned.opening in pinned.texts):
        yield "lost pinned"
    if pinned.opening in lost:
        yield "lost request"
    if all(row.role == "system" for row in sent):
        yield "only system"


# Runs


@dataclass
class Tally:
    """Results of one tool."""

    conversations: int = 0
    runs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, object]] = field(default_factory=list)
    """File, budget and detail of the first failure of each kind in a conversation."""

    def add(self, other: "Tally") -> None:
        """Add the results of another worker."""
        self.conversations += other.conversations
        self.runs += other.runs
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.faults += other.faults
        self.failures += other.failures

    def note(self, where: str, budget: int, found: Iterable[str], detail: str = "") -> None:
        """Count faults; keep the first one of each kind."""
        for fault in found:
            self.faults[fault] += 1
            if not any(one["file"] == where and one["fault"] == fault for one in self.failures):
                self.failures.append({"file": where, "budget": budget, "fault": fault, "detail": detail})

    def timed(self, start: float) -> None:
        """Count one run."""
        took = process_time() - start
        self.runs += 1
        self.seconds += took
        self.slowest = max(self.slowest, took)


def smallest(history: History, policy: str) -> int:
    """Return the smallest reachable size of a history."""
    try:
        fit_with_plan(history, policy=policy, budget=0, counter=COUNTER, store=InMemoryContentStore())
    except BudgetError as error:
        return error.smallest
    return 0


def budgets_between(low: int, high: int, wanted: int) -> list[int]:
    """Return distinct budgets on a logarithmic scale."""
    if low >= high or wanted < 2:
        return [max(low, high)]
    low = max(low, 1)
    found = {round(low * (high / low) ** (step / (wanted - 1))) for step in range(wanted)}
    return sorted(found - {0})


def run_thresher(one: Conversation, whole: History, scale: TokenWeights, budgets: Sequence[int], policy: str) -> Tally:
    """Fit a conversation to every budget, and judge each result."""
    tally = Tally(conversations=1)
    pinned = pinned_in(whole, [told_chat(row, scale) for row in chat_rows(whole)])
    for budget in budgets:
        start = process_time()
        try:
            done = fit_with_plan(
                one.history, policy=policy, budget=budget, counter=COUNTER, store=InMemoryContentStore()
            )
        except Exception as error:  # noqa: BLE001 - any error is a finding
            tally.timed(start)
            tally.note(one.name, budget, ["error"], repr(error)[:200])
            continue
        tally.timed(start)
        tokens = scale.history(done.history)
        tally.note(one.name, budget, faults(sent_by(done.history), pinned, budget, tokens))
        illegal = check(done.history)
        tally.note(one.name, budget, ["illegal"] if illegal else [], str(illegal[:3]))
        changed = changed_pins(whole, done.history)
        tally.note(one.name, budget, ["changed pinned"] if changed else [], changed)
        counted = done.plan.tokens_after
        tally.note(one.name, budget, ["miscounted"] if counted != tokens else [], f"{counted} told, {tokens} weighed")
    return tally


def sent_by(history: History) -> list[Told]:
    """Return Thresher's output as chat messages, with its total tokens."""
    return [told_chat(row, scale=None) for row in chat_rows(history)]


def changed_pins(before: History, after: History) -> str:
    """Return the first changed pinned part; results of open calls may be truncated."""
    kept = Counter(_bare(part) for message in after for part in message.parts)
    for place, pin in find_pins(before).items():
        part = before.part(place)
        if pin == "active" and isinstance(part, ToolResult):
            continue
        if not kept[_bare(part)]:
            return f"{pin}: {part_text(part)[:80]!r}"
        kept[_bare(part)] -= 1
    return ""


def _bare(part: object) -> tuple[object, ...]:
    return (
        type(part),
        *(getattr(part, name, None) for name in ("text", "id", "name", "arguments", "data", "signature")),
    )


def run_peer(name: str, run: Run, pinned: Pinned, budgets: Sequence[int], tools: int) -> Tally:
    """Run another tool with its defaults."""
    tally = Tally(conversations=1)
    for budget in budgets:
        start = process_time()
        try:
            sent = run(budget - tools)
        except Exception as error:  # noqa: BLE001 - any error of a tool is counted
            tally.timed(start)
            tally.note(name, budget, ["error"], repr(error)[:200])
            continue
        tally.timed(start)
        tally.note(name, budget, faults(sent, pinned, budget, tools + sum(row.tokens for row in sent)))
    return tally


def refused(name: str, budgets: Sequence[int], error: Exception) -> Tally:
    """Count an error at every budget for a conversation that a tool rejects."""
    tally = Tally(conversations=1, runs=len(budgets))
    for budget in budgets:
        tally.note(name, budget, ["error"], repr(error)[:200])
    return tally


@dataclass(frozen=True)
class Options:
    """Options of a worker."""

    data: Path
    budgets: int
    peer_budgets: int
    policy: str


def judge_file(task: tuple[str, Options]) -> tuple[str, dict[str, Tally]]:
    """Run every tool on all conversations of one file."""
    file, options = task
    tallies: dict[str, Tally] = {}
    for one in conversations(options.data, file):
        for name, tally in judge(one, options):
            tallies.setdefault(name, Tally()).add(tally)
    return file, tallies


def judge(one: Conversation, options: Options) -> Iterator[tuple[str, Tally]]:
    """Run every tool on one conversation."""
    try:
        whole = repair(one.history).history
        scale = token_weights_for(one.history, counter=COUNTER)
        full = scale.history(whole)
        budgets = budgets_between(smallest(one.history, options.policy), full, options.budgets)
    except Exception as error:  # noqa: BLE001 - any error is a finding
        yield "thresher", refused(one.name, [0], error)
        return
    yield "thresher", run_thresher(one, whole, scale, budgets, options.policy)
    tools = scale.tools(whole.tools)
    budgets = spread(budgets, options.peer_budgets)
    for peer in available()[0] if options.peer_budgets else ():
        try:
            run = peer.prepare(whole, scale)
            unchanged = run(10**9)
        except Exception as error:  # noqa: BLE001 - the tool rejects the history
            yield peer.name, refused(one.name, budgets, error)
            continue
        pinned = pinned_in(whole, unchanged)
        yield peer.name, run_peer(one.name, run, pinned, budgets, tools)


# Reports


def rows_of(tallies: dict[str, Tally]) -> Iterator[tuple[str, Tally]]:
    """Return the tools in order, Thresher first."""
    for name in ("thresher", *(peer.name for peer in PEERS)):
        if name in tallies:
            yield name, tallies[name]


def show(tallies: dict[str, Tally], missing_packages: Sequence[str], seconds: float) -> None:
    """Print the results as a table."""
    heads = ("conversations", "runs", *FAULTS, "ms/run")
    print(f"{'tool':<33}" + "".join(f"{head:>15}" for head in heads))
    for name, tally in rows_of(tallies):
        shares = "".join(f"{share(tally, fault):>15}" for fault in FAULTS)
        milliseconds = 1000 * tally.seconds / max(1, tally.runs)
        print(f"{name:<33}{tally.conversations:>15,}{tally.runs:>15,}{shares}{milliseconds:>15.1f}")
    own = tallies.get("thresher", Tally())
    print("\nthresher, additional checks: " + ", ".join(f"{fault} {own.faults[fault]:,}" for fault in OWN))
    print("versions: " + ", ".join(f"{name} {number}" for name, number in versions().items()))
    if missing_packages:
        print("not installed, skipped: " + ", ".join(missing_packages))
    # A removed first request is not a failure: it is not pinned, and the store has it.
    serious = [failure for failure in own.failures if failure["fault"] != "lost request"]
    for failure in serious[:SHOWN]:
        print(f"{failure['fault']} at {failure['budget']}: {failure['file']} {failure['detail']}".rstrip())
    print(
        f"{seconds:.0f} seconds; a fit took {1000 * own.seconds / max(1, own.runs):.1f} ms, at most {own.slowest:.2f} s"
    )


def share(tally: Tally, fault: str) -> str:
    """Format a fault's share of all runs; zero is distinct from a small share."""
    count = tally.faults[fault]
    return "0" if not count else f"{100 * count / tally.runs:.1f} %" if count >= tally.runs / 2000 else f"{count} runs"


def versions() -> dict[str, str]:
    """Return the versions of the measured packages."""
    names = dict.fromkeys(("thresher", *(peer.package for peer in PEERS)))
    return {name: installed(name) for name in names if installed(name)}


def as_json(tallies: dict[str, Tally], missing_packages: Sequence[str], seconds: float) -> str:
    """Return the results as JSON."""
    tools = [
        {
            "tool": name.strip(),
            "conversations": tally.conversations,
            "runs": tally.runs,
            "faults": {fault: tally.faults[fault] for fault in (*FAULTS, *(OWN if name == "thresher" else ()))},
            "seconds_per_run": tally.seconds / max(1, tally.runs),
            "slowest_seconds": tally.slowest,
            "failures": tally.failures if name == "thresher" else tally.failures[:SHOWN],
        }
        for name, tally in rows_of(tallies)
    ]
    value = {"tools": tools, "versions": versions(), "missing": list(missing_packages), "seconds": seconds}
    return json.dumps(value, indent=2)


def measure(files: Sequence[str], options: Options, jobs: int) -> dict[str, Tally]:
    """Run all files in worker processes, and sum the results in the order of the files."""
    tallies: dict[str, Tally] = {}
    tasks = [(file, options) for file in files]
    with get_context("spawn").Pool(jobs) as pool:
        for number, (file, found) in enumerate(pool.imap(judge_file, tasks), 1):
            print(f"\r{number}/{len(files)} {file:<50.50}", end="", file=sys.stderr, flush=True)
            for name, tally in found.items():
                tallies.setdefault(name, Tally()).add(tally)
    print(file=sys.stderr)
    return tallies


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="all")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--budgets", type=int, default=100, help="budgets for each conversation")
    parser.add_argument("--peer-budgets", type=int, default=10, help="budgets for other tools; 0: skip them")
    parser.add_argument("--limit", type=int, help="maximum number of files, an even sample")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    options = Options(chosen.data, chosen.budgets, chosen.peer_budgets, chosen.policy)
    start = perf_counter()
    tallies = measure(recordings(chosen.data, chosen.split, chosen.limit), options, chosen.jobs)
    seconds = perf_counter() - start
    if chosen.json:
        print(as_json(tallies, available()[1], seconds))
    else:
        show(tallies, available()[1], seconds)
    own = tallies.get("thresher", Tally())
    sys.exit(any(own.faults[fault] for fault in (*FAULTS, *OWN) if fault != "lost request"))


if __name__ == "__main__":
    main()
