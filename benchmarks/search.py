"""Measure search quality and speed, next to other tools in the same run.

python benchmarks/search.py quality [PEER …]   306 commits, each as a query by its subject: rank of the maker; then
                                               everything that `questions` measures

python benchmarks/search.py questions          142 questions: by kind, project and language, and confidence,
                                               cross-validated by project

python benchmarks/search.py conversations      questions about plain conversations

python benchmarks/search.py tune               ranking weights, selected and validated on separate commits

python benchmarks/search.py speed [PEER …]     first search, build, second sync, queries, sizes on a synthetic corpus

Without `--meaning`, search compares words alone, even if the extra `meaning` is installed.

`speed` writes its corpus (`--messages`, default 100,000; a million are 2.7 GB of files) to a temporary folder, or
uses the one in `--corpus` that `search_corpus.py` wrote. `quality` reads the shared recordings. Its `hard` commits
are those whose exact subject is in no session.

The baseline is SQLite's FTS5 with stemming: any of the words except stop words, one row per text, and the best three
texts per session. The other tools (`search_peers.py`) run in a separate environment and home, only if named.
"""

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import search_conversations
import search_questions
from search_corpus import write_corpus
from search_peers import DATA, LIMIT, PEERS, STOP_WORDS, Answered, ask_all, lodge, measured, score, unpack

from thresher import read_all
from thresher.memory import Memory
from thresher.memory.index.tantivy_index import IndexHit
from thresher.memory.ingest.provenance import attribute_texts
from thresher.memory.records import ArchivedSession
from thresher.memory.search import combined_score, query_compiler, rank
from thresher.memory.search.query import parse_query
from thresher.memory.search.search import SearchView, search_archive
from thresher.memory.search.weights import RANKING, RankingWeights
from thresher.memory.session_store import SessionStore

Row = dict[str, Any]
Ask = Callable[[str], list[str]]
FOLDS = 8
GRID: dict[str, tuple[Any, ...]] = {
    "title": (0.15, 0.3),
    "earlier_session": (0.3, 0.6, 0.9),
    "edit": (1.0, 1.2),
}
"""Values of the ranking weights to try."""


def commits() -> list[Row]:
    rows: list[Row] = json.loads((DATA / "commits.json").read_text())
    return rows


def asked(ask: Ask, queries: Iterable[Row]) -> list[Answered]:
    found = []
    for row in queries:
        began = time.perf_counter()
        files = ask(row["subject"])
        seconds = time.perf_counter() - began
        places = [place for place, file in enumerate(files, 1) if file in row["relevant"]]
        found.append(Answered(not row["verbatim"], places[0] if places else 0, not files, seconds))
    return found


def told(name: str, answers: Sequence[Answered]) -> None:
    hard = [answer for answer in answers if answer.hard]
    cells = []
    for some in (answers, hard):
        points = score(some)
        cells += [f"{points.hit1:.3f}", f"{points.hit5:.3f}", f"{points.mrr:.3f}"]
    median = statistics.median(answer.seconds for answer in answers)
    empty = sum(answer.empty for answer in answers)
    print(f"| {name} | {' | '.join(cells)} | {empty} | {median * 1000:.0f} ms |", flush=True)


def remembered(home: Path, weights: RankingWeights = RANKING) -> Ask:
    memory = Memory(home=home, sources=[DATA / "claude_code"], discover=False)
    memory.sync()

    def ask(words: str) -> list[str]:
        answer = search_archive(memory.store, parse_query(words), SearchView(sessions=LIMIT, messages=1), weights)
        return [f"claude_code/{Path(one.file).name}" for one in answer.sessions]

    return ask


def baseline() -> Ask:
    """A straightforward FTS5 index."""
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE VIRTUAL TABLE said USING fts5(text, file UNINDEXED, tokenize = 'porter unicode61')")
    for path in sorted((DATA / "claude_code").iterdir()):
        texts = (
            piece.text
            for session in read_all(path)
            for _, said in attribute_texts(list(session.messages(branches=True)))
            for piece in said
            if piece.field in ("human", "agent", "thinking", "summary", "input")
        )
        rows.executemany("INSERT INTO said VALUES (?, ?)", ((text, f"claude_code/{path.name}") for text in texts))

    def ask(words: str) -> list[str]:
        spoken = ["".join(sign if sign.isalnum() else " " for sign in word) for word in words.split()]
        kept = [word for word in " ".join(spoken).split() if word.lower() not in STOP_WORDS]
        query = " OR ".join(f'"{word}"' for word in kept)
        best: dict[str, list[float]] = defaultdict(list)
        for file, points in rows.execute(
            "SELECT file, -bm25(said) FROM said WHERE said MATCH ? ORDER BY rank", [query]
        ):
            if len(best[file]) < 3:
                best[file].append(points)
        return sorted(best, key=lambda file: -sum(n / d for d, n in enumerate(best[file], 1)))[:LIMIT]

    return ask


