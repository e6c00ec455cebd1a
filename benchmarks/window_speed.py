"""Time of a window per call: `python benchmarks/window_speed.py [--tokens 200000] [--calls 10000] [--json]`.

- One more message: a generated conversation of about that many tokens grows by a call and its result per request. The
  baseline hashes the same rows in the same process: each row is encoded as JSON and hashed, which is the minimum for
  recognizing a row by its content. The table shows the median of the calls without a replan, and replans separately.
- The 10,000th call: a loop rewinds to the same size all the time, so the size stays constant while the number of calls
  grows. The figure is the median of the last hundred calls divided by that of the second hundred.

Times are CPU times, per dialect. Compare the multiples of the baseline.
"""

import argparse
import json
from collections.abc import Callable
from hashlib import blake2b
from statistics import median
from time import process_time
from typing import Any

import msgspec
from fit_speed import made

import thresher
from thresher.store import InMemoryContentStore
from thresher.window import Window

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
AIM = 3.0
"""Maximum time of a call in multiples of the hash pass."""
STEPS = 60
LENGTH = 20_000
"""Size of the pool of generated messages."""


def timed(run: Callable[[], Any]) -> float:
    start = process_time()
    run()
    return process_time() - start


def hash_pass(rows: list[Any]) -> None:
    """Hash each row by its content."""
    encode = msgspec.json.Encoder().encode
    for row in rows:
        blake2b(encode(row), digest_size=16).digest()


def requests_of(format: str, tokens: int) -> list[list[Any]]:
    """Return the requests of a loop from a token count on."""
    history = made(LENGTH)
    total, stop = 0, 0
    while total < tokens:
        total += thresher.count([history[stop]])
        stop += 1
    rows: list[Any] = thresher.emit(thresher.History(history.messages[: stop + 6 * STEPS]), format, body=False)
    turns = thresher.parse(rows, format).turns
    late = [turn.start for turn in turns if thresher.count(thresher.parse(rows[: turn.start], format)) >= tokens]
    return [rows[:start] for start in late[:STEPS]]


def one_more(format: str, tokens: int) -> dict[str, Any]:
    """Measure the median time of a call with one new exchange, and of the hash pass over the same rows."""
    requests = requests_of(format, tokens)
    window = Window(budget=10 * tokens, store=InMemoryContentStore())
    first = timed(lambda: window.fit(requests[0], at=0.0))
    calls: list[float] = []
    plans: list[float] = []
    bare: list[float] = []
    for step, request in enumerate(requests[1:], 1):
        seen = len(window.events)
        took = timed(lambda request=request, step=step: window.fit(request, at=float(step)))  # type: ignore[misc]
        (calls if len(window.events) == seen else plans).append(took)
        bare.append(timed(lambda request=request: hash_pass(request)))  # type: ignore[misc]
    row = {"format": format, "rows": len(requests[0]), "first": first, "call": median(calls), "bare": median(bare)}
    return row | {"re-plan": median(plans) if plans else None, "times": median(calls) / median(bare)}


def long_run(format: str, tokens: int, calls: int) -> dict[str, Any]:
    """Measure many calls at one size: the conversation rewinds and grows again."""
    requests = requests_of(format, tokens)
    window = Window(budget=10 * tokens, store=InMemoryContentStore())
    took = []
    for call in range(calls):
        request = requests[call % len(requests)]
        took.append(timed(lambda request=request, call=call: window.fit(request, at=float(call))))  # type: ignore[misc]
    early, late = median(took[100:200]), median(took[-100:])
    return {"format": format, "calls": calls, "100th": early, f"{calls:,}th": late, "times": late / early}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    more = [one_more(format, options.tokens) for format in FORMATS]
    run = long_run("anthropic", options.tokens // 10, options.calls)
    if options.json:
        print(json.dumps({"one more": more, "long run": run}, indent=2))
        return
    print(f"{'':18} {'rows':>6} {'hash pass':>10} {'one more':>10} {'times':>6}  {'replan':>9} {'first':>9}")
    for row in more:
        plan = f"{row['re-plan'] * 1000:6.1f} ms" if row["re-plan"] else "none"
        print(
            f"{row['format']:18} {row['rows']:6,} {row['bare'] * 1000:7.2f} ms {row['call'] * 1000:7.2f} ms "
            f"{row['times']:5.1f}×  {plan:>9} {row['first'] * 1000:6.0f} ms  {'yes' if row['times'] <= AIM else 'no'}"
        )
    late = run[f"{run['calls']:,}th"]
    print(f"\nthe {run['calls']:,}th call takes {late / run['100th']:.2f} × the time of the 100th, at the same size")


if __name__ == "__main__":
    main()
