"""Measure the speed of fitting: `python benchmarks/fit_speed.py [--data FOLDER] [--runs 5] [--json]`.

- Recorded: the largest and the longest conversation of Claude Code, and the largest of all agents. Each run is a
  separate process, so that all caches are empty; a second fit adds one message in the same process. The first time
  includes imports. Reported are the medians of wall time and processor time.
- Growth: generated sessions of up to 100,000 messages, each preset in a separate process, with tokens counted before.
  Reported is planning and applying alone, next to one `json.dumps` of the same messages and one token count.
- Exclusions: time that `batch-summary` needs per call to check whether a tool is excluded.

Absolute times vary with load; compare the multiples of `json.dumps`, measured in the same process.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

from conversations import DATA, recordings
from msgspec import to_builtins

import thresher
from thresher.budget import fit_with_plan, plan
from thresher.errors import ThresherError
from thresher.model import History, Message, Text, Thinking, ToolCall, ToolResult
from thresher.policies.batch_summary import SummarizeBatches
from thresher.store import InMemoryContentStore

RECORDED = ("claude_code", "codex", "pi", "mini_swe", "openai_tools", "gemini_contents", "cline_roo")
LARGE = {
    "the largest of Claude Code": ("claude_code", "tokens"),
    "the longest of Claude Code": ("claude_code", "messages"),
    "the largest of all": ("", "tokens"),
}
"""Recorded conversations to measure: agent (empty: any), and the measure of size."""
RUNS: dict[str, dict[str, Any]] = {
    "smart": {"policy": "smart"},
    "moderate": {"policy": "moderate"},
    "auto 60k": {"policy": "auto", "budget": 60_000},
}
"""Options to measure on recorded conversations, by display name."""
GROWTH: dict[str, dict[str, Any]] = {
    "smart": {"policy": "smart"},
    "tool-retention": {"policy": "tool-retention"},
    "batch-summary": {"policy": "batch-summary"},
    "exchanges": {"policy": "exchanges"},
    "auto 60k": {"policy": "auto", "budget": 60_000},
}
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
FIRST, NEXT = 1.0, 0.010
"""Targets in seconds: first fit of a large conversation, and plan after one more message."""
PROMPTED = 40
"""Messages per prompt in a generated session."""
CHECKED = 10_000
"""Messages of the session for timing exclusions."""
Row = dict[str, Any]


# Generated sessions


def made(size: int, *, prompts: bool = True) -> History:
    """Generate a deterministic session of that many messages; without `prompts` it has one request."""
    chance = random.Random(size)
    files = [f"/work/src/part{n % 17}/module_{n}.py" for n in range(max(8, size // 60))]
    messages: list[Message] = []
    while len(messages) < size:
        if not messages or (prompts and len(messages) % PROMPTED < 2):
            messages.append(Message("user", (Text(_words(chance, 30)),), author="human"))
        messages += _step(chance, files, len(messages))
    return History(tuple(messages))


def _step(chance: random.Random, files: list[str], number: int) -> Iterator[Message]:
    """Generate a call with its result; some fail, some results are long, some have thinking or text."""
    path = chance.choice(files)
    name, arguments, lines = chance.choices(
        (
            ("Read", {"file_path": path}, chance.randint(5, 40)),
            ("Edit", {"file_path": path, "old_string": _line(chance), "new_string": _line(chance)}, 2),
            ("Bash", {"command": f"pytest {path}", "description": _words(chance, 4)}, chance.randint(1, 60)),
            ("Grep", {"pattern": chance.choice(NAMES), "path": path}, chance.randint(1, 12)),
            ("TodoWrite", {"todos": [{"content": _words(chance, 6), "status": "pending"}]}, 1),
            ("WebFetch", {"url": f"https://example.org/{number}"}, 20),
            ("Task", {"description": _words(chance, 4), "prompt": _words(chance, 30)}, 15),
        ),
        weights=(30, 25, 25, 10, 5, 3, 2),
    )[0]
    spoken = [Thinking(_words(chance, 25))] if chance.random() < 0.3 else []
    said = [Text(_words(chance, 15))] if chance.random() < 0.4 else []
    call = ToolCall(f"call_{number}", name, json.dumps(arguments))
    failed = chance.random() < 0.05
    answer = "Error: no such file or directory" if failed else "\n".join(_line(chance) for _ in range(lines))
    yield Message("assistant", (*spoken, *said, call), author="model")
    yield Message("tool", (ToolResult(call.id, (Text(answer),), is_error=failed),), author="tool")


NAMES = tuple(
    f"{verb}_{thing}" for verb in ("read", "load", "parse", "send", "merge") for thing in ("row", "page", "key")
)


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(NAMES, k=count))


def _line(chance: random.Random) -> str:
    return f"    {chance.choice(NAMES)} = {chance.choice(NAMES)}({chance.randint(0, 10**6)})"


# Measurements in a separate process


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall time and processor time in seconds."""
    clock, processor = perf_counter(), process_time()
    work()
    return perf_counter() - clock, process_time() - processor


