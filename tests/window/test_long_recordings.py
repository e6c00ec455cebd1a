"""Law 8 on every long recorded session: between events, each request extends the previous one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.errors import ThresherError
from thresher.store import InMemoryContentStore
from thresher.window import Window

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
KINDS = {
    "claude_code": "anthropic",
    "codex": "openai-responses",
    "opencode": "openai-responses",
    "pi": "anthropic",
    "mini_swe": "openai-chat",
}
CALLS = 100
BUDGETS = (30_000, 140_000)


def recordings() -> list[str]:
    if not DATA.is_dir():
        return []
    rows = map(json.loads, (DATA / "index.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["file"] for row in rows if row["file"].split("/")[0] in KINDS and row["calls"] >= CALLS // 2]


def requests(history: th.History, wire: str) -> Iterator[tuple[list[Any], float]]:
    """Yield each request of a recorded loop with its time; the cache expires before every fortieth one."""
    rows = th.emit(th.repair(history, wire).history, wire, body=False)
    at = 0.0
    for number, turn in enumerate(th.parse(rows, wire).turns):
        at += 400.0 if number % 40 == 39 else 10.0
        if turn.start:
            yield rows[: turn.start], at


@pytest.mark.skipif(not DATA.is_dir(), reason="recorded sessions are not here (../shared/data)")
@pytest.mark.parametrize("file", recordings())
def test_the_prefix_of_each_request_stays_unchanged(file: str) -> None:
    wire = KINDS[file.split("/", maxsplit=1)[0]]
    try:
        sessions = th.read_all(DATA / file)
    except ThresherError as error:
        pytest.skip(str(error))
    long = [segment for one in sessions for segment in one.segments if len(segment.turns) >= CALLS]
    if not long:
        pytest.skip("no conversation in it has a hundred calls")
    for history in long:
        budget = BUDGETS[len(history) % 2]
        window = Window(budget=budget, store=InMemoryContentStore(), counter="estimate", format=wire)
        sent: list[Any] = []
        for request, at in requests(history, wire):
            before, events = sent, len(window.events)
            sent = window.fit(request, at=at)
            if len(window.events) == events:
                assert sent[: len(before)] == before
            else:
                assert th.check(th.parse(sent, wire), wire) == ()
        assert len(window.events) < len(history.turns) / 5
        again = Window(budget=budget, store=window.store, counter="estimate", format=wire, ledger=window.ledger)
        assert again.fit(request, at=at) == sent
