"""Names of earlier versions: options, thresholds, fields of events, and records in a ledger."""

import json
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest
from test_window import PATIENT, Loop, make_window, triggers

from thresher.edits import Drop, Replace, Summarize, Truncate
from thresher.errors import OptionError
from thresher.window import Thresholds, Window
from thresher.window.ledger import RENAMED_EDIT_KINDS, RENAMED_TRIGGERS


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ({"life": "1h"}, "cache_ttl", {"life": "2h"}),
        ({"marks": "leave"}, "cache_breakpoints", {"marks": "none"}),
        ({"on_over": "raise"}, "on_overflow", {"on_over": "stop"}),
        ({"pace": Thresholds()}, "thresholds", {"pace": 5}),
        ({"summariser": print}, "summarizer", {"summariser": 5}),
        ({"summaries": "now"}, "blocking", {"summaries": "soon"}),
    ],
)
def test_an_old_option_name_warns_and_works(old: dict[str, Any], new: str, wrong: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match=new):
        Window(**old)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(OptionError, match=f"`({new}|summaries)`"):
            Window(**wrong)


def test_old_names_of_thresholds_and_events_warn_and_work() -> None:
    with pytest.warns(DeprecationWarning, match="`age` is deprecated; use `keep_calls`"):
        old = Thresholds(age=1, min_saving=50, patience=0)  # type: ignore[call-arg]
    assert old == Thresholds(keep_calls=1, min_saving=50, patience=0)
    with pytest.warns(DeprecationWarning, match="keep_calls"):
        assert old.age == 1  # type: ignore[attr-defined]
    loop, window = Loop(), make_window(thresholds=old)
    for call in range(8):
        loop.step()
        window.fit(loop.messages, at=call)
    event = window.events[0]
    with pytest.warns(DeprecationWarning, match="removed_ids"):
        assert event.elided == event.removed_ids
    with pytest.warns(DeprecationWarning, match="reason"):
        assert event.why == event.reason


def test_a_window_resumes_from_a_ledger_with_old_names(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    loop, window = Loop(), make_window(ledger=file, thresholds=PATIENT)
    for call in range(30):
        loop.step()
        sent = window.fit(loop.messages, at=call)
    assert "break_even" in triggers(window)
    old_kinds = {new: old for old, new in RENAMED_EDIT_KINDS.items()}
    old_triggers = {new: old for old, new in RENAMED_TRIGGERS.items()}
    rewritten = 0
    with sqlite3.connect(file) as database:
        for number, body in database.execute("SELECT number, body FROM epochs").fetchall():
            row = json.loads(body)
            row["trigger"] = old_triggers.get(row["trigger"], row["trigger"])
            for edit in row["added"]:
                rewritten += edit["kind"] in old_kinds
                edit["kind"] = old_kinds.get(edit["kind"], edit["kind"])
            database.execute("UPDATE epochs SET body = ? WHERE number = ?", (json.dumps(row).encode(), number))
    assert rewritten
    again = make_window(ledger=file, store=window.store, thresholds=PATIENT)
    assert again.fit(loop.messages, at=30) == sent
    assert again.events == []


def test_edits_are_stored_by_their_class_names() -> None:
    for kind in (Drop, Replace, Truncate, Summarize):
        assert kind.__struct_config__.tag == kind.__name__.lower()
