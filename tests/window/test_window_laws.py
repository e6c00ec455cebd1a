"""The laws of a window: in any loop, each request is legal, extends the previous one, and loses nothing."""

from pathlib import Path
from random import Random
from typing import Any

import loops
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import COLD, DIALECTS, MOVES, WARM, Story, Talk, Turn, Watched, requests, rows_in

import strategies
import working
from test_fitting_laws import OPTIONS, ROWS
from thresher.dialects import parse
from thresher.edits import repair
from thresher.errors import BudgetError
from thresher.model import Text, ToolResult
from thresher.policies import make_policy
from thresher.store import InMemoryContentStore, SqliteContentStore, exact_id
from thresher.window import Ledger, Thresholds, Window
from working import Step

FEW = settings(max_examples=6)
"""Strategy of long tables."""
SOME = settings(max_examples=15)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
any_dialect = st.sampled_from(DIALECTS)
stories = st.builds(Story, st.integers(0, 10**6), st.integers(1, 15))
paces = st.builds(
    Thresholds,
    keep_calls=st.integers(1, 3),
    min_saving=st.sampled_from((10, 200)),
    min_expected_calls=st.just(5),
    patience=st.sampled_from((0.0, 1.0)),
)
windows = st.fixed_dictionaries({"budget": st.integers(300, 6_000), "thresholds": paces})
shapes = st.fixed_dictionaries({"system": st.sampled_from(("", "You are careful.")), "body": st.booleans()})
gaps = st.lists(st.sampled_from((WARM, WARM, WARM, COLD)), min_size=1)
choices = st.randoms(use_true_random=False)


def policy_of(row: str) -> Any:
    kind, _, name = row.partition(" ")
    return name if kind == "preset" else make_policy(name, **OPTIONS.get(name, {}))


@each_dialect
@SOME
@given(story=stories, options=windows, shape=shapes, waits=gaps)
def test_the_laws_hold_call_by_call(
    dialect: str, story: Story, options: dict[str, Any], shape: dict[str, Any], waits: list[float]
) -> None:
    watched = Watched(dialect, **options)
    for number, request in enumerate(requests(dialect, story.beats, **shape)):
        watched.call(request, waits[number % len(waits)])


@pytest.mark.parametrize("row", ROWS)
@FEW
@given(dialect=any_dialect, story=stories, options=windows)
def test_the_laws_hold_with_every_policy(row: str, dialect: str, story: Story, options: dict[str, Any]) -> None:
    watched = Watched(dialect, policy=policy_of(row), **options)
    for request in requests(dialect, story.beats, system="You are careful."):
        watched.call(request)


@pytest.mark.parametrize("thinking", ["strip_after_edit", "append_only", "drop_block"])
@SOME
@given(dialect=any_dialect, story=stories, options=windows)
def test_the_laws_hold_with_every_rule_for_thinking(
    thinking: str, dialect: str, story: Story, options: dict[str, Any]
) -> None:
    watched = Watched(dialect, thinking=thinking, **options)
    for request in requests(dialect, story.beats):
        watched.call(request)


@pytest.mark.parametrize("move", MOVES)
@SOME
@given(dialect=any_dialect, story=stories, options=windows, shape=shapes, random=choices)
def test_the_laws_hold_when_the_loop_takes_another_branch(
    move: str, dialect: str, story: Story, options: dict[str, Any], shape: dict[str, Any], random: Random
) -> None:
    watched, talk = Watched(dialect, **options), Talk(dialect, **shape)
    for beat in story.beats:
        talk.add(beat)
        if random.random() < 0.3:
            MOVES[move](talk, random)
        if talk.awaits:
            watched.call(talk.request())


@each_dialect
@SOME
@given(story=stories, options=windows, shape=shapes)
def test_the_laws_hold_when_the_output_is_the_next_history(
    dialect: str, story: Story, options: dict[str, Any], shape: dict[str, Any]
) -> None:
    watched, talk, original = Watched(dialect, **options), Talk(dialect, **shape), Talk(dialect, **shape)
    for beat in story.beats:
        talk.add(beat)
        original.add(beat)
        if talk.awaits:
            talk.rows = list(rows_in(watched.call(talk.request()), dialect))
            before = repair(parse(original.request(), dialect), dialect).history
            loops.lost_never(before, parse(talk.request(), dialect), watched.store, watched.kept)


@each_dialect
@SOME
@given(story=stories, options=windows)
def test_a_repeated_request_gets_the_same_bytes(dialect: str, story: Story, options: dict[str, Any]) -> None:
    watched = Watched(dialect, **options)
    for request in requests(dialect, story.beats):
        first, events = watched.call(request), len(watched.window.events)
        again = watched.call(request, 0.0)
        same = loops.written(again, dialect) == loops.written(first, dialect)
        assert same or len(watched.window.events) > events


