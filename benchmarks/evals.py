"""Measure which facts survive fitting, with external probes: `python benchmarks/evals.py [--data FOLDER] [--json]`.

The probes of `compression_evals` are conversations (Gemini contents), each with a question and a text that its answer
must contain. A probe is kept if the request for the fitted history contains that text verbatim. No model is called,
and a placeholder for stored content does not count. All presets are measured with their defaults, and at equal sizes:
with budgets of 25, 50 and 75 % of the conversation's tokens. References are the full history, which keeps everything,
and `sliding-window` alone, which only drops old turns.

The questions are few and handwritten: results are reported, and nothing is tuned on them.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from conversations import DATA, SCENARIOS

import thresher
from thresher import History
from thresher.budget import PRESETS, fit_with_plan
from thresher.errors import BudgetError
from thresher.policies.sliding_window import SlidingWindow
from thresher.store import InMemoryContentStore

SHARES = (0.25, 0.5, 0.75)
TRUNCATION = "sliding-window alone"
FULL = "full history"


class Probe(NamedTuple):
    """A conversation, and the texts that must survive."""

    name: str
    history: History
    expected: tuple[str, ...]


class Score(NamedTuple):
    """Results of one policy at one size."""

    policy: str
    share: float | None
    """Budget as a share of the full size; None: no budget."""
    asked: int
    kept: int
    tokens: float
    """Share of all tokens that is left."""
    unfit: int
    """Conversations that do not fit the budget: their questions count as lost, their tokens are excluded."""
    lost: tuple[str, ...]


def probes(data: Path) -> list[Probe]:
    """Return all conversations with their questions."""
    found = []
    for path in sorted((data / SCENARIOS).glob("*.json*")):
        packed = path.read_bytes()
        value = json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)
        expected = tuple(question["expectedSubstring"] for question in value["questions"])
        found.append(Probe(value["scenarioId"].removeprefix("scenario-"), _parsed(value["history"]), expected))
    return found


def _parsed(contents: Any) -> History:
    return thresher.parse(contents, "gemini")


def texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def present(history: History, expected: str) -> bool:
    """Return whether the request contains a text."""
    return any(expected in text for text in texts(thresher.emit(history, "gemini")))


def options_for(policy: str, budget: int | None) -> dict[str, Any]:
    """Return the options for a policy at a size; the sliding window has its own budget and no escalation steps."""
    if policy == TRUNCATION:
        return {"policy": SlidingWindow(budget=budget or 0)}
    return {"policy": policy, "budget": budget}


def score(asked: list[Probe], policy: str, share: float | None) -> Score:
    """Fit every conversation, and search for the texts."""
    kept = before = after = unfit = 0
    lost: list[str] = []
    for probe in asked:
        size = thresher.count(probe.history)
        budget = None if share is None else int(size * share)
        try:
            history = _fitted(probe.history, policy, budget)
        except BudgetError:
            unfit += 1
            lost.append(probe.name)
            continue
        found = sum(present(history, expected) for expected in probe.expected)
        kept += found
        lost += [probe.name] if found < len(probe.expected) else []
        before, after = before + size, after + thresher.count(history)
    questions = sum(len(probe.expected) for probe in asked)
    return Score(policy, share, questions, kept, after / before if before else 0.0, unfit, tuple(lost))


def _fitted(history: History, policy: str, budget: int | None) -> History:
    if policy == FULL:
        return history
    return fit_with_plan(history, store=InMemoryContentStore(), **options_for(policy, budget)).history


def measure(asked: list[Probe]) -> list[Score]:
    """Measure every preset with its defaults and at every size, after the two references."""
    scores = [score(asked, FULL, None)]
    scores += [score(asked, preset, None) for preset in PRESETS if preset != "auto"]
    for share in SHARES:
        scores += [score(asked, policy, share) for policy in (TRUNCATION, *PRESETS)]
    return scores


def show(scores: list[Score]) -> None:
    """Print a table of questions kept and tokens left."""
    by_key = {(one.policy, one.share): one for one in scores}
    heads = ("no budget", *(f"budget {share:.0%}" for share in SHARES))
    print(f"{scores[0].asked} questions: kept (tokens left; conversations that do not fit the budget)")
    print(f"{'':<18}" + "".join(f"{head:>20}" for head in heads))
    for policy in (FULL, TRUNCATION, *PRESETS):
        print(f"{policy:<18}" + "".join(f"{_cell(by_key.get((policy, share))):>20}" for share in (None, *SHARES)))
    print("\nlost with no budget:")
    for one in scores:
        if one.share is None and one.lost:
            print(f"  {one.policy}: {', '.join(one.lost)}")


def _cell(one: Score | None) -> str:
    if one is None:
        return "-"
    return f"{one.kept} ({one.tokens:.0%}{f'; {one.unfit}' if one.unfit else ''})"


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    scores = measure(probes(chosen.data))
    if chosen.json:
        print(json.dumps({"scores": [one._asdict() for one in scores]}, indent=2))
    else:
        show(scores)


if __name__ == "__main__":
    main()