def quality(names: Sequence[str]) -> None:
    queries = commits()
    print("| | hit@1 | hit@5 | MRR | hard hit@1 | hit@5 | MRR | empty | median |\n|---|" + "---:|" * 8)
    with tempfile.TemporaryDirectory() as folder:
        ask = remembered(Path(folder) / "own")
        told("**thresher**", asked(ask, queries))
        words_alone = RankingWeights(commit_maker=0.0, earlier_session=0.0, later_session=1.0)
        ask = remembered(Path(folder) / "own", words_alone)
        told("thresher, by words alone", asked(ask, queries))
        ask = remembered(Path(folder) / "own", RankingWeights(session_words=0.0))
        told("thresher, without the score of all words of a session", asked(ask, queries))
        told("FTS5 baseline", asked(baseline(), queries))
        if names:
            home = Path(folder) / "peers"
            files = unpack(home)
            for name in names:
                peer = PEERS[name]
                peer.build(home)
                told(name, ask_all(peer, home, files, queries))
                peer.stop(home)


class Trial(NamedTuple):
    """One setting of the weights, with its result on every commit."""

    setting: dict[str, Any]
    answers: list[Answered]


class Kept(query_compiler.CompiledQuery):
    """A query with cached results, so that many weights share one search."""

    def __init__(self, words: str, memory: Memory, without: set[int]) -> None:
        index = memory.store.open_index()
        assert index is not None
        super().__init__(parse_query(words), index, without=without)
        self.kept = super().match_counts(), super().best_matches(rank.MAX_RANKED_TEXTS), super().title_matches()
        self.counted: dict[frozenset[int], list[tuple[float, dict[int, int]]]] = {}
        self.lengths: dict[frozenset[int], dict[int, int]] = {}
        self.told = (
            super().commits_made(),
            super().commits_seen(),
            super().edit_counts(),
            super().commits_made(barred=False),
        )

    def match_counts(self) -> dict[int, int]:
        return self.kept[0]

    def best_matches(self, limit: int, sessions: Collection[int] | None = None) -> list[IndexHit]:
        return self.kept[1] if sessions is None else super().best_matches(limit, sessions)

    def word_counts(self, sessions: Collection[int]) -> Iterator[tuple[float, dict[int, int]]]:
        if (key := frozenset(sessions)) not in self.counted:
            self.counted[key] = [*super().word_counts(sessions)]
        yield from self.counted[key]

    def conversation_lengths(self, sessions: Collection[int]) -> dict[int, int]:
        if (key := frozenset(sessions)) not in self.lengths:
            self.lengths[key] = super().conversation_lengths(sessions)
        return self.lengths[key]

    def words_by_session(self, sessions: Collection[int]) -> dict[int, dict[str, int]]:
        return {key: {} for key in sessions}

    def title_matches(self) -> list[IndexHit]:
        return self.kept[2]

    def commits_made(self, *, barred: bool = True) -> Collection[int]:
        return self.told[0] if barred else self.told[3]

    def commits_seen(self) -> dict[int, int]:
        return self.told[1]

    def edit_counts(self) -> dict[int, int]:
        return self.told[2]


def trials(queries: Sequence[Row], memory: Memory) -> Iterator[Trial]:
    facts = {one.key: one for one in memory.store.find_sessions()}
    questions = [Kept(row["subject"], memory, set()) for row in queries]
    for values in product(*GRID.values()):
        setting = dict(zip(GRID, values, strict=True))
        for question in questions:
            question.weights = RankingWeights(**setting)
        yield Trial(setting, asked(ranks(questions, facts, memory.store), queries))


def ranks(questions: Sequence[Kept], facts: Mapping[int, ArchivedSession], store: SessionStore) -> Ask:
    known = iter(questions)

    def ask(_words: str) -> list[str]:
        question = next(known)
        matches = question.match_counts()
        texts = question.best_matches(rank.MAX_RANKED_TEXTS)
        found = combined_score.combine_scores(question, store, matches, texts, now=search_questions.ASKED).scores
        order = rank.rank_sessions([facts[key] for key in found], found, matches, question)
        return [f"claude_code/{Path(one.session.file).name}" for one in order[:LIMIT]]

    return ask


def tune() -> None:
    """Select settings by MRR on all folds but one, and validate them on that fold."""
    queries = commits()
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(home=folder, sources=[DATA / "claude_code"], discover=False)
        memory.sync()
        tried = list(trials(queries, memory))
    for kind, folds in (("project", [row["repo"] for row in queries]), ("session", session_folds(queries))):
        chosen = [*tried[0].answers]
        for fold in sorted(set(folds)):
            outside = [place for place, one in enumerate(folds) if one != fold]
            best = max(tried, key=lambda trial: score([trial.answers[place] for place in outside]).mrr)
            print(f"without {kind} {fold}: {best.setting}")
            chosen = [best.answers[at] if one == fold else chosen[at] for at, one in enumerate(folds)]
        told(f"judged on the {kind} left out", chosen)
    tried.sort(key=lambda trial: score(trial.answers).mrr)
    for name, trial in (("best", tried[-1]), ("worst", tried[0])):
        told(f"the {name} of {len(tried)} on all of them: {trial.setting}", trial.answers)


