"""Search in plain conversations without tools: in which of about 40 sessions was the answer given?

python benchmarks/search.py conversations [--meaning]

The questions and sessions are those of LongMemEval in the shared data. The baseline is SQLite's FTS5 with stemming: any
of the words except stop words, one row per message, and the best three messages per session.
"""

import gzip
import json
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from search_peers import DATA, LIMIT, STOP_WORDS
from search_questions import ASKED, SHIPPED, compare, told

from thresher.memory import Memory
from thresher.memory.search import search as searching
from thresher.memory.search.query import parse_query
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.search.weights import RANKING, RankingWeights

FILE = DATA / "memory" / "longmemeval-s-001.json.gz"
Ask = Callable[[str], list[str]]


class Haystack(NamedTuple):
    """Sessions by id, each a list of messages, and questions with the ids of the sessions that answer them."""

    sessions: dict[str, list[dict[str, Any]]]
    questions: list[tuple[str, list[str]]]


def haystacks() -> Iterator[Haystack]:
    for row in json.loads(gzip.decompress(FILE.read_bytes())):
        sessions = dict(zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True))
        questions = zip(row["questions"], row["answer_session_ids"], strict=True)
        yield Haystack(sessions, [(question, [*ids]) for question, ids in questions])


def remembered(haystack: Haystack, folder: Path, weights: RankingWeights, *, by_meaning: bool = True) -> Ask:
    (folder / "sessions").mkdir(exist_ok=True)
    for id, messages in haystack.sessions.items():
        clean = [{"role": one["role"], "content": one["content"]} for one in messages]
        (folder / "sessions" / f"{id}.json").write_text(json.dumps(clean))
    memory = Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)
    memory.sync()

    def ask(question: str) -> list[str]:
        view = SearchView(sessions=LIMIT, messages=1, now=ASKED)
        query = parse_query(question)
        scorer = memory.meaning.question_scorer(query.full_text) if by_meaning and memory.meaning else None
        answer = search_archive(memory.store, query, view, weights, meaning=scorer)
        return [Path(one.file).stem for one in answer.sessions]

    return ask


def baseline(haystack: Haystack) -> Ask:
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE VIRTUAL TABLE said USING fts5(text, id UNINDEXED, tokenize = 'porter unicode61')")
    texts = ((one["content"], id) for id, messages in haystack.sessions.items() for one in messages)
    rows.executemany("INSERT INTO said VALUES (?, ?)", texts)

    def ask(question: str) -> list[str]:
        words = "".join(sign if sign.isalnum() else " " for sign in question).split()
        query = " OR ".join(f'"{word}"' for word in words if word.lower() not in STOP_WORDS)
        best: dict[str, list[float]] = defaultdict(list)
        for id, points in rows.execute("SELECT id, -bm25(said) FROM said WHERE said MATCH ? ORDER BY rank", [query]):
            if len(best[id]) < 3:
                best[id].append(points)
        return sorted(best, key=lambda id: -sum(n / d for d, n in enumerate(best[id], 1)))[:LIMIT]

    return ask


def places(ask: Ask, haystack: Haystack) -> Iterator[int]:
    for question, relevant in haystack.questions:
        found = enumerate(ask(question), 1)
        yield next((place for place, id in found if id in relevant), 0)


def report() -> None:
    results: dict[str, list[int]] = defaultdict(list)
    for haystack in haystacks():
        with tempfile.TemporaryDirectory() as folder:
            results["thresher"] += places(remembered(haystack, Path(folder), RANKING), haystack)
            with patch.object(searching, "repair_query", lambda _, query: (query, [])):
                old = remembered(haystack, Path(folder), SHIPPED, by_meaning=False)
                results["before: best messages alone"] += places(old, haystack)
        results["FTS5 baseline"] += places(baseline(haystack), haystack)
    print("| questions | number | hit@1 (95 %) | hit@5 | MRR (95 %) |\n|---|" + "---:|" * 4)
    for name, some in results.items():
        told(name, some)
    for name in ("before: best messages alone", "FTS5 baseline"):
        print(f"against {name}:", compare(results[name], results["thresher"]))
