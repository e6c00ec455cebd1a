"""Laws of `fit`, for every policy, preset, dialect and budget.

A new policy or preset is tested through its row in `POLICIES` or `PRESETS`. Only a policy that needs an option to do
anything needs an entry here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import oracle
import strategies
import working
from fixture_files import fixtures, ready
from thresher.budget import PRESETS, Settings, fit, fit_with_plan
from thresher.budget.escalation import make_step_policies, propose_edits
from thresher.dialects import emit, parse
from thresher.edits import Drop, Summarize, Truncate, apply, build_plan, check, find_pins, repair
from thresher.edits.placeholder import find_placeholder_ids
from thresher.errors import BudgetError, ReadError
from thresher.model import History, Part, Place, Session, part_text
from thresher.model.harness_text import extract_human_text
from thresher.model.parts import Thinking, ToolResult
from thresher.policies import POLICIES, make_policy
from thresher.store import InMemoryContentStore, exact_id, get_restorable_text
from thresher.store import InMemoryContentStore as MemoryStore
from thresher.tokens import default_token_weights
from thresher.transcripts import format_names, read_all
from thresher.window import Window

DIALECTS = (*format_names("wire"), None)
OPTIONS: dict[str, dict[str, Any]] = {
    "messages": {"empty": True, "longer_than": 300, "roles": ("tool",)},
    "tools": {"names": ("Read", "b*"), "categories": ("web",)},
    "sliding-window": {"budget": 200},
    "batch-summary": {"older_than": 2, "min_calls": 1, "max_distance": 4},
    "mask": {"keep": 1},
    "output": {"truncate_above": 2_000, "head": 300, "tail": 300},
    "exchanges": {"keep": 1},
    "edit-history": {"keep_all_edits": False, "keep_newest": 1},
}
"""Options for policies that do little or nothing by default."""
ROWS = (*(f"preset {name}" for name in PRESETS), *(f"policy {name}" for name in POLICIES))
each_row = pytest.mark.parametrize("row", ROWS)
each_preset = pytest.mark.parametrize("preset", PRESETS)
histories = working.sessions | strategies.told_histories() | strategies.jumbled_histories
SCALE = default_token_weights(counter="estimate")
"""Passed explicitly, so that it is equal before and after: random messages may name another model after an edit."""
budgets = st.none() | st.integers(0, 30_000)


@st.composite
def cases(draw: st.DrawFn) -> tuple[History, str | None]:
    """A history and its target API, often the one that it was recorded from."""
    dialect = draw(st.sampled_from(DIALECTS))
    history = draw(histories)
    if dialect is not None and draw(st.booleans()):
        history = working.native(history, dialect)
    return history, dialect


@each_row
@given(case=cases(), budget=budgets)
def test_the_laws_hold(row: str, case: tuple[History, str | None], budget: int | None) -> None:
    judge(row, *case, budget)


def judge(row: str, history: History, dialect: str | None, budget: int | None) -> None:
    """Check all laws on one history."""
    store = InMemoryContentStore()
    kind, _, name = row.partition(" ")
    policy = name if kind == "preset" else make_policy(name, **OPTIONS.get(name, {}))
    options: dict[str, Any] = {"policy": policy, "dialect": dialect, "scale": SCALE, "store": store}
    before = repair(history, dialect).history
    try:
        done = fit_with_plan(before, budget=budget, **options)
    except BudgetError as error:
        smallest = error.smallest
        assert smallest > (budget or 0)
        done = fit_with_plan(before, budget=smallest, **options)
    legal(done.history, dialect)
    pinned(before, done.history, lifts=done.plan.unpinned > 0)
    human_words_stay(before, done)
    grows_never(before, done)
    in_order(before, done.history)
    lost_never(before, done, store)
    never_silent(before, done)
    again = fit_with_plan(done.history, budget=done.plan.budget, **options)
    assert [message.parts for message in again.history] == [message.parts for message in done.history], "idempotent"
    assert fit_with_plan(history, budget=done.plan.budget, **options).plan.edits == done.plan.edits, "deterministic"


RECORDED = ("claude_code", "codex", "opencode", "pi", "mini_swe", "openai_tools", "gemini_contents", "cline_roo")


@pytest.mark.parametrize("folder", RECORDED)
def test_the_laws_hold_on_recorded_conversations(folder: str, shared_data: Path) -> None:
    files = sorted((shared_data / folder).iterdir(), key=lambda path: (path.stat().st_size, path.name))
    found = [session for path in files[:: max(1, len(files) // 12)] for session in _sessions(path)]
    chosen = [session.history for session in found if session.history.chains][:: max(1, len(found) // 24)]
    assert chosen
    for number, history in enumerate(chosen):
        size = SCALE.history(history)
        judge(
            ROWS[number % len(ROWS)],
            history,
            DIALECTS[number % len(DIALECTS)],
            (None, size // 3, size // 20)[number % 3],
        )


def _sessions(path: Path) -> list[Session]:
    try:
        return read_all(path)
    except ReadError:
        return []


def legal(history: History, dialect: str | None) -> None:
    """Law 1, by Thresher's rules and by an independent check of the emitted request."""
    assert check(history, dialect) == ()
    for name in [dialect] if dialect else format_names("wire"):
        assert oracle.violations(emit(history, name), name) == []


