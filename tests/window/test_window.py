"""Every trigger of a window, and the requests that stay unchanged, in loops small enough to follow."""

from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.dialects.cache_control import strip_cache_breakpoints
from thresher.errors import BudgetError, FormatError, OptionError
from thresher.model.message import Usage
from thresher.store import InMemoryContentStore, SqliteContentStore, StoreError
from thresher.window import Ledger, LedgerError, Prices, Thresholds, Window
from thresher.window.refetches import BASE_PIN_CALLS, RefetchTracker
from thresher.window.usage import parse_provider_usage

EAGER = Thresholds(keep_calls=1, min_saving=50, patience=0, min_expected_calls=50)
PATIENT = Thresholds(keep_calls=5, min_saving=50, patience=1, min_expected_calls=50)


class Loop:
    """A conversation of an agent with Anthropic's API that grows call by call."""

    def __init__(self, ask: str = "Find the fault.") -> None:
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": ask}]
        self.count = 0

    def step(
        self, text: str = "", *, words: int = 200, thought: str = "", name: str = "Bash", **arguments: Any
    ) -> None:
        """Add a call and its result."""
        self.count += 1
        call: dict[str, Any] = {"type": "tool_use", "id": f"call_{self.count}", "name": name}
        call["input"] = arguments or {"command": f"run {self.count}"}
        thinking = [{"type": "thinking", "thinking": thought, "signature": f"sig-{thought}"}] if thought else []
        self.messages.append({"role": "assistant", "content": [*thinking, call]})
        content = text or " ".join(f"word{self.count}x{n}" for n in range(words))
        result = {"type": "tool_result", "tool_use_id": f"call_{self.count}", "content": content}
        self.messages.append({"role": "user", "content": [result]})

    def say(self, answer: str, prompt: str) -> None:
        """Add an answer and the next human message."""
        self.messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": prompt}]


def make_window(**options: Any) -> Window:
    given: dict[str, Any] = {
        "budget": 100_000,
        "store": InMemoryContentStore(),
        "counter": "estimate",
        "thresholds": EAGER,
        "prices": Prices(minimum=1),
    }
    options = given | options
    return Window(options.pop("policy", "auto"), **options)


def triggers(window: Window) -> list[str]:
    return [event.trigger for event in window.events]


def test_a_request_that_fits_is_unchanged_while_no_replan_pays() -> None:
    loop, window = Loop(), make_window()
    loop.step(words=5)
    assert window.fit(loop.messages, at=0) is loop.messages
    assert window.events == []


def test_between_events_each_request_extends_the_previous_one() -> None:
    loop, window = Loop(), make_window(thresholds=PATIENT)
    sent: list[Any] = []
    changes = 0
    for call in range(60):
        loop.step()
        before, events = sent, len(window.events)
        sent = window.fit(loop.messages, at=call)
        if len(window.events) == events:
            assert sent[: len(before)] == before
        else:
            changes += 1
    assert 2 <= changes <= 12
    assert len(str(sent)) < len(str(loop.messages)) / 2


def test_a_patient_window_replans_less_often_than_an_eager_one() -> None:
    counts = []
    for pace in (EAGER, PATIENT, Thresholds(keep_calls=5, min_saving=50, patience=4, min_expected_calls=50)):
        loop, window = Loop(), make_window(thresholds=pace)
        for call in range(60):
            loop.step()
            window.fit(loop.messages, at=call)
        counts.append(len(window.events))
    assert counts[0] > counts[1] > counts[2] > 0


def test_a_cold_cache_makes_any_edit_free() -> None:
    loop, window = Loop(), make_window(thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000))
    for call in range(8):
        loop.step()
        window.fit(loop.messages, at=call)
    assert triggers(window) == []
    loop.step()
    window.fit(loop.messages, at=1_000)
    assert triggers(window) == ["cold"]
    assert window.events[0].cost < 0 < window.events[0].saving_per_call


def test_a_changed_system_text_triggers_pending_edits() -> None:
    loop, window = Loop(), make_window(thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000))
    for call in range(8):
        loop.step()
        window.fit({"system": "Be brief.", "messages": loop.messages}, at=call)
    window.fit({"system": "Be brief. It is Monday.", "messages": loop.messages}, at=9)
    assert triggers(window) == ["piggyback"]


def test_a_new_human_message_is_a_boundary() -> None:
    triggered = []
    for speaks in (False, True):
        loop, window = (
            Loop(),
            make_window(
                thresholds=Thresholds(
                    keep_calls=2, min_saving=50, patience=5, prompt_patience_share=0.01, min_expected_calls=50
                )
            ),
        )
        for call in range(8):
            loop.step()
            window.fit(loop.messages, at=call)
        assert triggers(window) == []
        if speaks:
            loop.say("Found it.", "Now mend it.")
        else:
            loop.step()
        window.fit(loop.messages, at=9)
        triggered.append(triggers(window))
    assert triggered == [[], ["boundary"]]


