"""Search with questions that people ask weeks later: `questions.json` over all recorded sessions.

python benchmarks/search.py questions [--meaning]

Each project's questions are judged with the weights that are best on the other projects, and with a confidence that was
fitted to the other projects. Intervals are 95 % bootstrap intervals over questions. The paired tests compare with
search by the best messages alone, without sub-agents, hints, repairs and meaning, as it was before. "yesterday" and
other words for a time refer to `ASKED`.
"""

import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec import structs
from search_peers import DATA, LIMIT

from thresher.memory import Memory
from thresher.memory.search import search as searching
from thresher.memory.search.confidence import DOUBTFUL, OFFSET, SLOPE
from thresher.memory.search.query import parse_query
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.search.weights import RANKING, RankingWeights

Row = dict[str, Any]
ASKED = datetime(2026, 8, 15, tzinfo=UTC)
SHIPPED = RankingWeights(session_words=0.0, time_hint=0.0, project_hint=0.0)
GRID: dict[str, tuple[Any, ...]] = {"session_words": (0.5, 0.8, 1.1), "time_hint": (0.2, 0.4), "project_hint": (0.2,)}
MEANING_GRID: dict[str, tuple[Any, ...]] = {"meaning": (0.4, 0.6, 0.8, 1.0, 1.3)}
SAMPLES = 2000
STEPS, RATE = 3000, 0.3


class Asked(NamedTuple):
    """Result for one question: rank of the first right session (0 without one), and the confidence."""

    place: int
    confidence: float | None


class Points(NamedTuple):
    """Measures of some results."""

    hit1: float
    hit5: float
    mrr: float


def questions() -> list[Row]:
    rows: list[Row] = json.loads((DATA / "questions.json").read_text())
    return rows


def project_of(row: Row) -> str:
    """Return the project of a question: the beginning of the name of the file that answers it."""
    if not row["relevant"]:
        return "none"
    folder, _, file = str(row["relevant"][0]).partition("/")
    return file.split("-")[0] if folder in ("claude_code", "codex", "copilot_cli", "gemini_cli") else folder


def remember(home: Path) -> Memory:
    folders = [path for path in sorted(DATA.iterdir()) if path.is_dir() and path.name != "memory"]
    memory = Memory(home=home, sources=folders, discover=False)
    memory.sync()
    return memory


def ask(memory: Memory, row: Row, weights: RankingWeights, *, subagents: bool = True, by_meaning: bool = True) -> Asked:
    """Search for a question; `by_meaning` compares meanings, too, if they are enabled."""
    query = structs.replace(parse_query(row["q"]), subagents=subagents)
    scorer = memory.meaning.question_scorer(query.full_text) if by_meaning and memory.meaning else None
    view = SearchView(sessions=LIMIT, messages=1, now=ASKED)
    answer = search_archive(memory.store, query, view, weights, meaning=scorer)
    paths = [Path(one.file.split("!")[0]) for one in answer.sessions]
    files = [*dict.fromkeys(f"{path.parent.name}/{path.name}" for path in paths)]
    place = next((place for place, file in enumerate(files, 1) if file in row["relevant"]), 0)
    return Asked(place, answer.confidence)


def measure(places: Sequence[int]) -> Points:
    number = max(len(places), 1)
    first, five = sum(place == 1 for place in places), sum(0 < place <= 5 for place in places)
    return Points(first / number, five / number, sum(1 / place for place in places if place) / number)


def interval(places: Sequence[int], measured: Callable[[Sequence[int]], float]) -> str:
    chance = random.Random(1)
    samples = sorted(measured(chance.choices(places, k=len(places))) for _ in range(SAMPLES))
    return f"{samples[SAMPLES // 40]:.3f} to {samples[-SAMPLES // 40]:.3f}"


def told(name: str, places: Sequence[int]) -> None:
    hit1, hit5, mrr = measure(places)
    ranges = [interval(places, lambda some: measure(some).hit1), interval(places, lambda some: measure(some).mrr)]
    print(f"| {name} | {len(places)} | {hit1:.3f} ({ranges[0]}) | {hit5:.3f} | {mrr:.3f} ({ranges[1]}) |", flush=True)


def select_across(rows: Sequence[Row], tried: dict[str, list[Asked]]) -> list[Asked]:
    """Return the results of each project with the setting that is best on the others; print these settings."""
    chosen: list[Asked] = [*next(iter(tried.values()))]
    for project in sorted({project_of(row) for row in rows}):
        others = [at for at, row in enumerate(rows) if row["relevant"] and project_of(row) != project]
        best = max(tried, key=lambda name: measure([tried[name][at].place for at in others]).mrr)
        print(f"without {project}: {best}")
        chosen = [
            tried[best][at] if project_of(row) == project else one
            for at, (row, one) in enumerate(zip(rows, chosen, strict=True))
        ]
    return chosen


def compare(before: Sequence[int], after: Sequence[int]) -> str:
    """Return the exact sign test of the first places, and an interval of the difference of MRR."""
    better = sum(new == 1 != old for old, new in zip(before, after, strict=True))
    worse = sum(old == 1 != new for old, new in zip(before, after, strict=True))
    number = better + worse
    tail = sum(math.comb(number, many) for many in range(max(better, worse), number + 1)) / 2**number
    chance, pairs = random.Random(1), [*zip(before, after, strict=True)]
    gains = sorted(
        sum((1 / new if new else 0) - (1 / old if old else 0) for old, new in chance.choices(pairs, k=len(pairs)))
        / len(pairs)
        for _ in range(SAMPLES)
    )
    gain = f"MRR {gains[SAMPLES // 2]:+.3f} ({gains[SAMPLES // 40]:+.3f} to {gains[-SAMPLES // 40]:+.3f})"
    return f"{better} newly first, {worse} no longer first, p = {min(1.0, 2 * tail):.4f}; {gain}"