def pinned(before: History, after: History, *, lifts: bool) -> None:
    """Law 2: pinned parts are byte-identical; the last human message is, regardless of options."""
    if before.current is not None:
        said_last = [part for part in before.current.parts if not isinstance(part, ToolResult | Thinking)]
        words = [extract_human_text(part_text(part)) for part in said_last]
        said = [extract_human_text(part_text(part)) for message in after for part in message.parts]
        assert set(filter(None, words)) <= set(said)
    held = [part for place in find_pins(before) if part_text(part := before.part(place)).strip()]
    kept = {exact_id(part) for message in after for part in message.parts}
    missing = [part for part in held if not isinstance(part, ToolResult) and exact_id(part) not in kept]
    assert lifts or missing == []


def human_words_stay(before: History, done: Any) -> None:
    """Law 2: a person's words inside a result stay, unless the edit removes the exchange or the user named the tool."""
    released = {
        before.places[target]
        for edit in done.plan.edits
        if edit.removes_human_words
        for target in (edit.targets if isinstance(edit, Summarize) else (edit.target,))
    }
    texts = [part_text(part) for part in _parts(done.history)]
    chains = before.chain_at
    for place, (start, stop) in before.human_words.items():
        if place not in released and chains[place].call not in released:
            words = part_text(before.part(place))[start:stop].strip()
            assert any(words in text for text in texts), words


def grows_never(before: History, done: Any) -> None:
    """Law 3, and the plan's token counts are correct."""
    assert done.plan.tokens_before == SCALE.history(before)
    assert done.plan.tokens_after == SCALE.history(done.history)
    assert done.plan.tokens_after <= done.plan.tokens_before
    assert done.plan.budget is None or done.plan.tokens_after <= done.plan.budget
    for edit in done.plan.edits:
        assert edit.saved > 0 or (isinstance(edit, Drop | Truncate) and edit.before == 0)


def in_order(before: History, after: History) -> None:
    """Law 4: unchanged parts are a subsequence of the input."""
    came = {id(part): n for n, part in enumerate(_parts(before))}
    stayed = [came[id(part)] for part in _parts(after) if id(part) in came]
    assert stayed == sorted(stayed)


