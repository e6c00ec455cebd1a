"""A message with an unknown role is never silently the user's: check, repair, conversion and reading report it."""

import json
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from thresher.dialects import emit_with_losses
from thresher.store import InMemoryContentStore

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "anthropic": {"messages": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"}]},
    "openai-chat": {"messages": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"}]},
    "openai-responses": {"input": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "critic", "parts": [{"text": "b"}]}]},
}
each_dialect = pytest.mark.parametrize("dialect", CONVERSATIONS)


@each_dialect
def test_it_is_a_violation_and_a_reported_repair(dialect: str) -> None:
    body, plans = CONVERSATIONS[dialect], list[th.Plan]()
    assert [(one.rule, one.message) for one in th.check(body, dialect)] == [("unknown-role", 1)]
    fitted = th.fit(body, format=dialect, budget=1_000, store=InMemoryContentStore(), report=plans.append)
    assert [(repair.rule, repair.message) for repair in plans[0].repairs] == [("unknown-role", 1)]
    assert th.check(fitted, dialect) == ()


@each_dialect
def test_its_text_is_not_taken_for_a_persons_and_stays_as_it_is(dialect: str) -> None:
    history = th.parse(CONVERSATIONS[dialect], dialect)
    assert [message.author for message in history] == ["human", "harness"]
    assert th.emit(history, dialect) == CONVERSATIONS[dialect]
    assert emit_with_losses(history, dialect).losses == ()


@each_dialect
def test_a_conversion_reports_it(dialect: str) -> None:
    history = th.parse(CONVERSATIONS[dialect], dialect)
    for target in CONVERSATIONS.keys() - {dialect}:
        losses = [str(loss) for loss in emit_with_losses(history, target).losses]
        assert losses == ["unknown role `critic`; written as `user`"]


def test_reading_a_file_reports_it(tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(CONVERSATIONS["openai-chat"]))
    session = th.read(path, format="openai-chat")
    assert [problem.what for problem in session.problems] == ["unknown role `critic`"]
