"""Options of policies by the names that earlier versions had: in Python, the environment and `thresher.toml`."""

from pathlib import Path

import pytest

from thresher.budget import load_settings
from thresher.policies import POLICIES, make_policy, policy_class
from thresher.policies.tools import EditToolCalls

RENAMED = [
    (policy, old, new)
    for policy in POLICIES
    for old, new in getattr(policy_class(policy), "renamed_options", ({}, {}))[0].items()
]


@pytest.mark.parametrize(("policy", "old", "new"), RENAMED)
def test_an_old_option_warns_and_sets_the_new_one(policy: str, old: str, new: str) -> None:
    value = getattr(make_policy(policy), new)
    with pytest.warns(DeprecationWarning, match=f"`{old}` is deprecated; use `{new}`"):
        made = make_policy(policy, **{old: value})
    assert made == make_policy(policy, **{new: value})
    with pytest.warns(DeprecationWarning, match=f"use `{new}`"):
        assert getattr(made, old) == value


def test_old_actions_are_accepted() -> None:
    with pytest.warns(DeprecationWarning, match="action='truncate'"):
        assert EditToolCalls(action="cut").action == "truncate"  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="action='replace'"):
        assert make_policy("tools", action="stub") == EditToolCalls(action="replace")


def test_settings_may_use_old_names(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text('[policies.tools]\ndo = "stub"\n[presets]\nmine = [{policy = "batches", never = ["Read"]}]\n')
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        made = load_settings(environment={"THRESHER_MASK_AT_LEAST": "5"}, file=file)
    assert made.policies == {"tools": {"action": "replace"}, "mask": {"min_tokens_saved": 5}}
    assert made.presets == {"mine": (("batches", {"exclude_tools": ("Read",)}),)}
