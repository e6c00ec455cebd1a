"""Is what another project asks after a compression still there? `python benchmarks/evals.py [--data FOLDER] [--json]`.

The probes of `compression_evals` are conversations (Gemini contents) with a question each, and a text that the answer
must hold. A probe is kept if that text stands in what the fitted history would send, letter for letter. Nothing is
asked of a model, and a pointer to what is in the store does not count as keeping it. All presets are measured as they
come, and at equal sizes: with 25, 50 and 75 % of the conversation's tokens as the budget. Beside them stand the full
history, which is the most that can be kept, and `sliding-window` alone, which truncates.

There are few questions, and they are made up by hand: this is reported, nothing is tuned to it.
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
    """A conversation, and what must still be found in it."""

    name: str
    history: History
    expected: tuple[str, ...]


class Score(NamedTuple):
    """What one policy kept at one size."""

    policy: str
    share: float | None
    """The budget as a part of the full size; None: no budget."""
    asked: int
    kept: int
    tokens: float
    """The part of all tokens that is left."""
    unfit: int
    """Conversations that cannot be made so small: their questions count as lost, their tokens not at all."""
    lost: tuple[str, ...]


def probes(data: Path) -> list[Probe]:
    """Every conversation with its questions."""
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
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def present(history: History, expected: str) -> bool:
    """Whether a text stands in what would be sent."""
    return any(expected in text for text in texts(thresher.emit(history, "gemini")))


def options_for(policy: str, budget: int | None) -> dict[str, Any]:
    """How a policy is asked for a size; truncation is a policy with a size of its own, and has no ladder below it."""
    if policy == TRUNCATION:
        return {"policy": SlidingWindow(budget=budget or 0)}
    return {"policy": policy, "budget": budget}


def score(asked: list[Probe], policy: str, share: float | None) -> Score:
    """Fit every conversation, and look for what is asked."""
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
    """Every preset as it comes and at every size, the two to compare with first."""
    scores = [score(asked, FULL, None)]
    scores += [score(asked, preset, None) for preset in PRESETS if preset != "auto"]
    for share in SHARES:
        scores += [score(asked, policy, share) for policy in (TRUNCATION, *PRESETS)]
    return scores


def show(scores: list[Score]) -> None:
    """As a table: questions kept, and the part of the tokens that is left."""
    by_key = {(one.policy, one.share): one for one in scores}
    heads = ("no budget", *(f"budget {share:.0%}" for share in SHARES))
    print(f"{scores[0].asked} questions: kept (tokens left; conversations that cannot be made so small)")
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
    """The command line."""
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