def lost_never(before: History, done: Any, store: InMemoryContentStore) -> None:
    """Law 6: every removed text, and every placeholder's content, can be restored by its id."""
    for edit in done.plan.edits:
        for target in edit.targets if isinstance(edit, Summarize) else (edit.target,):
            part = before.part(before.places[target])
            assert store.text(exact_id(part)) == get_restorable_text(part)
    came = {id_ for part in _parts(before) for id_ in find_placeholder_ids(part_text(part))}
    for part in _parts(done.history):
        for id_ in find_placeholder_ids(part_text(part)):
            assert id_ in came or store.text(id_)


def never_silent(before: History, done: Any) -> None:
    """Law 10: each part is unchanged, or an edit in the plan accounts for it."""
    edited: set[Place] = set()
    for edit in done.plan.edits:
        edited |= {
            before.places[target] for target in (edit.targets if isinstance(edit, Summarize) else (edit.target,))
        }
    untouched = [part for place, part in _placed(before) if place not in edited]
    left = {id(part) for part in _parts(done.history)}
    assert all(id(part) in left for part in untouched)


def _parts(history: History) -> list[Part]:
    return [part for message in history for part in message.parts]


def _placed(history: History) -> Sequence[tuple[Place, Part]]:
    return [(Place(i, j), part) for i, message in enumerate(history) for j, part in enumerate(message.parts)]


@given(history=working.sessions)
def test_signed_thinking_never_follows_an_edit_for_models_that_bind_it(history: History) -> None:
    done = fit_with_plan(history, policy="mask", thinking="strip_after_edit", budget="2M", store=InMemoryContentStore())
    if not done.plan.edits:
        return
    first = min(history.places[edit.target] for edit in done.plan.edits)
    kept = {id(part) for part in _parts(done.history)}
    behind = [part for place, part in _placed(history) if place > first and isinstance(part, Thinking)]
    assert not [part for part in behind if part.signature and id(part) in kept]


@given(history=working.sessions, policy=st.sampled_from(list(PRESETS)))
def test_append_only_changes_nothing_before_signed_thinking(history: History, policy: str) -> None:
    done = fit_with_plan(history, policy=policy, thinking="append_only", budget="2M", store=InMemoryContentStore())
    signed = [place for place, part in _placed(history) if isinstance(part, Thinking) and part.signature]
    edited = [history.places[edit.target] for edit in done.plan.edits]
    assert not signed or all(place > signed[-1] for place in edited)


@given(history=working.sessions)
def test_a_plan_applies_to_a_history_that_has_grown(history: History) -> None:
    done = fit_with_plan(history, policy="smart", store=InMemoryContentStore())
    grown = History((*repair(history).history.messages, *working.told([], system=False, summary=False, ends=True)))
    assert apply(grown, done.plan).messages[: len(done.history)] == done.history.messages


@pytest.mark.parametrize("dialect", format_names("wire"))
@given(history=working.sessions, policy=st.sampled_from(list(PRESETS)), budget=st.none() | st.integers(2_000, 9_000))
def test_fit_returns_the_shape_of_its_input_and_a_second_fit_changes_nothing(
    dialect: str, history: History, policy: str, budget: int | None
) -> None:
    messages = emit(history, dialect, body=True)
    store = MemoryStore()
    options: dict[str, Any] = {"policy": policy, "counter": "estimate", "store": store, "format": dialect}
    try:
        once = fit(messages, budget=budget, **options)
    except BudgetError:
        return
    assert type(once) is type(messages)
    assert set(once) <= set(messages)
    assert oracle.violations(once, dialect) == []
    assert fit(once, budget=budget, **options) == once


# --- law 3: unchanged if it fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", format_names("wire"))
@given(history=histories, spare=st.integers(0, 9_000))
def test_what_fits_the_budget_is_unchanged_if_no_policy_is_named(dialect: str, history: History, spare: int) -> None:
    legal = repair(working.native(history, dialect), dialect).history
    messages = emit(legal, dialect, body=True)
    options: dict[str, Any] = {"scale": SCALE, "format": dialect, "store": InMemoryContentStore()}
    budget = SCALE.history(parse(messages, dialect)) + spare
    assert fit(messages, budget=budget, **options) == messages
    assert fit_with_plan(legal, budget=SCALE.history(legal) + spare, scale=SCALE, dialect=dialect).history is legal