def test_the_high_water_mark_triggers_a_replan_to_the_low_one() -> None:
    loop, window = (
        Loop(),
        make_window(
            budget=4_000,
            thresholds=Thresholds(keep_calls=2, min_saving=50, patience=1_000, low_water=0.5, high_water=0.9),
        ),
    )
    for call in range(40):
        loop.step(words=60)
        window.fit(loop.messages, at=call)
        assert th.count(th.parse(window.fit(loop.messages, at=call)), counter="estimate") <= 4_000
    assert "high_water" in triggers(window)
    assert set(triggers(window)) <= {"high_water", "emergency"}
    assert [event.tokens_after for event in window.events if event.tokens_after > 3_000] == []


def test_an_oversized_new_result_is_truncated_at_once() -> None:
    loop, window = Loop(), make_window(budget=3_000)
    loop.step(words=20)
    before = list(window.fit(loop.messages, at=0))
    loop.step(words=6_000)
    after = window.fit(loop.messages, at=1)
    assert triggers(window) == ["oversized_result"]
    assert after[: len(before)] == before
    text = after[-1]["content"][0]["content"]
    assert text.startswith("word2x0 ")
    assert text.endswith("word2x5999")
    part = window.events[0].removed_ids[0]
    assert th.restore(part, store=window.store) == loop.messages[-1]["content"][0]["content"]


def test_an_overflow_is_an_event_or_an_error() -> None:
    loop = Loop("word " * 2_000)
    loop.step(words=3_000)
    window = make_window(budget=500)
    sent = window.fit(loop.messages, at=0)
    assert th.check(th.parse(sent), "anthropic") == ()
    assert triggers(window)[-1] == "overflow"
    with pytest.raises(BudgetError, match="smallest"):
        make_window(budget=500, on_overflow="raise").fit(loop.messages, at=0)


def test_a_refetched_result_stays_for_a_while() -> None:
    loop, window = (
        Loop(),
        make_window(
            budget=6_000, thresholds=Thresholds(keep_calls=1, min_saving=50, patience=0, min_expected_calls=50)
        ),
    )
    content = " ".join(f"needed{n}" for n in range(150))
    loop.step(content, name="Read", file_path="/a.py")
    for call in range(10):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    assert content not in str(sent)
    for again, stays in ((1, BASE_PIN_CALLS), (2, 2 * BASE_PIN_CALLS)):
        loop.step(content, name="Read", file_path="/a.py")
        seen = []
        for call in range(10 * again, 10 * again + 3 * BASE_PIN_CALLS):
            seen.append(str(window.fit(loop.messages, at=call)).count(content))
            loop.step()
        assert seen[:stays] == [1] * stays
        assert seen[-1] == 0


@pytest.mark.parametrize("policy", ["auto", "batch-summary"])
def test_a_replan_saves_as_much_as_its_reason_says(policy: str) -> None:
    """A summary begins in a message that is shorter than itself, but it saves in the messages after that one."""
    loop, window = Loop(), make_window(policy=policy)
    for call in range(30):
        loop.step()
        window.fit(loop.messages, at=call)
    assert "summarize" in {kind for event in window.events for kind in event.edits}
    for event in window.events:
        assert f" {event.saved:,} " in event.reason


def test_a_result_refetched_by_its_id_stays_for_a_while() -> None:
    loop, window = Loop(), make_window()
    content = "; ".join(f"needed{n}" for n in range(150))
    loop.step(content)
    for call in range(10):
        loop.step()
        window.fit(loop.messages, at=call)
    loop.step(content, name="restore", id=window.events[0].removed_ids[0])
    for call in range(10, 10 + BASE_PIN_CALLS - 1):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    assert str(sent).count(content) == 1


def test_a_fruitless_replan_is_not_tried_with_each_call() -> None:
    loop = Loop()
    tried: list[int] = []

    def nothing(history: th.History) -> list[Any]:
        tried.append(len(history))
        return []

    window = make_window(policy=nothing)
    for call in range(64):
        loop.step()
        window.fit(loop.messages, at=call)
    assert 1 <= len(tried) <= 12


