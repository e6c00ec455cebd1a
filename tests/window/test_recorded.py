"""Recorded edits apply again without a decision, and sent rows without the window."""

from typing import Any

import thresher as th
from thresher.store import InMemoryContentStore
from thresher.window import Ledger


def read_loop(turns: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Read all modules."}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"file_path": f"m{turn}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": f"line of module {turn}\n" * 100}
        rows += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": "claude-sonnet-4-5", "tools": [{"name": "Read"}], "messages": rows}


def make_window(ledger: Ledger, **options: Any) -> th.Window:
    return th.Window(
        budget=5_000,
        store=InMemoryContentStore(),
        ledger=ledger,
        cache_breakpoints="leave",
        format="anthropic",
        **options,
    )


def test_a_new_window_applies_recorded_edits_without_a_decision() -> None:
    ledger = Ledger()
    sent = make_window(ledger).fit(read_loop(20), at=0)
    again = make_window(ledger)
    assert again.apply_recorded(read_loop(20)) == sent
    longer = again.apply_recorded(read_loop(60))
    assert longer["messages"] == sent["messages"] + read_loop(60)["messages"][41:]
    assert again.events == []
    assert again.last_sent is None


def test_without_a_record_the_request_stays_the_same_object() -> None:
    request = read_loop(20)
    assert make_window(Ledger()).apply_recorded(request) is request


def test_sent_rows_extend_to_a_longer_request_and_to_no_other() -> None:
    window = make_window(Ledger())
    assert window.copy_sent_rows() is None
    sent = window.fit(read_loop(20), at=0)
    rows = window.copy_sent_rows()
    assert rows is not None
    assert not rows.is_unchanged
    longer = rows.extend_to(read_loop(25))
    assert longer is not None
    assert longer["messages"] == sent["messages"] + read_loop(25)["messages"][41:]
    assert rows.extend_to(read_loop(10)) is None
    assert rows.extend_to({**read_loop(25), "system": "other"}) is None


def test_sent_rows_of_an_unchanged_request_return_the_same_object() -> None:
    window = make_window(Ledger())
    window.fit(read_loop(2), at=0)
    rows, request = window.copy_sent_rows(), read_loop(3)
    assert rows is not None
    assert rows.extend_to(request) is request


def test_the_original_tokens_include_removed_content() -> None:
    window = make_window(Ledger())
    window.fit(read_loop(2), at=0)
    assert window.last_sent is not None
    assert window.last_sent.tokens == window.last_sent.original_tokens
    window.fit(read_loop(20), at=1)
    assert window.last_sent.tokens < 5_000 < window.last_sent.original_tokens
    assert window.last_sent.original_tokens == th.count(read_loop(20), model="claude-sonnet-4-5")


def test_placeholders_name_the_way_to_open_them() -> None:
    window = make_window(Ledger())
    window.opening = "thresher restore ID"
    sent = window.fit(read_loop(20), at=0)
    assert "open: thresher restore ID]" in str(sent)


def test_without_a_way_only_results_that_a_call_returns_again_go() -> None:
    window = make_window(Ledger())
    window.opening = None
    request = read_loop(20)
    sent = window.fit(request, at=0)
    assert "[thresher t1:" in str(sent)
    assert len(sent["messages"]) == len(request["messages"])
    for row in request["messages"][1:]:
        for block in row["content"]:
            if block["type"] == "tool_use":
                block["name"], block["input"] = "Think", {"note": "x"}
    unknown = make_window(Ledger())
    unknown.opening = None
    assert unknown.fit(request, at=0) is request


def test_a_restart_keeps_the_calibration_of_the_budget() -> None:
    ledger = Ledger()
    first = make_window(ledger)
    first.fit(read_loop(2), at=0)
    assert first.last_sent is not None
    first.observe({"input_tokens": first.last_sent.tokens + 900, "output_tokens": 1, "cache_read_input_tokens": 0})
    again = make_window(ledger)
    again.fit(read_loop(2), at=1)
    assert again.budget == first.budget == 4_100
