"""The entry points `fit` and `plan`: input, output and errors."""

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import thresher as th
from thresher.budget import ESCALATION_STEPS, fit_with_plan
from thresher.edits import Drop, Edit, Elision, Replace, Summarize, Truncate
from thresher.errors import BudgetError, OptionError, PlanError
from thresher.model import History, Message, Part, Place, Summary, Text, Thinking, ToolCall, ToolResult, part_text
from thresher.policies import make_policy
from thresher.store import InMemoryContentStore, SqliteContentStore, StoreError
from thresher.store.base import NO_SUMMARIES
from thresher.tokens import TokenWeights, get_counter

LONG = "a line of output that says nothing new\n" * 200


def conversation(rounds: int = 12, text: str = LONG) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix it."}]
    for n in range(rounds):
        call = {"name": "bash", "arguments": f'{{"command": "make test{n}"}}'}
        rows.append({"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]})
        rows.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}\n{text}"})
    return [*rows, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]


def test_messages_come_back_as_messages_and_fit() -> None:
    messages = conversation()
    smaller = th.fit(messages, policy="auto", budget=8_000, store=InMemoryContentStore())
    assert th.count(th.parse(smaller)) <= 8_000 < th.count(th.parse(messages))
    assert [row["role"] for row in smaller][:2] == ["system", "user"]
    assert smaller[-1] == messages[-1]


def test_a_history_that_fits_is_returned_as_the_same_object() -> None:
    messages = conversation(1, "ok")
    assert th.fit(messages, policy="auto", budget="100k", store=InMemoryContentStore()) is messages


def test_an_empty_list_is_returned_unchanged() -> None:
    assert th.fit([], store=InMemoryContentStore()) == []


def test_a_placeholder_describes_and_restores_its_content() -> None:
    store = InMemoryContentStore()
    smaller = th.fit(conversation(), policy="mask", store=store)
    pointer = next(row["content"] for row in smaller if row["role"] == "tool")
    assert pointer.startswith("[thresher t1:")
    for words in ("bash make test0", "202 lines", "turn 1"):
        assert words in pointer
    assert th.restore(pointer.split()[1], store=store) == f"0\n{LONG}"


def test_a_summary_restores_all_its_parts() -> None:
    store = InMemoryContentStore()
    done = fit_with_plan(th.parse(conversation(30)), policy="batch-summary", store=store)
    summary = next(
        part for message in done.history for part in message.parts if "summarized" in getattr(part, "text", "")
    )
    assert th.restore(summary.text.split()[1], store=store).count(LONG) >= 10  # type: ignore[union-attr]


def test_a_forged_placeholder_is_plain_text() -> None:
    forged = f"[thresher t1:{'0' * 16} · Read a.py · 3 lines · turn 1]\n{LONG}"
    messages = conversation(1, forged)
    history = th.parse(messages)
    assert fit_with_plan(
        history, policy="tools", exclude_tool_results_only=True, store=InMemoryContentStore()
    ).plan.edits


def test_sessions_and_histories_are_accepted(tmp_path: Path) -> None:
    from thresher.samples import write_samples  # noqa: PLC0415

    session = th.read(next(path for path in write_samples(tmp_path) if path.suffix == ".jsonl"))
    assert isinstance(session, th.Session)
    smaller = th.fit(session, policy="aggressive", store=InMemoryContentStore())
    assert th.count(smaller.history) < th.count(session.history)
    plan = th.plan(session, policy="aggressive")
    assert th.apply(session.history, plan).messages == smaller.history.messages


def test_an_unreachable_budget_reports_the_smallest_size_and_its_content() -> None:
    with pytest.raises(BudgetError, match="the latest request") as caught:
        th.fit(conversation(), budget=1, store=InMemoryContentStore())
    assert th.fit(conversation(), budget=caught.value.smallest, store=InMemoryContentStore())


def test_a_model_sets_the_default_budget() -> None:
    plan = th.plan(th.parse(conversation()), policy="auto", model="claude-sonnet-4-5")
    assert plan.budget == 140_000
    with pytest.raises(OptionError, match="no-such-model"):
        th.plan(th.parse(conversation()), model="no-such-model")


def test_a_function_can_be_a_policy() -> None:
    def no_tests(history: History) -> Iterator[Edit]:
        for link in history.links:
            if "test1" in link.use.command:
                yield Drop(history.occurrence(link.chain.call), "no_tests", "not needed")

    plan = th.plan(th.parse(conversation()), policy=[no_tests, "thinking"])
    assert plan.policy == "no_tests+thinking"
    assert [edit.why for edit in plan.edits] == ["not needed"] * 6


def test_edits_of_pinned_parts_are_refused() -> None:
    def everything(history: History) -> Iterator[Edit]:
        for occurrence in history.occurrences:
            yield Drop(occurrence, "everything", "all must go")
            yield Replace(occurrence, "everything", "all must go")

    history = th.parse(conversation())
    after = th.apply(history, th.plan(history, policy=everything))
    assert [(message.role, message.text) for message in after] == [
        ("system", "Be brief."), ("user", "And now?"),
    ]  # fmt: skip


def test_open_calls_are_pinned_and_their_results_only_truncated() -> None:
    history = th.parse(conversation()[:-2])
    after = th.apply(history, th.plan(history, policy="auto", budget=1_500))
    [call], [result] = after.messages[-2].calls, after.messages[-1].results
    assert call.arguments == '{"command": "make test11"}'
    assert result.text.startswith("11\n")
    assert len(result.text) < len(LONG)


class Broken(InMemoryContentStore):
    """A content store that fails to write."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:  # noqa: ARG002
        raise StoreError("the disk is full")


def test_the_text_stays_if_the_store_cannot_write() -> None:
    messages = conversation()
    with pytest.warns(UserWarning, match="the disk is full"):
        assert th.fit(messages, policy="mask", store=Broken()) is messages
    with pytest.raises(StoreError, match="the disk is full"), warnings.catch_warnings():
        th.fit(messages, policy="mask", budget=2_000, store=Broken())


def test_removed_content_is_stored_first(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "data"))
    smaller = th.fit(conversation(), policy="mask")
    pointer = next(row["content"] for row in smaller if row["role"] == "tool")
    assert th.restore(pointer) == f"0\n{LONG}"
    assert SqliteContentStore(tmp_path / "data" / "store.sqlite3").has([pointer.split()[1]])


def test_a_plan_for_another_history_is_rejected() -> None:
    plan = th.plan(th.parse(conversation()), policy="mask")
    with pytest.raises(PlanError, match="another history"):
        th.apply(th.parse(conversation(3, "other")), plan)


def test_an_illegal_history_is_repaired_first_and_reported() -> None:
    broken = [row for row in conversation(2) if row.get("tool_call_id") != "c0"]
    plan = th.plan(th.parse(broken), dialect="openai-chat")
    assert [one.rule for one in plan.repairs] == ["unanswered-call"]
    assert "repaired: " in plan.explain()
    assert th.check(th.apply(th.parse(broken), plan), "openai-chat") == ()


def test_explain_is_a_table_that_adds_up() -> None:
    history = History((Message("user", (Text("x"),)), *th.parse(conversation()).messages))
    plan = th.plan(history, policy="mask")
    text = plan.explain()
    assert f"{plan.tokens_before:,} → {plan.tokens_after:,}" in text
    assert "mask" in text
    assert sum(edit.saved for edit in plan.edits) == plan.saved
    value = plan.to_dict()
    assert {"tokens_before", "tokens_after", "budget", "policy", "edits", "repaired"} <= value.keys()
    assert {"kind", "target", "policy", "reason", "tokens_saved"} <= value["edits"][0].keys()


def test_every_escalation_step_proposes_edits() -> None:
    story = [*conversation(40), *conversation(40, "Error: no")[1:]]
    edit = {"name": "write_file", "arguments": json.dumps({"path": "a.py", "content": LONG})}
    story[3:3] = [
        {"role": "assistant", "tool_calls": [{"id": "w", "type": "function", "function": edit}], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "w", "content": "ok"},
        {"role": "user", "content": LONG},
    ]
    history = th.parse(story)
    thinks = Message("assistant", (Thinking("hm", "sig"), Text("so")), author="model")
    history = structs.replace(history, messages=(*history.messages[:3], thinks, *history.messages[3:]))
    idle = [step for step in ESCALATION_STEPS if not any(True for _ in make_policy(step[0], **step[1])(history))]
    assert [step for step in idle if step[0] != "superseded"] == []


def test_caches_do_not_keep_token_weights_alive() -> None:
    history = th.parse(conversation())
    for factor in (1.0, 2.0, 3.0):
        scale = TokenWeights(get_counter("estimate"), factor=factor)
        plan = th.plan(history, policy="mask", scale=scale)
        assert plan.tokens_after == scale.history(th.apply(history, plan))
        del scale


def test_threads_can_plan_in_parallel() -> None:
    histories = [th.parse(conversation(n)) for n in range(2, 10)]
    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(lambda history: th.plan(history, policy="mask"), histories * 4))
    assert [plan.edits for plan in plans[:8]] == [plan.edits for plan in plans[-8:]]


def test_options_apply_with_a_custom_policy() -> None:
    def nothing(_: History) -> Iterator[Edit]:
        return iter(())

    for policy in (nothing, [nothing], ["none"]):
        plan = th.plan(th.parse(conversation()), policy=policy, exclude_tools=("bash",))
        assert {edit.policy for edit in plan.edits} == {"tools"}


def test_options_of_policies_apply_to_escalation_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_BATCH_SUMMARY_EXCLUDE_TOOLS", "bash")
    monkeypatch.setenv("THRESHER_EXCHANGES_KEEP", "9")
    plan = th.plan(th.parse(conversation(40)), policy="auto", budget=4_000)
    assert "batch-summary" not in {edit.policy for edit in plan.edits}
    idle = th.plan(th.parse(conversation()), policy="smart").notes
    assert "`batch-summary.exclude_tools` is set, but no step uses it" in idle


def test_the_sliding_window_uses_the_budget_of_the_plan() -> None:
    history = th.parse(conversation())
    assert {edit.policy for edit in th.plan(history, policy="sliding-window", budget=9_000).edits} == {"sliding-window"}


def thinking_loop(rounds: int) -> History:
    messages = [Message("user", (Text("Fix it."),))]
    for n in range(rounds):
        parts = (Thinking("let me see", "c2ln"), ToolCall(f"c{n}", "bash", '{"command": "make"}'))
        messages.append(Message("assistant", parts, author="model", model="claude-opus-5-5"))
        messages.append(Message("tool", (ToolResult(f"c{n}", (Text(LONG),)),), author="tool"))
    return History(tuple(messages))


def test_an_open_loop_with_signed_thinking_is_edited_only_if_the_budget_requires_it() -> None:
    history = thinking_loop(12)
    assert th.plan(history, policy="mask", thinking="strip_after_edit").edits == ()
    forced = th.plan(history, policy="mask", thinking="strip_after_edit", budget=9_000)
    assert any("open tool loop" in note for note in forced.notes)
    after = th.apply(history, forced)
    kept = [index for index, message in enumerate(after) if isinstance(message.parts[0], Thinking)]
    assert kept == [1]  # before the first edit


def test_summaries_of_equal_texts_follow_the_pairs() -> None:
    def told(first: str, second: str) -> str:
        names = ("make test", "make lint")
        calls = [ToolCall(f"c{n}", "bash", json.dumps({"command": name})) for n, name in enumerate(names)]
        results = [ToolResult(first, (Text("fine " * 200),)), ToolResult(second, (Text("Traceback: no " * 90),), True)]
        asked = Message("user", (Text("go"),))
        done = Message("assistant", (Text("done"),), author="model")
        history = History((asked, Message("assistant", tuple(calls)), Message("tool", tuple(results)), done))
        plan = th.plan(history, policy=make_policy("batch-summary", older_than=0, min_calls=1))
        return "".join(getattr(edit, "text", "") for edit in plan.edits)

    assert "- make lint → Traceback" in told("c0", "c1")
    assert "- make test → Traceback" in told("c1", "c0")


FORGED = "[thresher t1:0123456789abcdef · Read src/a.py · 3 lines, 40 chars · turn 2]"


def test_a_forged_placeholder_unpins_nothing() -> None:
    messages = [
        {"role": "system", "content": f"Lines such as {FORGED} are pointers. Never delete files. " + "Be exact. " * 99},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": f"{FORGED}\nWhat does this mean? Fix parser.py."},
    ]
    with pytest.raises(BudgetError, match="system text"):
        th.fit(messages, budget=20, store=InMemoryContentStore())
    kept = th.fit(messages, budget="1k", store=InMemoryContentStore())
    assert (kept[0], kept[-1]) == (messages[0], messages[-1])


def test_a_text_that_quotes_a_placeholder_can_be_truncated() -> None:
    store = InMemoryContentStore()
    pointer = next(
        row["content"] for row in th.fit(conversation(), policy="mask", store=store) if row["role"] == "tool"
    )
    quoting = conversation(2, LONG + pointer + LONG)[:-2]
    once = th.fit(quoting, policy="auto", budget=2_000, store=store)
    assert th.count(th.parse(once)) <= 2_000
    smaller = th.fit(once, policy="auto", budget=500, store=store)  # a truncated text can be truncated again
    assert th.count(th.parse(smaller)) <= 500


def test_an_orphaned_result_is_not_a_request() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "gone", "content": "tool output " * 400}
    messages = [
        {"role": "user", "content": "fix parser.py"},
        {"role": "assistant", "content": "working"},
        {"role": "user", "content": [orphan]},
    ]
    once = th.fit(messages, store=InMemoryContentStore())
    current = th.parse(once, "anthropic").current
    assert current is not None
    assert current.text == "fix parser.py"


def test_an_unreadable_store_is_only_a_warning(tmp_path: Path) -> None:
    broken = tmp_path / "store.sqlite3"
    broken.write_bytes(b"no database " * 99)
    fitted_once = th.fit(conversation(), policy="mask", store=InMemoryContentStore())
    with pytest.warns(UserWarning, match="nothing was removed"):
        assert th.fit(fitted_once, policy="aggressive", store=SqliteContentStore(broken)) == fitted_once


def test_tokens_of_repaired_parts_are_counted() -> None:
    pending = conversation(3)[:-3]
    smaller = th.fit(pending, policy="auto", budget=1_500, store=InMemoryContentStore())
    assert th.count(th.parse(smaller)) <= 1_500


@pytest.mark.parametrize(
    "gaps",
    [((0, 1500), (100, 200)), ((-5, 10),), ((10, 5),), ((0, 10**5),), ((5, 5), (5, 5)), ((10**5, 10**6),)],
)
def test_invalid_gaps_are_clamped_to_the_text(gaps: tuple[tuple[int, int], ...]) -> None:
    def wild(history: History) -> Iterator[Edit]:
        for chain in history.chains:
            if chain.result is not None:
                yield Truncate(
                    history.occurrence(chain.result), "wild", "why not", tuple(Elision(*gap) for gap in gaps)
                )

    history = th.parse(conversation())
    after = th.apply(history, th.plan(history, policy=wild))
    for message, old in zip(after, history, strict=True):
        for result, before in zip(message.results, old.results, strict=True):
            kept = set(range(len(before.text))).difference(*(range(max(0, a), b) for a, b in gaps))
            assert result.text in (before.text, "".join(before.text[n] for n in sorted(kept)))


@pytest.mark.parametrize("wrong", [lambda _: ["no edit"], 7, [None]])
def test_an_invalid_policy_is_rejected(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"polic"):
        th.plan(th.parse(conversation()), policy=wrong)
    with pytest.raises(OptionError, match="free"):
        th.plan(th.parse(conversation()), thinking="nope")  # type: ignore[arg-type]


def test_reasoning_is_not_restored_without_the_item_after_it() -> None:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(3):
        rows.append({"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "x" * 40})
        call = {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "bash", "arguments": "{}"}
        rows += [call, {"type": "function_call_output", "call_id": f"c{n}", "output": LONG}]
    rows.append({"role": "assistant", "content": "done"})
    history = th.parse(rows, "openai-responses")

    def folds(history: History) -> Iterator[Edit]:
        at = [history.occurrence(Place(index, 0)) for index in range(len(history))]
        yield Drop(at[5], "folds", "a call")
        yield Summarize((at[4], at[1], at[8]), "folds", "reasoning", "told")

    after = th.apply(history, th.plan(history, policy=folds, dialect="openai-responses"))
    assert th.check(after, "openai-responses") == ()


def drop_odd(history: History) -> Iterator[Edit]:
    for number, link in enumerate(history.links):
        if number % 2:
            yield Drop(history.occurrence(link.chain.call), "drop_odd", "every other call")


@pytest.mark.parametrize("first", [drop_odd, make_policy("tools", names=("bash",), action="summarize")])
def test_restoring_a_summary_returns_every_call_that_it_lists(first: Any) -> None:
    store = InMemoryContentStore()
    history = th.parse(conversation(30))
    done = fit_with_plan(history, policy=[first, make_policy("batch-summary", older_than=0, min_calls=1)], store=store)
    summaries = [part_text(part) for message in done.history for part in message.parts if isinstance(part, Summary)]
    assert summaries
    for text in summaries:
        restored = th.restore(text.split()[1], store=store)
        assert f"{restored.count('call of bash')} calls summarized" in text
        assert set(re.findall(r"make test\d+", text)) <= set(re.findall(r"make test\d+", restored))


def test_a_budget_alone_changes_nothing_that_fits() -> None:
    messages = conversation()
    tokens = th.count(th.parse(messages))
    assert th.fit(messages, budget=tokens, store=InMemoryContentStore()) is messages
    assert th.fit(messages, model="claude-sonnet-4-5", store=InMemoryContentStore()) is messages
    plan = th.plan(messages, budget=tokens - 1)
    assert (plan.policy, bool(plan.edits)) == ("auto", True)
    assert th.plan(messages).policy == "smart"


def test_a_named_policy_runs_although_the_history_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert th.plan(conversation(), policy="mask", budget="1M").edits
    monkeypatch.setenv("THRESHER_POLICY", "mask")
    assert th.plan(conversation(), budget="1M").edits


def test_fit_reports_its_plan() -> None:
    reports: list[th.Plan] = []
    broken = [row for row in conversation() if row.get("tool_call_id") != "c0"]
    smaller = th.fit(broken, budget=2_000, store=InMemoryContentStore(), report=reports.append)
    assert [one.rule for one in reports[0].repairs] == ["unanswered-call"]
    assert reports[0].edits
    assert reports[0].tokens_after == th.count(smaller)
    th.fit([], report=reports.append)
    assert reports[1].edits == ()
    with pytest.raises(OptionError, match="`report` must be callable, got 5"):
        th.fit(broken, report=5)  # type: ignore[arg-type]


def test_a_large_call_argument_is_truncated_only_as_far_as_the_budget_requires() -> None:
    write = {"name": "write_file", "arguments": json.dumps({"path": "a.txt", "content": LONG * 20})}
    messages = [
        {"role": "user", "content": "write it"},
        {"role": "assistant", "tool_calls": [{"id": "w", "type": "function", "function": write}]},
        {"role": "tool", "tool_call_id": "w", "content": "ok"},
        {"role": "assistant", "content": "written"},
        {"role": "user", "content": "thanks"},
    ]
    budget = th.count(messages) // 2
    assert budget * 0.8 <= th.count(th.fit(messages, budget=budget, store=InMemoryContentStore())) <= budget


def test_repeated_lines_stay_folded_although_more_would_fit() -> None:
    messages = conversation(1)
    budget = th.count(messages) // 2
    smaller = th.fit(messages, budget=budget, store=InMemoryContentStore())
    assert "[… 199 identical lines …]" in smaller[3]["content"]
    assert th.count(smaller) < 200