def fit(pairs: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Fit the logistic function of the confidence."""
    slope, offset = 1.0, 0.0
    for _ in range(STEPS):
        errors = [(1 / (1 + math.exp(-(slope * x + offset))) - right, x) for x, right in pairs]
        slope -= RATE * sum(error * x for error, x in errors) / len(pairs)
        offset -= RATE * sum(error for error, _ in errors) / len(pairs)
    return slope, offset


def doubt(rows: Sequence[Row], found: Sequence[Asked]) -> Iterator[bool]:
    """Yield whether each question is doubted, with a confidence that was fitted to the other folds."""
    folds = [project_of(row) if row["relevant"] else f"none {at % 4}" for at, row in enumerate(rows)]
    information = [_information(one.confidence) for one in found]
    fitted = {}
    for fold in set(folds):
        others = [at for at, other in enumerate(folds) if other != fold]
        fitted[fold] = fit([(value, found[at].place == 1) for at in others if (value := information[at]) is not None])
    for fold, value, one in zip(folds, information, found, strict=True):
        slope, offset = fitted[fold]
        yield value is not None and one.confidence != DOUBTFUL and slope * value + offset < 0


def _information(confidence: float | None) -> float | None:
    """Return the information of the words, from which the search computed a confidence."""
    if confidence is None:
        return None
    return (math.log(confidence / (1 - confidence)) - OFFSET) / SLOPE


def by(rows: Sequence[Row], key: Callable[[Row], str], before: Sequence[Asked], after: Sequence[Asked]) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        if row["relevant"]:
            groups[key(row)].append(at)
    for name, places in sorted(groups.items()):
        told(f"{name}, before", [before[at].place for at in places])
        told(name, [after[at].place for at in places])


def _answered(rows: Sequence[Row], found: Iterable[Asked]) -> list[int]:
    return [one.place for row, one in zip(rows, found, strict=True) if row["relevant"]]


def ask_steps(memory: Memory, rows: Sequence[Row]) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the results of search as it was before, and with each of its additions."""

    def ask_all(weights: RankingWeights, *, subagents: bool = True, by_meaning: bool = False) -> list[Asked]:
        return [ask(memory, row, weights, subagents=subagents, by_meaning=by_meaning) for row in rows]

    words = structs.replace(SHIPPED, session_words=RANKING.session_words)
    with patch.object(searching, "repair_query", lambda _, query: (query, [])):
        yield "before: best messages alone", ask_all(SHIPPED, subagents=False)
        yield "+ sub-agents", ask_all(SHIPPED)
        yield "+ all words of the session", ask_all(words)
    yield "+ spelling repair", ask_all(words)
    yield "+ times and projects", ask_all(RANKING)
    if memory.meaning:
        yield "+ meaning", ask_all(RANKING, by_meaning=True)


def report() -> None:
    rows = questions()
    with tempfile.TemporaryDirectory() as home:
        memory = remember(Path(home))
        print(f"{len(rows)} questions, {memory.sizes().sessions:,} sessions")
        steps = dict(ask_steps(memory, rows))
        grid = MEANING_GRID if memory.meaning else GRID
        settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        tried = {str(one): [ask(memory, row, RankingWeights(**one)) for row in rows] for one in settings}
    before, default = next(iter(steps.values())), [*steps.values()][-1]
    after = select_across(rows, tried)
    print("| questions | number | hit@1 (95 %) | hit@5 | MRR (95 %) |\n|---|" + "---:|" * 4)
    told("**cross-validated by project**", _answered(rows, after))
    for name, found in steps.items():
        told(name, _answered(rows, found))
    for key in (_kind, project_of, _language):
        by(rows, key, before, after)
    print("\npaired with before, cross-validated:")
    for name, which in (("all", lambda _: True), ("paraphrase", _is_paraphrase), ("other language", _is_foreign)):
        pairs = [[one for row, one in zip(rows, some, strict=True) if which(row)] for some in (before, after)]
        asked = [row for row in rows if which(row)]
        print(f"{name}:", compare(_answered(asked, pairs[0]), _answered(asked, pairs[1])))
    for name, doubted in (
        ("cross-validated", [*doubt(rows, default)]),
        ("as it is", [one.confidence is not None and one.confidence < DOUBTFUL for one in default]),
    ):
        none = [flag for row, flag in zip(rows, doubted, strict=True) if not row["relevant"]]
        some = [flag for row, flag in zip(rows, doubted, strict=True) if row["relevant"]]
        print(f"doubted, {name}: {sum(none)} of {len(none)} without an answer, {sum(some)} of {len(some)} with one")


def _kind(row: Row) -> str:
    return str(row["kind"])


def _language(row: Row) -> str:
    return "English" if row["lang"] == "en" else "other language"


def _is_paraphrase(row: Row) -> bool:
    return _kind(row) == "paraphrase"


def _is_foreign(row: Row) -> bool:
    return _language(row) == "other language"


if __name__ == "__main__":
    report()
