"""Policies and their options by the names of earlier versions: in Python, the environment and `thresher.toml`."""

from pathlib import Path

import pytest

import thresher as th
from thresher.budget import PRESETS, load_settings
from thresher.errors import OptionError
from thresher.policies import POLICIES, make_policy, policy_class
from thresher.policies.table import RENAMED_POLICIES
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
    file.write_text('[policies.tools]\ndo = "stub"\n[presets]\nmine = [{policy = "batch-summary", never = ["Read"]}]\n')
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        made = load_settings(environment={"THRESHER_MASK_AT_LEAST": "5"}, file=file)
    assert made.policies == {"tools": {"action": "replace"}, "mask": {"min_tokens_saved": 5}}
    assert made.presets == {"mine": (("batch-summary", {"exclude_tools": ("Read",)}),)}


@pytest.mark.parametrize(("old", "new"), RENAMED_POLICIES.items())
def test_a_renamed_policy_or_preset_warns_and_does_the_same(old: str, new: str) -> None:
    assert new in {*POLICIES, *PRESETS}
    history = th.parse([{"role": "user", "content": "Hello"}])
    with pytest.warns(DeprecationWarning, match=f"policy='{old}'` is deprecated; use `policy='{new}'"):
        made = th.plan(history, policy=old, budget=1_000)
    assert made == th.plan(history, policy=new, budget=1_000)
    assert made.policy == new
    if new in POLICIES:
        with pytest.warns(DeprecationWarning, match=new):
            assert make_policy(old) == make_policy(new)


def test_settings_may_name_renamed_policies(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text(
        'policy = "mine"\n[policies.diffs]\nkeep_newest = 3\n'
        '[presets]\nmine = ["development", "batches", {policy = "diffs", keep_all_edits = false}]\n'
    )
    environment = {
        "THRESHER_FADING_MAX_DECAY": "5",
        "THRESHER_DECAY_MAX_IDENTIFIERS": "7",
        "THRESHER_NEWEST_BUDGET": "9",
    }
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        made = load_settings(environment=environment, file=file)
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        steps = made.preset_steps("mine")
    assert dict(made.policies) == {
        "edit-history": {"keep_newest": 3},
        "decay": {"max_decay": 5, "max_identifiers": 7},
        "sliding-window": {"budget": 9},
    }
    assert steps == (("batch-summary", {}), ("edit-history", {"keep_all_edits": False, "keep_newest": 3}))


def test_a_preset_of_the_user_may_have_an_old_name(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text('[presets]\nrecent = ["thinking", "recent"]\ndevelopment = ["mask"]\n')
    made = load_settings(environment={}, file=file)
    with pytest.warns(DeprecationWarning, match="latest-only"):
        assert made.preset_steps("recent") == (("thinking", {}), ("latest-only", {}))
    assert made.preset_steps("development") == (("mask", {}),)


def test_an_old_preset_name_is_no_policy() -> None:
    with pytest.warns(DeprecationWarning, match="none"), pytest.raises(OptionError, match="unknown policy `none`"):
        make_policy("development")
    with pytest.raises(OptionError, match="is not an option"):
        load_settings(environment={"THRESHER_DEVELOPMENT_KEEP": "1"})