def dumped(history: History) -> Callable[[], object]:
    """Time `json.dumps` of the messages, for comparison."""
    rows = [to_builtins((message.role, message.parts)) for message in history.messages]
    return lambda: json.dumps(rows)


def first_and_next(file: str, session: int, segment: int, options: dict[str, Any]) -> Row:
    """Time the first fit of a recorded conversation, then plan and fit after one more message."""
    history = list(everyone(thresher.read_all(file)))[session].segments[segment]
    plain = dumped(history)
    store = InMemoryContentStore()
    first = timed(lambda: fit_with_plan(history, store=store, **options))
    longer = History((*history.messages, _prompt("And now?")), history.tools, history.pocket)
    planned = timed(lambda: plan(longer, store=store, **options))
    longest = History((*longer.messages, _prompt("And then?")), history.tools, history.pocket)
    again = timed(lambda: fit_with_plan(longest, store=store, **options))
    return {"first": first, "next plan": planned, "next fit": again, "json": min(timed(plain) for _ in range(3))}


def _prompt(words: str) -> Message:
    return Message("user", (Text(words),), author="human")


def grown(size: int, prompts: bool, options: dict[str, Any]) -> Row:
    """Time planning and applying on a generated session with tokens counted before."""
    warm = made(100)  # imports modules and loads the tokenizer
    fit_with_plan(warm, store=InMemoryContentStore(), **options)
    history = made(size, prompts=prompts)
    plain = min(timed(dumped(history)) for _ in range(3))
    counted = timed(lambda: thresher.count(history))
    return {
        "fit": timed(lambda: fit_with_plan(history, store=InMemoryContentStore(), **options)),
        "count": counted,
        "json": plain,
    }


def everyone(sessions: Any) -> Iterator[Any]:
    """Yield sessions and their sub-agents."""
    for session in sessions:
        yield session
        yield from everyone(session.children)


def apart(kind: str, *values: Any, seconds: float | None = None) -> Row | None:
    """Run one measurement in a separate process; return None on a timeout."""
    command = [sys.executable, __file__, "--child", kind, json.dumps(values)]
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    row: Row = json.loads(told.stdout)
    return row


# The three benchmarks


class Place(NamedTuple):
    """A recorded history's source and size."""

    file: str
    session: int
    segment: int
    tokens: int
    messages: int


def largest(data: Path) -> dict[str, Place]:
    """Return the recorded conversations to measure, by display name."""
    best: dict[str, Place] = {}
    for file in recordings(data):
        kind = file.partition("/")[0]
        for found in _histories(data / file) if kind in RECORDED else ():
            for name, (of_kind, most) in LARGE.items():
                better = name not in best or getattr(found, most) > getattr(best[name], most)
                if better and of_kind in ("", kind):
                    best[name] = found
    return best


def _histories(path: Path) -> Iterator[Place]:
    try:
        sessions = list(everyone(thresher.read_all(path)))
    except ThresherError:
        return
    for number, session in enumerate(sessions):
        for place, history in enumerate(session.segments):
            yield Place(str(path), number, place, thresher.count(history), len(history))


def measure_recorded(data: Path, runs: int) -> list[Row]:
    """Measure the large conversations with every policy, several times."""
    rows: list[Row] = []
    for name, place in largest(data).items():
        for shown, options in RUNS.items():
            told = [apart("recorded", place.file, place.session, place.segment, options) or {} for _ in range(runs)]
            row: Row = {"conversation": name, "file": str(Path(place.file).relative_to(data)), "policy": shown}
            row |= {"tokens": place.tokens, "messages": place.messages}
            for key in ("first", "next plan", "next fit", "json"):
                clock, processor = zip(*(one[key] for one in told), strict=True)
                row[key] = {"clock": median(clock), "processor": median(processor)}
            rows.append(row)
    return rows


def measure_growth(sizes: list[int], seconds: float, one_prompt: bool) -> list[Row]:
    """Measure generated sessions with every preset; after a timeout, skip larger sizes."""
    rows: list[Row] = []
    for prompts in (True, False)[: 1 + one_prompt]:
        for shown, options in GROWTH.items():
            for size in sizes:
                told = apart("grown", size, prompts, options, seconds=seconds)
                rows.append({"policy": shown, "prompts": prompts, "messages": size, **(told or {"fit": None})})
                if told is None:
                    break
    return rows


def measure_check(rounds: int = 7) -> Row:
    """Time the exclusion check of `batch-summary`: with the default tools, and without any."""
    history = made(CHECKED)
    calls = len(history.links)
    best = {}
    for name, policy in (("usual", SummarizeBatches()), ("none", SummarizeBatches(exclude_tools=()))):
        policy.count_excluded(history)
        best[name] = min(timed(partial(policy.count_excluded, history))[1] for _ in range(rounds)) / calls * 1e6
    plain = min(timed(dumped(history))[1] for _ in range(rounds)) / calls * 1e6
    return {"calls": calls, **best, "check": best["usual"] - best["none"], "json": plain}