@pytest.mark.parametrize("name", format_names("transcript"))
def test_a_recorded_session_that_fits_is_the_same_object(name: str, tmp_path: Path) -> None:
    for path in fixtures(name):
        for session in read_all(ready(path, tmp_path), format=name):
            legal = structs.replace(session, segments=tuple(repair(one).history for one in session.segments))
            options: dict[str, Any] = {"budget": SCALE.history(legal.history), "scale": SCALE}
            for messages in (legal, legal.history):
                assert fit(messages, store=InMemoryContentStore(), **options) is messages
                assert fit(messages, store=InMemoryContentStore(), context_marks=("Fix",), **options) is messages


@pytest.mark.parametrize("dialect", format_names("wire"))
def test_messages_that_fit_are_the_same_object(dialect: str) -> None:
    history = working.told([working.Exchange("go", ())], system=True, summary=False, ends=True)
    for body in (True, False):
        messages = emit(history, dialect, body=body)
        store = InMemoryContentStore()
        assert fit(messages, budget=9_000, format=dialect, store=store) is messages
        assert fit(messages, budget=9_000, format=dialect, store=store, context_marks=("go",)) is messages


# --- law 7: the budget is used -----------------------------------------------------------------------------------


def large_result(tool: str, text: str, *, answered: bool) -> History:
    """Return a conversation that consists of one large result, which is new or has been answered."""
    turn = ("", False, (working.Step(tool, "src/a.py", text, False),))
    script = [working.Exchange("look at it", (turn,))]
    if answered:
        script = [working.Exchange("look at it", (turn, ("I see.", False, ()))), working.Exchange("go on", ())]
    return working.told(script, system=True, summary=False, ends=False)


def uses_the_budget(tokens: int, budget: int, wanted: int) -> None:
    """Law 7: 60 % of the budget is used if more than that was removed for it; `wanted` is what the policy leaves."""
    assert tokens <= budget
    assert wanted - tokens <= LEAST_USE * budget or tokens >= LEAST_USE * budget, (tokens, budget, wanted)


LEAST_USE = 0.6
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
         "lambda", "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau")  # fmt: skip
LINES: dict[str, Callable[[int], str]] = {
    "prose": lambda n: f"{WORDS[n % 19]} and {WORDS[n // 19 % 19]} went to {WORDS[n // 361 % 19]} in {WORDS[n % 7]}\n",
    "listing": lambda n: f"src/module_{n % 97}/part_{n:05}.py\n",
    "log": lambda n: f"2026-01-31T12:{n // 60 % 60:02}:{n % 60:02}Z step {n} took {n * 37 % 1_000} ms\n",
    "wide": lambda n: f"{chr(0x4E00 + n % 9_000)}{chr(0x4E00 + n * 7 % 9_000)}の文です。😀{n}\n",
    "json": lambda n: f'{{"id": {n}, "name": "{WORDS[n % 19]}", "tags": ["{WORDS[n % 7]}", null]}}, ',
    "pretty json": lambda n: f'  {{\n    "id": {n},\n    "name": "{WORDS[n % 19]}"\n  }},\n',
    "table": lambda n: f"-rw-r--r-- 1 root root {n * 7_919 % 100_003} Jan 31 12:{n % 60:02} file_{n}.txt\n",
    "digits": lambda n: f"{n * 7_919 % 100_003:x}",
}
"""Texts without repeated lines, by the number of a piece."""
big_texts = st.lists(st.tuples(st.sampled_from(list(LINES)), st.integers(800, 3_000)), min_size=1, max_size=3)
"""Pieces of a text: their kind and number."""
shares = st.floats(0.15, 0.95)
EXCLUDED_TOOLS = ("AskUserQuestion", "ExitPlanMode", "attempt_completion", "Write")
"""Tools whose whole result is a person's answer, and one with long arguments."""
tools = st.sampled_from([tool for tool in working.TOOLS if tool not in EXCLUDED_TOOLS])
"""Tools whose results may be edited and whose arguments are short."""