def test_a_fruitless_replan_above_the_high_water_mark_is_not_tried_with_each_call() -> None:
    tried: list[int] = []

    def propose_nothing(history: th.History) -> list[th.Edit]:
        tried.append(th.count(history, counter="estimate"))
        return []

    thresholds = Thresholds(keep_calls=50, patience=1_000)
    loop = Loop("some words " * 4_050)
    window = make_window(policy=propose_nothing, budget=10_000, thresholds=thresholds)
    for call in range(10):
        loop.step("done")
        window.fit(loop.messages, at=call)
        assert not tried or 9_000 < tried[-1] <= 10_000
    assert 1 <= len(tried) < 4


def test_pins_of_an_older_ledger_are_decoded() -> None:
    ledger = Ledger(None)
    for number, value in enumerate((True, None, [1], ["a", 1], [3, 2])):
        ledger.set_fact(f"pin:t1:{number}", value)
    tracker = RefetchTracker(ledger)
    tracker.load_pins()
    assert tracker.pinned_contents(4) == {f"t1:{n}" for n in range(5)}
    assert tracker.pinned_contents(BASE_PIN_CALLS + 1) == {"t1:4"}
    assert tracker.pinned_contents(1) == {f"t1:{n}" for n in range(4)}


def test_a_rewind_finds_the_edits_of_that_time() -> None:
    loop, window = Loop(), make_window(thresholds=PATIENT)
    history: dict[int, tuple[int, Any]] = {}
    for call in range(40):
        loop.step()
        sent = window.fit(loop.messages, at=call)
        history[len(loop.messages)] = (len(window.events), sent)
    rewound = loop.messages[:41]
    again = make_window(thresholds=Thresholds(min_saving=10**9), store=window.store, ledger=window.ledger)
    assert again.fit(rewound, at=39) == history[41][1]
    loop.messages = [*rewound, {"role": "assistant", "content": "Otherwise."}, {"role": "user", "content": "Go on."}]
    after = window.fit(loop.messages, at=41)
    assert th.check(th.parse(after), "anthropic") == ()
    assert len(str(after)) <= len(str(loop.messages))


def test_two_windows_with_one_ledger_send_the_same_bytes(tmp_path: Path) -> None:
    store = SqliteContentStore(tmp_path / "store.sqlite3")
    first = make_window(ledger=tmp_path / "ledger.sqlite3", store=store, thresholds=PATIENT)
    second = make_window(ledger=tmp_path / "ledger.sqlite3", store=store, thresholds=PATIENT)
    loop = Loop()
    for call in range(50):
        loop.step()
        window, other = (first, second) if call % 3 else (second, first)
        assert window.fit(loop.messages, at=call) == other.fit(loop.messages, at=call)
    assert first.events
    assert second.events


def test_a_window_resumes_from_a_saved_ledger(tmp_path: Path) -> None:
    loop, window = Loop(), make_window(thresholds=PATIENT)
    for call in range(30):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    window.save(tmp_path / "loop.ledger")
    loaded = Window.load(
        tmp_path / "loop.ledger", budget=100_000, store=window.store, counter="estimate", thresholds=PATIENT
    )
    assert loaded.fit(loop.messages, at=30) == sent
    assert loaded.events == []
    with pytest.raises(LedgerError, match="no ledger found"):
        Window.load(tmp_path / "nowhere")


def test_a_new_process_knows_that_the_cache_is_warm(tmp_path: Path) -> None:
    never = Thresholds(keep_calls=1, min_saving=50, patience=1_000)
    loop, window = Loop(), make_window(ledger=tmp_path / "ledger", thresholds=never)
    for _ in range(8):
        loop.step()
    window.fit(loop.messages, at=0)
    loop.step()
    warm = make_window(ledger=tmp_path / "ledger", thresholds=never, store=window.store)
    warm.fit(loop.messages, at=100)
    assert triggers(warm) == []
    cold = make_window(ledger=tmp_path / "ledger", thresholds=never, store=window.store)
    cold.fit(loop.messages, at=10_000)
    assert triggers(cold) == ["cold"]


def test_a_window_is_not_loaded_from_a_file_that_is_not_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no database at all, but long enough to be looked into " * 20)
    with pytest.raises(LedgerError, match="other"):
        Window.load(tmp_path / "other")


def test_edits_wait_until_the_store_can_be_written() -> None:
    class Full(InMemoryContentStore):
        def put(self, *_: Any, **__: Any) -> None:
            raise StoreError("the disk is full")

    loop, window = Loop(), make_window(store=Full())
    for call in range(10):
        loop.step()
        assert window.fit(loop.messages, at=call) == loop.messages
    assert set(triggers(window)) == {"store"}


def test_the_output_may_be_fed_back_as_the_history() -> None:
    loop, window = Loop(), make_window(thresholds=PATIENT)
    messages: list[Any] = loop.messages
    before: list[Any] = []
    for call in range(50):
        loop.messages = list(messages)
        loop.step()
        events = len(window.events)
        messages = window.fit(loop.messages, at=call)
        if len(window.events) == events:
            assert messages[: len(before)] == before
        before = messages
        assert th.check(th.parse(messages), "anthropic") == ()
    assert 2 <= len(window.events) <= 12