# Reports


def show_recorded(rows: list[Row]) -> None:
    """Print a table in milliseconds of wall time (processor time), and as multiples of `json.dumps`."""
    for name in dict.fromkeys(row["conversation"] for row in rows):
        of_it = [row for row in rows if row["conversation"] == name]
        print(f"{name}: {of_it[0]['file']}, {of_it[0]['tokens']:,} tokens, {of_it[0]['messages']:,} messages")
        heads = ("first fit", "× json", "next plan", "× json", "next fit", "json.dumps")
        print(f"  {'policy, ms (processor)':<24}" + "".join(f"{head:>17}" for head in heads))
        for row in of_it:
            first, planned, again, plain = (row[key] for key in ("first", "next plan", "next fit", "json"))
            cells = (_ms(first), _times(first, plain), _ms(planned), _times(planned, plain), _ms(again), _ms(plain))
            print(f"  {row['policy']:<24}" + "".join(f"{cell:>17}" for cell in cells) + f"   {verdict(row)}")
        print()


def verdict(row: Row) -> str:
    """Compare processor time, which depends least on other load, with the targets."""
    first, planned = row["first"]["processor"], row["next plan"]["processor"]
    missed = [f"first fit over {FIRST:g} s"] if first > FIRST else []
    missed += [f"next plan over {NEXT * 1000:g} ms"] if planned > NEXT else []
    return "misses: " + ", ".join(missed) if missed else "meets both aims"


def _ms(time: dict[str, float]) -> str:
    return f"{time['clock'] * 1000:,.1f} ({time['processor'] * 1000:,.1f})"


def _times(time: dict[str, float], plain: dict[str, float]) -> str:
    return f"{time['processor'] / plain['processor']:.1f}"


def show_growth(rows: list[Row]) -> None:
    """Print processor seconds by size, and the growth of the time per message."""
    sizes = sorted({row["messages"] for row in rows})
    print(
        f"{'planning and applying, s':<28}" + "".join(f"{size:>10,}" for size in sizes) + f"{'growth':>9}{'× json':>9}"
    )
    baselines: dict[int, Row] = {}
    for prompts, policy in dict.fromkeys((row["prompts"], row["policy"]) for row in rows):
        of_it = {row["messages"]: row for row in rows if (row["prompts"], row["policy"]) == (prompts, policy)}
        done = {size: row for size, row in of_it.items() if row["fit"]}
        baselines |= done
        cells = "".join(
            f"{done[size]['fit'][1]:>10.3f}" if size in done else f"{'too long' if size in of_it else '-':>10}"
            for size in sizes
        )
        print(f"{policy + ('' if prompts else ', one prompt'):<28}{cells}{growth(done):>9}{_multiple(done):>9}")
    for key, name in (("count", "count once (baseline)"), ("json", "json.dumps (baseline)")):
        cells = "".join(f"{baselines[size][key][1]:>10.3f}" if size in baselines else f"{'-':>10}" for size in sizes)
        print(f"{name:<28}{cells}{growth(baselines, key):>9}")
    print("growth: time per message at the largest size, relative to the smallest; 1 is linear\n")


def growth(done: dict[int, Row], key: str = "fit") -> str:
    """Return the time per message at the largest size, relative to the smallest."""
    if len(done) < 2:
        return "-"
    small, large = min(done), max(done)
    return f"{done[large][key][1] / large / (done[small][key][1] / small):.2f}"


def _multiple(done: dict[int, Row]) -> str:
    return f"{done[max(done)]['fit'][1] / done[max(done)]['json'][1]:.1f}" if done else "-"


def show_check(row: Row) -> None:
    """Print microseconds per call."""
    print(f"batch-summary, {row['calls']:,} calls, µs a call: {row['none']:.2f} to find old calls with no exclusions,")
    print(f"{row['usual']:.2f} with the default names: the check is {row['check']:.2f}; json.dumps {row['json']:.2f}")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--most", type=int, default=30_000, help="messages of the largest generated session, up to 100,000"
    )
    parser.add_argument("--one-prompt", action="store_true", help="also generate sessions with a single prompt")
    parser.add_argument("--seconds", type=float, default=30, help="timeout of one generated session")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("KIND", "VALUES"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        measured = first_and_next if chosen.child[0] == "recorded" else grown
        print(json.dumps(measured(*json.loads(chosen.child[1]))))
        return
    recorded = measure_recorded(chosen.data, chosen.runs) if chosen.data.is_dir() else []
    made_rows = measure_growth([size for size in SIZES if size <= chosen.most], chosen.seconds, chosen.one_prompt)
    check = measure_check()
    if chosen.json:
        print(json.dumps({"recorded": recorded, "growth": made_rows, "never_folded": check}, indent=2))
        return
    show_recorded(recorded)
    show_growth(made_rows)
    show_check(check)


if __name__ == "__main__":
    main()