def written(pieces: list[tuple[str, int]]) -> str:
    return "".join("".join(map(LINES[kind], range(count))) for kind, count in pieces)


@each_preset
@given(dialect=st.sampled_from(DIALECTS), text=big_texts, tool=tools, answered=st.booleans(), share=shares)
def test_fit_uses_the_budget_for_a_large_result(
    preset: str, dialect: str | None, text: list[tuple[str, int]], tool: str, answered: bool, share: float
) -> None:
    history = large_result(tool, written(text), answered=answered)
    if dialect is not None:
        history = working.native(history, dialect)
    options: dict[str, Any] = {"policy": preset, "dialect": dialect, "scale": SCALE, "store": InMemoryContentStore()}
    budget = max(500, int(SCALE.history(history) * share))
    asked = propose_edits(history, make_step_policies(Settings().steps(preset)), SCALE, budget)
    wanted = build_plan(history, asked, SCALE).tokens_after
    uses_the_budget(fit_with_plan(history, budget=budget, **options).plan.tokens_after, budget, wanted)


@each_preset
@pytest.mark.parametrize("dialect", format_names("wire"))
@given(text=big_texts, tool=tools, answered=st.booleans(), share=shares)
def test_a_window_uses_the_budget_for_a_large_result(
    preset: str, dialect: str, text: list[tuple[str, int]], tool: str, answered: bool, share: float
) -> None:
    history = working.native(large_result(tool, written(text), answered=answered), dialect)
    wanted = SCALE.history(history)
    budget = max(500, int(wanted * share))
    window = Window(preset, budget=budget, scale=SCALE, format=dialect, store=InMemoryContentStore())
    uses_the_budget(SCALE.history(window.fit(history)), budget, wanted)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("tool", ["Bash", "Read", "WebFetch"])
@pytest.mark.parametrize(("lines", "count", "share"), [("prose", 5_000, 0.6), ("listing", 20_000, 0.1)])
def test_one_large_result_fills_the_budget_with_head_and_tail(
    lines: str, count: int, share: float, tool: str, answered: bool
) -> None:
    text = "".join(map(LINES[lines], range(count)))
    history = large_result(tool, text, answered=answered)
    budget = int(SCALE.history(history) * share)
    store = InMemoryContentStore()
    window = Window(budget=budget, scale=SCALE, store=store)
    for after in (fit(history, budget=budget, scale=SCALE, store=store), window.fit(history)):
        assert LEAST_USE * budget <= SCALE.history(after) <= budget
        (result,) = [part for part in _parts(after) if isinstance(part, ToolResult)]
        head, _, tail = result.text.partition("\n[thresher ")
        assert text.startswith(head)
        assert text.endswith(tail.partition("]\n")[2])
        assert len(head) == pytest.approx(len(tail), rel=0.05)


def test_a_second_fit_by_exchanges_changes_nothing() -> None:
    long = "The quick brown fox jumps over the lazy dog, line after line.\n" * 40
    reads = (working.Step("Read", "src/a.py", "done", False),) * 2
    history = working.told(
        [
            working.Exchange("fix the bug in a.py", (("", False, reads),)),
            working.Exchange(long, (("", False, ()),)),
            working.Exchange("fix the bug in a.py", (("", False, ()),)),
        ],
        system=False,
        summary=False,
        ends=False,
    )
    messages = emit(history, "openai-chat", body=True)
    options: dict[str, Any] = {"policy": "exchanges", "counter": "estimate", "store": InMemoryContentStore()}
    once = fit(messages, format="openai-chat", **options)
    assert fit(once, format="openai-chat", **options) == once
