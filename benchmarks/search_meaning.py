"""Measure what the search by meaning adds, on questions that people ask weeks later.

python benchmarks/search_meaning.py [--home FOLDER]      requires the extra `meaning` and the shared recordings

The sessions of all folders that a question of `questions.json` names are archived and encoded (in FOLDER, which a
second run reuses, or in a temporary one). Each question then ranks them by words alone, with the static vectors, and
with the multilingual vectors for questions in other languages. The weight of meaning is chosen for each project on the
questions of the other projects. Intervals are 95 %, by bootstrap over questions; the paired test counts the questions
that only one of two orders answers first (exact sign test).
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs
from search_peers import DATA, LIMIT
from threadpoolctl import threadpool_limits

from thresher.memory import Memory
from thresher.memory.meaning.building import build_vectors
from thresher.memory.meaning.meaning_index import MeaningIndex, QuestionScorer
from thresher.memory.search.query import parse_query
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.search.weights import RANKING

WEIGHTS = (0.4, 0.6, 0.8, 1.0, 1.3)
SAMPLES = 2000
Row = dict[str, Any]
Places = list[int]


class StaticScorer(QuestionScorer):
    """Scores with the static vectors whatever the language."""

    def score_sessions(self, question: str, sessions: Sequence[int]) -> dict[int, float]:
        return self._index.score_with(self._index._static, question, sessions)

    def find_sessions(self, question: str) -> list[int]:  # noqa: ARG002
        return []


class Variant(NamedTuple):
    """One way to rank, and its weights."""

    name: str
    scorer: Callable[[MeaningIndex, str], QuestionScorer] | None
    weights: Sequence[float] = WEIGHTS


VARIANTS = (
    Variant("words alone", None, (0.0,)),
    Variant("+ static vectors", StaticScorer),
    Variant("+ multilingual for other languages", QuestionScorer),
)


def questions() -> list[Row]:
    rows: list[Row] = json.loads((DATA / "questions.json").read_text())
    return [row for row in rows if row["relevant"]]


def project_of(row: Row) -> str:
    return str(row["relevant"][0]).rsplit("/", 1)[-1].split("-")[0] if row["relevant"] else ""


def places(memory: Memory, rows: Sequence[Row], variant: Variant, weight: float) -> tuple[Places, list[float]]:
    """Return the rank of the first right file for each question (0: not among the first twenty), and the seconds."""
    weights = structs.replace(RANKING, meaning=weight)
    found, seconds = [], []
    assert memory.meaning is not None
    for row in rows:
        scorer = variant.scorer(memory.meaning, row["q"]) if variant.scorer else None
        began = time.perf_counter()
        view = SearchView(sessions=LIMIT, messages=1)
        answer = search_archive(memory.store, parse_query(row["q"]), view, weights, meaning=scorer)
        seconds.append(time.perf_counter() - began)
        files = dict.fromkeys("/".join(Path(one.file).parts[-2:]) for one in answer.sessions)
        found.append(next((place for place, file in enumerate(files, 1) if file in row["relevant"]), 0))
    return found, seconds


def hit1(some: Sequence[int]) -> float:
    return sum(place == 1 for place in some) / len(some)


def mrr(some: Sequence[int]) -> float:
    return sum(1 / place for place in some if place) / len(some)


def cross_validated(by_weight: Mapping[float, Places], rows: Sequence[Row]) -> tuple[Places, Counter[float]]:
    """Return the places with the weight that is best on the other projects, and how often each weight was chosen."""
    projects = [project_of(row) for row in rows]
    chosen: Counter[float] = Counter()
    result = [0] * len(rows)
    for project in dict.fromkeys(projects):
        rest = [at for at, other in enumerate(projects) if other != project]
        best = max(by_weight, key=lambda weight: mrr([by_weight[weight][at] for at in rest]))
        chosen[best] += 1
        for at, other in enumerate(projects):
            if other == project:
                result[at] = by_weight[best][at]
    return result, chosen


def interval(some: Sequence[int], measure: Callable[[Sequence[int]], float]) -> str:
    draw = random.Random(0)
    values = sorted(measure(draw.choices(some, k=len(some))) for _ in range(SAMPLES))
    return f"{measure(some):.3f} ({values[SAMPLES // 40]:.2f}-{values[-SAMPLES // 40]:.2f})"


def sign_test(old: Sequence[int], new: Sequence[int]) -> str:
    gained = sum(b == 1 != a for a, b in zip(old, new, strict=True))
    lost = sum(a == 1 != b for a, b in zip(old, new, strict=True))
    total = gained + lost
    tail = sum(comb(total, k) for k in range(min(gained, lost) + 1)) / 2**total if total else 0.5
    return f"+{gained} -{lost}, p = {min(1.0, 2 * tail):.3f}"


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[int]]]:
    for kind in ("terms", "detail", "vague", "paraphrase"):
        yield kind, [at for at, row in enumerate(rows) if row["kind"] == kind]
    yield "other languages", [at for at, row in enumerate(rows) if row["lang"] != "en"]
    for project, count in Counter(map(project_of, rows)).most_common(4):
        yield f"{project} ({count})", [at for at, row in enumerate(rows) if project_of(row) == project]


def build(memory: Memory) -> None:
    """Archive, index and encode everything, and print the durations and sizes."""
    began = time.perf_counter()
    memory.sync(vectors=False)
    sizes = memory.sizes()
    print(f"{sizes.messages:,} messages, {sizes.text / 1e6:.0f} MB of text; index {sizes.index / 1e6:.1f} MB")
    print(f"index: {time.perf_counter() - began:.1f} s")
    assert memory.meaning is not None
    for encoder in memory.meaning._encoders():
        began = time.perf_counter()
        with threadpool_limits(1):
            report = build_vectors(memory.store, memory.meaning._file(encoder), encoder)
        seconds = time.perf_counter() - began
        size = memory.meaning._file(encoder).size()
        print(f"{encoder.name}: {report.chunks:,} chunks in {seconds:.1f} s, {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--home", type=Path)
    home = parser.parse_args().home
    rows = questions()
    folders = sorted({file.split("/")[0] for row in rows for file in row["relevant"]})
    with nullcontext(home) if home else tempfile.TemporaryDirectory() as folder:
        memory = Memory(home=folder, sources=[DATA / name for name in folders], discover=False)
        build(memory)
        results: dict[str, Places] = {}
        print("\n| | hit@1 | MRR | hit@5 | weights chosen | median |\n|---|---|---|---|---|---|")
        for variant in VARIANTS:
            by_weight, seconds = {}, []
            for weight in variant.weights:
                by_weight[weight], times = places(memory, rows, variant, weight)
                seconds += times
            some, chosen = cross_validated(by_weight, rows)
            results[variant.name] = some
            hit5 = sum(0 < place <= 5 for place in some) / len(some)
            median = sorted(seconds)[len(seconds) // 2] * 1000
            weights = ", ".join(f"{weight:g} x{count}" for weight, count in chosen.most_common())
            cells = (
                variant.name,
                interval(some, hit1),
                interval(some, mrr),
                f"{hit5:.3f}",
                weights,
                f"{median:.0f} ms",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    names = list(results)
    print(f"\n| hit@1 / MRR | {' | '.join(names)} | first against last |\n|---|" + "---|" * (len(names) + 1))
    for name, which in [("all", list(range(len(rows)))), *groups(rows)]:
        picked = [[results[one][at] for at in which] for one in names]
        scores = [f"{hit1(some):.3f} / {mrr(some):.3f}" for some in picked]
        print(f"| {name}, {len(which)} | {' | '.join(scores)} | {sign_test(picked[0], picked[-1])} |")


if __name__ == "__main__":
    main()