def session_folds(queries: Sequence[Row]) -> list[str]:
    """Assign the commits of one session to one fold."""
    leader: dict[str, str] = {}

    def find(file: str) -> str:
        while leader.setdefault(file, file) != file:
            file = leader[file]
        return file

    for row in queries:
        for file in row["relevant"]:
            leader[find(file)] = find(row["relevant"][0])
    groups = sorted({find(row["relevant"][0]) for row in queries})
    number = {group: str(place % FOLDS) for place, group in enumerate(groups)}
    return [number[find(row["relevant"][0])] for row in queries]


def questions(projects: Path, number: int) -> Iterator[str]:
    """Yield queries: consecutive words from prompts and answers of a corpus."""
    taken = 0
    for path in sorted(projects.rglob("*.jsonl")):
        for line in path.read_text().splitlines()[:1]:
            content = json.loads(line).get("message", {}).get("content")
            if isinstance(content, str) and len(content.split()) > 8:
                yield " ".join(content.split()[2:7])
                taken += 1
        if taken >= number:
            return


def speed(corpus: Path | None, messages: int, names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        projects = corpus or Path(place) / "projects"
        if corpus is None:
            write_corpus(projects, messages)
        home = Path(place) / "own"
        command = [sys.executable, "-m", "thresher.cli", "sync", "--no-discover", "--source", str(projects), "--json"]
        extra = {"THRESHER_HOME": str(home), "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}
        extra["THRESHER_MEANING_ENABLED"] = os.environ["THRESHER_MEANING_ENABLED"]
        search = [*command[:3], "search", "--no-discover", "--source", str(projects)]
        first = measured([*search, "session"], Path(place), seconds=60, extra=extra)
        indexed = Memory(home=home).store.indexed_share()
        print(f"first search, in an empty home: {first.seconds:.2f} s, {indexed:.1%} indexed", flush=True)
        shutil.rmtree(home)
        for label in ("build", "second sync"):
            built = measured(command, Path(place), seconds=3600, extra=extra)
            print(
                f"{label}: {built.seconds:.2f} s, {built.cpu:.1f} s of CPU, peak {built.peak / 1e6:.0f} MB", flush=True
            )
        memory = Memory(home=home, sources=[projects], discover=False)
        sizes = memory.sizes()
        print(f"{sizes.sessions:,} sessions, {sizes.messages:,} messages, {sizes.text / 1e6:.0f} MB of text")
        index_share = f"{sizes.index / sizes.text:.0%} of the text"
        print(f"index {sizes.index / 1e6:.0f} MB ({index_share}), archive {sizes.archive / 1e6:.0f} MB")
        for vectors in memory.meaning.status() if memory.meaning else ():
            print(f"vectors of {vectors.model}: {vectors.size / 1e6:.0f} MB, {vectors.missing} blocks missing")
        asks = list(questions(projects, 200))
        for label, check in (("in process", False), ("in process, with the check for changes", True)):
            times, processor = [], []
            for words in asks:
                began, cpu = time.perf_counter(), time.process_time()
                memory.search(words, sync=check)
                times.append(time.perf_counter() - began)
                processor.append(time.process_time() - cpu)
            median, last = statistics.median(times), statistics.quantiles(times, n=20)[-1]
            used = statistics.median(processor)
            print(
                f"query {label}: median {median * 1000:.1f} ms ({used * 1000:.1f} ms of CPU), p95 {last * 1000:.1f} ms"
            )
        times = [measured([*search, words], Path(place), seconds=60, extra=extra).seconds for words in asks[:15]]
        print(f"the whole command: median {statistics.median(times) * 1000:.0f} ms")
        for name in names:
            peer, house = PEERS[name], Path(place) / name
            lodge(house, projects)
            built = peer.build(house)
            done = f"{built.seconds:.2f} s, {built.cpu:.1f} s of CPU" if built.finished else "did not finish"
            print(
                f"{name}: build {done}, peak {built.peak / 1e6:.0f} MB, {peer.disk(house) / 1e6:.0f} MB on disk",
                flush=True,
            )
            peer.stop(house)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("quality", "speed"):
        verb = verbs.add_parser(name)
        if name == "speed":
            verb.add_argument("--corpus", type=Path)
            verb.add_argument("--messages", type=int, default=100_000)
        verb.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PEERS))
    verbs.add_parser("tune")
    verbs.add_parser("questions")
    verbs.add_parser("conversations")
    for name in ("questions", "conversations", "speed"):
        verbs.choices[name].add_argument("--meaning", action="store_true", help="with the extra `meaning`")
    told_to = parser.parse_args()
    os.environ["THRESHER_MEANING_ENABLED"] = "true" if getattr(told_to, "meaning", False) else "false"
    unknown = set(getattr(told_to, "peers", ())) - PEERS.keys()
    if unknown:
        parser.error(f"no peer is called {min(unknown)}; known are {', '.join(PEERS)}")
    match told_to.verb:
        case "quality":
            quality(told_to.peers)
            search_questions.report()
        case "conversations":
            search_conversations.report()
        case "questions":
            search_questions.report()
        case "tune":
            tune()
        case "speed":
            speed(told_to.corpus, told_to.messages, told_to.peers)


if __name__ == "__main__":
    main()