@each_dialect
@SOME
@given(story=stories, other_story=stories, at=st.integers(1, 9), options=windows, shared=st.booleans())
def test_forks_share_their_prefix_on_one_window_and_on_two_with_one_ledger(
    dialect: str, story: Story, other_story: Story, at: int, options: dict[str, Any], shared: bool
) -> None:
    store, ledger = InMemoryContentStore(), Ledger()
    one = Watched(dialect, store=store, ledger=ledger, shared=shared, **options)
    other = Watched(dialect, store=store, ledger=ledger, shared=shared, **options) if shared else one
    ways = (list(requests(dialect, story.beats)), list(requests(dialect, [*story.beats[:at], *other_story.beats])))
    for number in range(max(map(len, ways))):
        for watched, way in zip((one, other), ways, strict=True):
            if number < len(way):
                watched.call(way[number])


@each_dialect
@SOME
@given(story=stories, options=windows, at=st.integers(0, 12))
def test_a_window_resumes_from_a_saved_one(
    dialect: str, story: Story, options: dict[str, Any], at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    watched = Watched(dialect, **options)
    for number, request in enumerate(requests(dialect, story.beats)):
        if number == at:
            watched.window.save(folder / "saved")
            watched.restart(folder / "saved")
        watched.call(request)


@each_dialect
@FEW
@given(story=stories, options=windows)
def test_two_windows_on_one_file_send_the_same_bytes(
    dialect: str, story: Story, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shared")
    store = SqliteContentStore(folder / "store")
    both = [Watched(dialect, store=store, ledger=folder / "ledger", shared=True, **options) for _ in range(2)]
    for request in requests(dialect, story.beats):
        first, second = (loops.written(one.call(request), dialect) for one in both)
        late = both[1].window.events[-1:]
        assert first == second or (late and late[0].time == both[1].at)


@each_dialect
@SOME
@given(story=stories, options=windows)
def test_a_raising_window_raises_when_another_one_overflows(
    dialect: str, story: Story, options: dict[str, Any]
) -> None:
    sends = Watched(dialect, reads=False, **options)
    raises = Watched(dialect, reads=False, on_overflow="raise", **options)
    for request in requests(dialect, story.beats):
        sends.call(request)
        went_over = any(event.trigger == "overflow" and event.time == sends.at for event in sends.window.events)
        if went_over:
            with pytest.raises(BudgetError) as caught:
                raises.call(request)
            assert caught.value.smallest > raises.window.budget
            return
        raises.call(request)


@each_dialect
@SOME
@given(data=st.data(), budget=st.integers(20, 300))
def test_the_laws_hold_on_broken_histories(dialect: str, data: st.DataObject, budget: int) -> None:
    value = data.draw(strategies.WIRE[dialect] | strategies.ODD[dialect])
    key = strategies.DIALECTS[dialect].key
    rows = value[key] if isinstance(value, dict) else value
    watched = Watched(dialect, budget=budget)
    for length in range(1, len(rows) + 1 if isinstance(rows, list) else 1):
        watched.call({**value, key: rows[:length]} if isinstance(value, dict) else rows[:length])


@pytest.mark.parametrize("dialect", ["gemini", "openai-chat"])
@SOME
@given(story=stories, options=windows, shape=shapes)
def test_calls_without_ids_are_identified_by_earlier_rows(
    dialect: str, story: Story, options: dict[str, Any], shape: dict[str, Any]
) -> None:
    watched = Watched(dialect, **options)
    for request in requests(dialect, story.beats, named=False, **shape):
        watched.call(request)


@pytest.mark.parametrize("nothing", [[], {"messages": []}, {"contents": []}, {"input": []}])
def test_an_empty_history_stays_empty(nothing: Any) -> None:
    assert Window(store=InMemoryContentStore()).fit(nothing) is nothing


@each_dialect
@pytest.mark.parametrize("text", ["hi", working.LONG * 9])
def test_a_single_message_is_never_changed(dialect: str, text: str) -> None:
    watched = Watched(dialect, budget=100)
    request = Talk(dialect, body=False)
    request.add(text)
    assert watched.call(request.request()) == request.request()


@each_dialect
def test_old_results_are_removed_in_few_replans_and_can_be_restored(dialect: str, tmp_path: Path) -> None:
    """Check that the loop above exercises the window: it replans, seldom, and removed content can be restored."""
    turns = [Turn("", False, (Step("Read", f"src/{n}.py", f"{n} " + working.LONG, False),)) for n in range(20)]
    watched = Watched(
        dialect,
        budget=6_000,
        store=SqliteContentStore(tmp_path / "store"),
        thresholds=Thresholds(keep_calls=2, min_saving=200),
    )
    for request in requests(dialect, ["read them all", *turns]):
        sent = watched.call(request)
    assert 1 <= len(watched.window.events) <= 8
    assert len(str(sent)) < len(str(request)) / 2
    for turn in turns:
        part = ToolResult("", (Text(turn.steps[0].text),))
        assert str(sent).count(turn.steps[0].text[:9]) or watched.store.text(exact_id(part)) == turn.steps[0].text