# Thinking bound to the content before it


def thinking_loop() -> Loop:
    loop = Loop()
    for n in range(8):
        loop.step(thought=f"thought {n}")
    return loop


def has_thinking(sent: Any) -> int:
    return sum(
        block["type"] == "thinking" for row in sent for block in row["content"] if isinstance(row["content"], list)
    )


def test_bound_thinking_in_an_open_loop_holds_edits_back() -> None:
    loop, window = thinking_loop(), make_window(model="claude-opus-5-5")
    assert window.fit(loop.messages, at=0) == loop.messages
    loop.say("Done.", "Go on.")
    sent = window.fit(loop.messages, at=1_000)
    assert triggers(window) == ["cold"]
    assert has_thinking(sent) < 8


def test_thinking_after_an_edit_is_bound_to_the_sent_request_and_stays() -> None:
    loop, window = thinking_loop(), make_window(model="claude-opus-5-5")
    loop.say("Done.", "Go on.")
    window.fit(loop.messages, at=0)
    for n in range(3):
        loop.step(thought=f"later {n}")
        sent = window.fit(loop.messages, at=1 + n)
    assert has_thinking(sent[-6:]) == 3


@pytest.mark.parametrize(("rule", "fits", "kept"), [("append_only", False, 8), ("strip_after_edit", True, 1)])
def test_an_emergency_in_an_open_loop_follows_the_thinking_rule(rule: Any, fits: bool, kept: int) -> None:
    loop, window = thinking_loop(), make_window(model="claude-opus-5-5", thinking=rule, budget=2_500)
    sent = window.fit(loop.messages, at=0)
    assert ("overflow" not in triggers(window)) == fits
    assert has_thinking(sent) == kept if rule == "append_only" else has_thinking(sent) <= kept


def test_drop_block_asks_the_api_to_drop_unbound_thinking() -> None:
    loop, window = thinking_loop(), make_window(model="claude-opus-5-5", thinking="drop_block", budget=2_500)
    body: dict[str, Any] = {"messages": loop.messages, "thinking": {"type": "adaptive"}}
    sent = window.fit(body, at=0)
    assert has_thinking(sent["messages"]) >= 1
    assert sent["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    assert sent["thinking"]["type"] == "adaptive"
    assert body["thinking"] == {"type": "adaptive"}


# Usage


@pytest.mark.parametrize(
    "value",
    [
        Usage(100, 7, 900, 0),
        {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 0},
        {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}},
        {"input_tokens": 1000, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 900}},
        {"promptTokenCount": 1000, "candidatesTokenCount": 7, "cachedContentTokenCount": 900},
    ],
)
def test_the_usage_of_every_api_is_parsed(value: Any) -> None:
    assert parse_provider_usage(value) == Usage(100, 7, 900, 0)


def test_an_unrecognized_usage_object_is_rejected() -> None:
    with pytest.raises(OptionError, match="unrecognized usage object"):
        parse_provider_usage({"tokens": 3})
    with pytest.raises(OptionError, match="call `fit` before `observe`"):
        make_window().observe(Usage(1))


def test_usage_calibrates_the_budget() -> None:
    loop, window = Loop(), make_window(budget=10_000, thresholds=Thresholds(patience=1_000))
    for call in range(10):
        loop.step(words=20)
        sent = window.fit(loop.messages, at=call)
        counted = th.count(th.parse(sent), counter="estimate")
        window.observe(Usage(input=2_000 + 2 * counted))
    assert window.budget == pytest.approx(4_000, rel=0.05)


def test_a_late_cache_hit_extends_the_lifetime() -> None:
    loop, window = Loop(), make_window(prices=Prices(life=300, minimum=10), thresholds=Thresholds(patience=1_000))
    for call in range(4):
        loop.step()
        sent = window.fit(loop.messages, at=call * 1_000)
        window.observe(Usage(input=10, cache_read=0 if call == 0 else th.count(th.parse(sent))))
    assert window.prices.life == 1_000


def test_a_cache_that_never_hits_counts_as_expired() -> None:
    loop, window = Loop(), make_window(prices=Prices(life=300, minimum=10), thresholds=Thresholds(patience=1_000))
    for call in range(3):
        loop.step()
        window.fit(loop.messages, at=call * 20)
        assert window.prices.life == 300
        window.observe(Usage(input=1_000))
    assert window.prices.life == 20


# Input


