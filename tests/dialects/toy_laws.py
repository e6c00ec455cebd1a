"""Check all functions and laws on `toy_dialect`; `test_third_party_dialect` runs this file with the package."""

import json
from typing import Any

import loops
import pytest
import toy_dialect
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from loops import Story, Watched, requests

import oracle
import strategies
import test_fitting_laws
import thresher as th
from thresher.dialects import dialect_names
from thresher.model import History, Message, Text
from thresher.store import InMemoryContentStore
from thresher.transcripts import sniff

NAME = toy_dialect.NAME
Json = Any
SOME = settings(max_examples=5, deadline=None, phases=[Phase.generate])
LONG = "line after line\n" * 2_000


def card(sender: str, *pieces: Json, **more: Json) -> Json:
    return {"from": sender, "says": list(pieces), **more}


CARDS = [
    card("person", {"text": "what is in the log?"}),
    card("model", {"call": "c1", "tool": "Read", "with": {"path": "log"}}, {"text": "one moment"}),
    card("tools", {"result": "c1", "text": LONG, "seconds": 3}),
    card("model", {"text": "nothing of note"}, mood="calm"),
    card("person", {"text": "and in the other one?"}),
    card("model", {"call": "c2", "tool": "Read", "with": {"path": "other"}}),
    card("tools", {"result": "c2", "text": LONG}),
]


def tell(script: strategies.Script) -> list[Json]:
    """Emit a script in this dialect."""
    rows: list[Json] = []
    for one in script:
        calls = [{"call": call.id, "tool": call.name, "with": call.arguments} for call in one.calls]
        rows += [card("person", {"text": one.prompt}), card("model", {"text": one.said}, *calls)]
        rows += [card("tools", *[{"result": a.id, "text": a.text} for a in one.answers])] if one.answers else []
    return rows


def write_beat(beat: loops.Beat, number: int, _: bool) -> list[Json]:
    """Emit one step of a loop in this dialect."""
    if isinstance(beat, str):
        return [card("person", {"text": beat})]
    names = [f"call_{number + n}" for n in range(len(beat.steps))]
    calls = [
        {"call": name, "tool": step.tool, "with": {"what": step.what}}
        for name, step in zip(names, beat.steps, strict=True)
    ]
    said = [{"text": beat.said}] if beat.said or not calls else []
    results = [{"result": name, "text": step.text} for name, step in zip(names, beat.steps, strict=True)]
    return [card("model", *said, *calls), *([card("tools", *results)] if results else [])]


def find_faults(rows: list[Json]) -> list[str]:
    """Describe each violation, without the project's rules."""
    faults: list[str] = []
    waiting: set[str] = set()
    for row in rows:
        pieces = [piece for piece in row["says"] if isinstance(piece, dict)] if isinstance(row, dict) else []
        for piece in pieces:
            if "result" in piece:
                faults += [] if piece["result"] in waiting else [f"no call {piece['result']}"]
                waiting.discard(piece["result"])
            elif "\t" in str(piece.get("text")):
                faults.append("a tab")
        if waiting and row["from"] != "tools":
            faults.append(f"no result of {waiting}")
        waiting |= {piece["call"] for piece in pieces if "call" in piece}
    return [*faults, *waiting]


oracle.KEYS[NAME], oracle.JUDGES[NAME] = "cards", lambda rows: iter(find_faults(rows))
loops.KEYS[NAME], loops._WRITERS[NAME] = "cards", write_beat


def test_it_is_found_by_name_and_detected() -> None:
    assert NAME in dialect_names()
    assert sniff(CARDS) == sniff({"cards": CARDS}) == NAME


@pytest.mark.parametrize("value", [CARDS, {"cards": CARDS, "model": "ace", "tools": [{"name": "Read"}], "odd": 1}])
def test_parse_and_emit_are_lossless(value: Json) -> None:
    assert th.emit(th.parse(value), NAME) == value
    assert th.emit(th.parse(value, NAME), NAME) == value


@given(script=strategies.scripts())
def test_scripts_are_lossless(script: strategies.Script) -> None:
    rows = tell(script)
    assert th.emit(th.parse(rows, NAME), NAME) == rows


def test_check_and_repair_know_its_rules() -> None:
    broken = [*CARDS[:2], card("person", {"text": "a\tb"})]
    assert {one.rule for one in th.check(broken)} == {"unanswered-call", "tab"}
    repaired = th.repair(broken)
    assert {one.rule for one in repaired.repairs} == {"unanswered-call", "tab"}
    assert find_faults(th.emit(repaired.history, NAME)) == []
    assert th.check(CARDS) == ()


def test_fit_plan_and_count_work_on_its_messages() -> None:
    store = InMemoryContentStore()
    size = th.count(CARDS)
    budget = size * 2 // 3
    made = th.plan(CARDS, policy="smart", budget=budget, store=store)
    assert made.tokens_after <= budget < made.tokens_before == size
    small = th.fit(CARDS, policy="smart", budget=budget, store=store)
    assert th.count(small) <= budget
    assert small[0] == CARDS[0]
    assert small[-1]["says"][0]["result"] == "c2"
    assert find_faults(small) == []
    assert th.fit(small, policy="smart", budget=budget, store=store) == small


def test_a_window_keeps_its_requests_stable() -> None:
    window = th.Window(budget=60_000, store=InMemoryContentStore(), counter="estimate")
    body = {"cards": CARDS[:4], "model": "ace"}
    first = window.fit(body, at=1.0)
    second = window.fit({**body, "cards": CARDS}, at=2.0)
    assert second["cards"][: len(first["cards"])] == first["cards"]
    window.observe({"cards_in": 9_000, "cards_out": 5})


@pytest.mark.parametrize("row", test_fitting_laws.ROWS)
@SOME
@given(history=test_fitting_laws.histories, native=st.booleans(), budget=test_fitting_laws.budgets)
def test_the_laws_of_fitting_hold(row: str, history: History, native: bool, budget: int | None) -> None:
    if native:
        history = th.parse(th.emit(history, NAME, body=True), NAME)
    test_fitting_laws.judge(row, history, NAME, budget)


@SOME
@given(seed=st.integers(0, 10**6), length=st.integers(1, 15), budget=st.integers(300, 6_000), cold=st.booleans())
def test_the_laws_of_a_window_hold(seed: int, length: int, budget: int, cold: bool) -> None:
    watched = Watched(NAME, budget=budget)
    for request in requests(NAME, Story(seed, length).beats):
        watched.call(request, loops.COLD if cold else loops.WARM)


def test_other_dialects_convert_to_it_and_back() -> None:
    history = History((Message("user", (Text("hi"),)),))
    assert th.emit(history, NAME) == [card("person", {"text": "hi"})]
    assert json.loads(json.dumps(th.emit(th.parse(CARDS), "anthropic")))[0]["role"] == "user"