def test_sdk_objects_are_accepted_and_returned_unchanged() -> None:
    class Block:
        def __init__(self, **fields: Any) -> None:
            self.fields = fields

        def model_dump(self, **_: Any) -> dict[str, Any]:
            return self.fields

    loop, window = Loop(), make_window()
    for call in range(12):
        loop.step()
        answer = loop.messages[-2]
        loop.messages[-2] = {**answer, "content": [Block(**block) for block in answer["content"]]}
        sent = window.fit(loop.messages, at=call)
    assert window.events
    assert sent[-2] is loop.messages[-2]


@pytest.mark.parametrize("wrong", [[{"a": 1}], {"messages": "text"}, [object()]])
def test_input_that_is_not_a_conversation_is_rejected(wrong: Any) -> None:
    with pytest.raises(FormatError):
        make_window().fit(wrong, at=0)


@pytest.mark.parametrize(
    "options",
    [
        {"on_overflow": "die"},
        {"cache_breakpoints": "none"},
        {"cache_ttl": "2h"},
        {"summaries": "soon"},
        {"thinking": "loud"},
        {"budgets": 3},
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        make_window(**options).fit(Loop().messages, at=0)


@pytest.mark.parametrize("pace", [{"low_water": 0.9, "high_water": 0.5}, {"keep_calls": -1}, {"high_water": 2}])
def test_invalid_thresholds_are_rejected(pace: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Thresholds(**pace)


# Summarizer and judge


def test_a_late_summary_enters_at_the_next_replan() -> None:
    window = make_window(
        budget=3_000, policy="auto", thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000)
    )
    loop = Loop()
    for call in range(60):
        loop.step(words=40)
        window.fit(loop.messages, at=call)
        if window.requests:
            break
    request = window.requests[0]
    before = window.fit(loop.messages, at=call)
    window.fill(request.id, "I looked at everything and found nothing.")
    assert window.fit(loop.messages, at=call) == before
    assert request not in window.requests
    for later in range(call + 1, call + 60):
        loop.step(words=40)
        sent = window.fit(loop.messages, at=later)
        if "found nothing" in str(sent):
            return
    raise AssertionError("the summary never came in")


def test_a_blocking_summarizer_writes_before_the_loop_continues() -> None:
    class Writer:
        name = "writer"

        def __call__(self, *_: Any, limit: int) -> str:
            return "I did things."[:limit]

    window = make_window(
        budget=3_000,
        thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000),
        summarizer=Writer(),
        summaries="blocking",
    )
    loop = Loop()
    for call in range(60):
        loop.step(words=40)
        sent = window.fit(loop.messages, at=call)
    assert "I did things." in str(sent)
    assert window.requests == ()


def test_a_chain_kept_by_the_judge_stays_and_is_judged_once() -> None:
    judged: list[str] = []

    def judge(history: th.History, links: Any) -> dict[Any, bool]:
        judged.extend(link.call.arguments for link in links)
        return {history.occurrence(link.chain.call): "run 3" in link.call.arguments for link in links}

    loop, window = Loop(), make_window(judge=judge)
    for call in range(20):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    assert "word3x199" in str(sent)
    assert "word4x199" not in str(sent)
    assert len(judged) == len(set(judged))


def test_a_ledger_in_memory_can_be_shared() -> None:
    ledger = Ledger()
    loop = Loop()
    for _ in range(12):
        loop.step()
    first = make_window(ledger=ledger)
    sent = first.fit(loop.messages, at=0)
    assert triggers(first) == ["cold"]
    assert make_window(ledger=ledger, store=first.store).fit(loop.messages, at=1) == sent


# Edge cases


class Thing:
    """An SDK object."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.fields


def test_a_body_may_hold_objects_as_rows() -> None:
    messages: list[Any] = [{"role": "user", "content": "Find it."}]
    window = make_window()
    for call in range(12):
        calls = [{"id": f"c{call}", "type": "function", "function": {"name": "run", "arguments": "{}"}}]
        messages.append(Thing(role="assistant", content=None, tool_calls=calls))
        messages.append({"role": "tool", "tool_call_id": f"c{call}", "content": "word " * 300})
        sent = window.fit({"model": "gpt-5", "messages": messages}, at=call)
    assert window.events
    assert sent["messages"][-2] is messages[-2]


def test_another_model_has_another_cache_and_another_budget() -> None:
    loop, window = (
        Loop(),
        make_window(budget=None, prices=None, thresholds=Thresholds(keep_calls=4, min_saving=50, patience=1_000)),
    )
    for call in range(8):
        loop.step(words=600)
        window.fit({"model": "claude-sonnet-4-5", "messages": loop.messages}, at=call)
    before = (window.budget, window.prices)
    assert triggers(window) == []
    window.fit({"model": "claude-haiku-5-5", "messages": loop.messages}, at=9)
    assert (window.budget, window.prices) != before
    assert triggers(window) == ["cold"]


def test_budget_and_prices_are_known_before_the_first_request() -> None:
    assert Window(budget=5_000).budget == 5_000
    for budget in (0, "0k", -5):
        with pytest.raises(OptionError, match="budget"):
            Window(budget=budget)
    assert Window(model="claude-sonnet-4-5").prices.write == 3.75


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "nothing"},
        {"counter": "abacus"},
        {"format": "claude-code"},
        {"thresholds": {"high_water": 0.8}},
        {"judge": "me"},
    ],
)
def test_wrong_options_are_rejected_by_the_constructor(options: dict[str, Any]) -> None:
    with pytest.raises(th.ThresherError):
        Window(**options)


@pytest.mark.parametrize("body", [{"input": "Hello"}, {"contents": "Hello"}, {"messages": []}, []])
def test_requests_with_nothing_to_fit_are_unchanged(body: Any) -> None:
    assert make_window().fit(body, at=0) is body


def test_plain_messages_may_turn_out_to_be_of_another_dialect() -> None:
    window = make_window()
    messages: list[Any] = [{"role": "user", "content": "Hi."}]
    window.fit(messages, at=0)
    loop = Loop("Hi.")
    loop.step()
    assert th.check(th.parse(window.fit(loop.messages, at=1)), "anthropic") == ()
    messages.append({"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    ]})  # fmt: skip
    messages.append({"role": "tool", "tool_call_id": "a", "content": "ok"})
    assert window.fit(messages, at=2) == messages


def test_a_failing_helper_is_reported_and_does_not_stop_the_loop() -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("out of order")

    window = make_window(
        budget=3_000,
        thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000),
        summarizer=broken,
        summaries="blocking",
        judge=broken,
    )
    loop = Loop()
    for call in range(60):
        loop.step(words=40)
        window.fit(loop.messages, at=call)
    value = [event.reason for event in window.events if event.trigger == "helper"]
    assert any("judge" in why and "out of order" in why for why in value)
    assert any("summary" in why and "out of order" in why for why in value)
    assert window.ledger.find_facts("verdict:") == {}


def test_a_second_read_of_the_same_file_pins_its_content() -> None:
    loop, window = Loop(), make_window()
    content = "; ".join(f"needed{n}" for n in range(150))
    loop.step("first look: " + content, name="Read", file_path="/a.py")
    for call in range(10):
        loop.step()
        window.fit(loop.messages, at=call)
    loop.step(content, name="Read", file_path="/a.py", limit=100)
    for call in range(10, 10 + BASE_PIN_CALLS - 1):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    assert str(sent).count(content) == 1


def test_a_rewind_keeps_the_edits_that_apply_to_its_past() -> None:
    loop, window = Loop(), make_window()
    for call in range(20):
        loop.step()
        before = window.fit(loop.messages, at=call)
    loop.messages = [*loop.messages[:31], {"role": "assistant", "content": "So."}, {"role": "user", "content": "On."}]
    after = window.fit(loop.messages, at=21)
    assert triggers(window)[-1] == "piggyback"
    shared = next(n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    assert window.events[-1].first_changed <= shared
    assert shared >= 3
    assert len(str(after)) < len(str(loop.messages)) / 2


def test_an_event_names_the_first_message_that_changed() -> None:
    loop, window = Loop(), make_window(thresholds=Thresholds(keep_calls=2, min_saving=50, patience=1_000))
    for _ in range(6):
        loop.step()
    window.fit(loop.messages, at=0)
    sent = window.fit(loop.messages, at=0)
    first = next(n for n, (a, b) in enumerate(zip(loop.messages, sent, strict=False)) if a != b)
    assert window.events[0].first_changed == first > 0


def test_a_pin_yields_when_the_request_must_fit() -> None:
    loop, window = Loop(), make_window(budget=2_500)
    content = " ".join(f"needed{n}" for n in range(150))
    for call in range(3):
        loop.step(content, name="Read", file_path="/a.py")
        loop.step(words=60)
        window.fit(loop.messages, at=call)
    for call in range(3, 40):
        loop.step(words=100)
        sent = window.fit(loop.messages, at=call)
        assert th.count(th.parse(sent), counter="estimate") <= 2_500
    assert "overflow" not in triggers(window)


def test_half_of_the_expected_cached_tokens_counts_as_a_hit() -> None:
    for read, life in ((0.6, 1_000), (0.4, 300)):
        loop, window = (
            Loop(),
            make_window(prices=Prices(life=300, minimum=10), thresholds=Thresholds(patience=1_000, keep_calls=50)),
        )
        before = 0
        for call in range(3):
            loop.step()
            sent = window.fit(loop.messages, at=call * 1_000)
            window.observe(Usage(input=10, cache_read=int(read * before)))
            before = th.count(th.parse(sent), counter="estimate")
        assert window.prices.life == life


def test_one_implausible_usage_does_not_shrink_the_budget_to_nothing() -> None:
    loop, window = Loop(), make_window(budget=10_000)
    window.fit(loop.messages, at=0)
    window.observe(None)
    assert window.budget == 10_000
    window.observe(Usage(input=150_000))
    assert window.budget == 2_500


def test_a_forked_process_sees_later_replans(tmp_path: Path) -> None:
    import os  # noqa: PLC0415 - only here

    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    store = SqliteContentStore(tmp_path / "store")
    loop, window = (
        Loop(),
        make_window(
            ledger=tmp_path / "ledger", store=store, thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000)
        ),
    )
    for _ in range(8):
        loop.step()
    window.ledger.latest_replan([b"nothing"])
    pid = os.fork()
    if pid == 0:
        deadline = 100
        while deadline and not (tmp_path / "decided").exists():
            deadline -= 1
            os.sched_yield()
            __import__("time").sleep(0.05)
        other = make_window(ledger=window.ledger, store=store, thresholds=Thresholds(min_saving=10**9))
        os._exit(0 if other.fit(loop.messages, at=1) != loop.messages else 3)
    window.fit(loop.messages, at=0)
    (tmp_path / "decided").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_text_for_an_unknown_summary_request_is_rejected() -> None:
    with pytest.raises(OptionError, match="no open summary request"):
        make_window().fill("t1:0123456789abcdef", "text")


def test_a_failed_save_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match="name another file"):
        make_window().save(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_removed_thinking_never_comes_back() -> None:
    for budget in (4_000, 8_000, 20_000):
        loop, window = Loop("go"), make_window(model="claude-opus-5-5", budget=budget, prices=None)
        removed: set[str] = set()
        for call in range(40):
            sent = window.fit(loop.messages, at=call)
            signed = {
                block["signature"]
                for row in sent
                for block in row["content"]
                if isinstance(block, dict) and "signature" in block
            }
            assert not signed & removed
            every = {f"sig-thought {n}" for n in range(call)}
            removed |= every - signed
            loop.step(thought=f"thought {call}", words=70 if call % 7 != 6 else 1_500)


def test_thinking_on_a_fork_goes_when_the_common_prefix_is_edited() -> None:
    window = make_window(model="claude-opus-5-5", prices=None)
    stem = Loop()
    for _ in range(8):
        stem.step(words=400)
    left, right = Loop(), Loop()
    left.messages, left.count = list(stem.messages), 100
    right.messages, right.count = list(stem.messages), 200
    right.step(thought="right")
    window.fit(right.messages, at=0)
    for call in range(12):
        left.step(words=400)
        window.fit(left.messages, at=call + 1)
    left.say("Done.", "Go on.")
    window.fit(left.messages, at=500)
    sent = window.fit(right.messages, at=501)
    changed = next((n for n, (a, b) in enumerate(zip(right.messages, sent, strict=False)) if a != b), None)
    assert changed is None or has_thinking(sent[changed:]) == 0


def test_only_requests_for_claude_get_cache_breakpoints() -> None:
    for model in ("gpt-4o", "deepseek-chat", ""):
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}] * 2}
        assert "cache_control" not in str(make_window().fit(body, at=0))
    body = {"model": "claude-sonnet-5", "messages": [{"role": "user", "content": "hi"}] * 2}
    assert "cache_control" in str(make_window().fit(body, at=0))


def test_a_history_on_the_server_is_left_alone() -> None:
    output = {"type": "function_call_output", "call_id": "call_9", "output": "the result"}
    body = {"model": "gpt-5", "previous_response_id": "resp_1", "input": [output]}
    assert make_window().fit(body, at=0) is body


def test_a_replan_places_a_breakpoint_at_the_end_of_the_unchanged_prefix() -> None:
    loop, window = Loop(), make_window(prices=None, thresholds=Thresholds(keep_calls=3, min_saving=50, patience=1))
    before: list[Any] = []
    for call in range(60):
        loop.step(words=400)
        events = len(window.events)
        sent = window.fit({"model": "claude-sonnet-4-6", "messages": loop.messages}, at=call)["messages"]
        bare = strip_cache_breakpoints(sent)
        if len(window.events) > events and before:
            shared = next(n for n, (a, b) in enumerate(zip(before, bare, strict=False)) if a != b)
            marked_rows = [n for n, row in enumerate(sent) if "cache_control" in str(row)]
            assert not shared or any(shared - 20 <= row < shared for row in marked_rows)
        before = bare
    assert window.events


def test_a_breakpoint_of_the_user_stays_on_a_truncated_row() -> None:
    loop, window = Loop(), make_window(budget=3_000)
    loop.step(words=6_000)
    loop.messages[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    sent = window.fit(loop.messages, at=0)
    assert triggers(window) == ["oversized_result"]
    assert sent[-1]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_one_window_follows_two_conversations() -> None:
    first, second = Loop("One."), Loop("Other.")
    both, alone = make_window(thresholds=PATIENT), make_window(thresholds=PATIENT)
    for call in range(40):
        first.step()
        second.step()
        alone.fit(first.messages, at=call)
        both.fit(first.messages, at=call)
        both.fit(second.messages, at=call)
    assert len(both.events) == 2 * len(alone.events) > 0


def test_a_clock_that_goes_back_does_not_expire_the_cache() -> None:
    loop, window = Loop(), make_window(thresholds=Thresholds(keep_calls=2, min_saving=50, patience=1_000))
    for call, at in enumerate((10_000, 10_010, 6_000, 10_020, 10_030)):
        loop.step()
        window.fit(loop.messages, at=at)
        assert triggers(window) == [], call
    with pytest.raises(OptionError, match="`at`"):
        window.fit(loop.messages, at=float("nan"))


def test_each_summary_is_requested_once() -> None:
    judged: list[int] = []

    class Slow:
        name = "slow"

        def __call__(self, *_: Any, limit: int) -> str:
            judged.append(limit)
            return "I did things."

    window = make_window(
        budget=3_000, thresholds=Thresholds(keep_calls=1, min_saving=50, patience=1_000), summarizer=Slow()
    )
    loop = Loop()
    for call in range(60):
        loop.step(words=40)
        window.fit(loop.messages, at=call)
        window.wait(5)
    assert 0 < len(judged) <= len(window.ledger.find_facts("summary:"))


def test_a_ledger_that_fails_later_does_not_stop_the_loop() -> None:
    class LedgerOnFullDisk(Ledger):
        is_full = False

        def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
            if self.is_full:
                raise LedgerError("the disk is full")
            super()._execute(statement, values)

    ledger = LedgerOnFullDisk()
    loop, window = Loop(), make_window(ledger=ledger)
    loop.step()
    window.fit(loop.messages, at=0)
    ledger.is_full = True
    for call in range(1, 8):
        loop.step()
        assert window.fit(loop.messages, at=call) == loop.messages
    assert set(triggers(window)) == {"store"}


def test_a_failing_callback_does_not_stop_the_loop() -> None:
    def listen(_: Any) -> None:
        raise ValueError("deaf")

    loop, window = Loop(), make_window(on_event=listen)
    for _ in range(8):
        loop.step()
    with pytest.warns(UserWarning, match="deaf"):
        sent = window.fit(loop.messages, at=0)
    assert sent != loop.messages


def test_an_overflow_does_not_replan_with_each_call() -> None:
    loop, window = Loop("word " * 3_000), make_window(budget=2_000, thresholds=Thresholds())
    for call in range(100):
        loop.step(words=5)
        window.fit(loop.messages, at=call)
    assert triggers(window).count("overflow") == 100
    assert triggers(window).count("emergency") < 40


@pytest.mark.parametrize("policy", ["auto", "tool-retention", "smart"])
@pytest.mark.parametrize("line", ["again and again", "step {} of it"])
def test_a_truncated_result_has_one_placeholder(policy: str, line: str) -> None:
    loop = Loop()
    loop.step("".join(f"{line.format(n)}\n" for n in range(2_000)))
    for budget in (200, 500, 1_000):
        sent = make_window(policy=policy, budget=budget).fit(loop.messages, at=0)
        assert str(sent).count("[thresher t1:") == 1


def test_a_message_without_a_role_gets_no_cache_breakpoint() -> None:
    body = {"model": "claude-sonnet-4-5", "messages": [{"content": "a"}]}
    assert Window(budget=20, format="anthropic", store=InMemoryContentStore()).fit(body) == body


def test_a_policy_that_requires_a_budget_gets_the_target_of_the_window() -> None:
    window, loop = make_window(policy="sliding-window", budget=4_000), Loop()
    sizes = []
    for _ in range(10):
        loop.step()
        fitted = window.fit(loop.messages)
        sizes.append(th.count(fitted))
    assert [event.edits.keys() for event in window.events] == [{"drop"}] * 3  # other policies would truncate or replace
    assert max(sizes) <= 4_000
