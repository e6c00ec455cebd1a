"""Settings: sources of options, their precedence, and both variable prefixes."""

from pathlib import Path
from typing import Any

import pytest

from thresher.budget import PRESETS, load_settings, parse_token_count
from thresher.errors import OptionError
from thresher.policies import POLICIES, make_policy
from thresher.policies.subagents import DropSubagents
from thresher.policies.table import policy_name

NOTHING: dict[str, str] = {}


def steps(preset: str = "none", **environment: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, dict(options)) for name, options in load_settings(environment=environment).steps(preset)]


@pytest.mark.parametrize(
    ("text", "number"), [("60000", 60_000), ("60k", 60_000), ("1.5M", 1_500_000), ("60_000", 60_000), (7, 7)]
)
def test_budgets_are_parsed(text: Any, number: int) -> None:
    assert parse_token_count(text) == number


@pytest.mark.parametrize("text", ["", "k", "-1", "many", "nan", "inf", True, None])
def test_an_invalid_budget_is_rejected(text: Any) -> None:
    with pytest.raises(OptionError, match="60k"):
        parse_token_count(text)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("EXCLUDE_THINKING", "true", ("thinking", {})),
        ("EXCLUDE_SYSTEM_REMINDERS", "true", ("reminders", {})),
        ("EXCLUDE_SUBAGENT_CALLS", "true", ("subagents", {"calls": True, "responses": False})),
        ("EXCLUDE_SUBAGENT_RESPONSES", "true", ("subagents", {"calls": False, "responses": True})),
        ("EXCLUDE_TOOLS", "Edit, Write", ("tools", {"names": ("Edit", "Write"), "categories": (), "action": "drop"})),
        ("EXCLUDE_TOOL_CATEGORIES", "web", ("tools", {"names": (), "categories": ("web",), "action": "drop"})),
        ("EXCLUDE_TOOL_RESULTS_ONLY", "true", ("tools", {"names": ("*",), "action": "replace"})),
        ("EXCLUDE_TOOL_CALLS_ONLY", "true", ("tools", {"names": ("*",), "action": "replace_calls"})),
        ("EXCLUDE_FAILED_TOOLS", "true", ("tools", {"failed": True})),
        ("EXCLUDE_EMPTY", "true", ("messages", {"empty": True})),
        ("EXCLUDE_ROLES", "system", ("messages", {"roles": ("system",)})),
        ("MAX_MESSAGE_LENGTH", "5000", ("messages", {"longer_than": 5000})),
        ("CUSTOM_PATTERNS", "a+,b", ("messages", {"patterns": ("a+", "b")})),
    ],
)
@pytest.mark.parametrize("prefix", ["CLAUDIST_", "THRESHER_"])
def test_every_variable_with_either_prefix_works(prefix: str, name: str, value: str, expected: Any) -> None:
    assert steps(**{prefix + name: value}) == [expected]
    made = load_settings(environment={prefix + name: value}).steps("none")
    assert [make_policy(policy, **options) for policy, options in made]


@pytest.mark.parametrize(
    ("name", "policy"),
    [("EXCLUDE_THINKING", "thinking"), ("EXCLUDE_SYSTEM_REMINDERS", "reminders"), ("EXCLUDE_EMPTY", "messages")],
)
def test_false_removes_a_step_from_a_preset(name: str, policy: str) -> None:
    before = [step for step, _ in steps("smart")]
    after = [step for step, _ in steps("smart", **{f"CLAUDIST_{name}": "false"})]
    assert before.count(policy) - after.count(policy) == 1


@pytest.mark.parametrize("name", ["CALLS", "RESPONSES"])
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(("preset", "other_half"), [("smart", True), ("minimal", True), ("none", False)])
def test_an_option_for_subagents_sets_its_half_and_the_preset_the_other(
    name: str, value: bool, preset: str, other_half: bool
) -> None:
    made = steps(preset, **{f"CLAUDIST_EXCLUDE_SUBAGENT_{name}": str(value)})
    policies = [make_policy(policy, **options) for policy, options in made if policy == "subagents"]
    expected = {"calls": other_half, "responses": other_half, name.lower(): value}
    assert policies == ([DropSubagents(**expected)] if any(expected.values()) else [])


def test_both_options_for_subagents_are_independent() -> None:
    made = dict(steps("smart", THRESHER_EXCLUDE_SUBAGENT_CALLS="true", THRESHER_EXCLUDE_SUBAGENT_RESPONSES="false"))
    assert made["subagents"] == {"calls": True, "responses": False}


FAILED_STEP, API_ERRORS_STEP = ("tools", {"failed": True}), ("messages", {"api_errors": True})


@pytest.mark.parametrize(
    ("errors", "failed_tools", "expected"),
    [
        ("true", "", [FAILED_STEP, API_ERRORS_STEP]),
        ("true", "false", [API_ERRORS_STEP]),
        ("true", "true", [FAILED_STEP, API_ERRORS_STEP]),
        ("false", "true", [FAILED_STEP]),
        ("", "true", [FAILED_STEP]),
        ("false", "", []),
    ],
)
def test_the_option_for_failed_tools_wins_over_the_option_for_errors(
    errors: str, failed_tools: str, expected: list[tuple[str, dict[str, Any]]]
) -> None:
    environment = {"CLAUDIST_EXCLUDE_ERRORS": errors, "CLAUDIST_EXCLUDE_FAILED_TOOLS": failed_tools}
    assert steps(**environment) == expected
    keeps_failed = not any(options.get("failed") for _, options in steps("smart", **environment))
    assert keeps_failed is not bool(failed_tools == "true" or (not failed_tools and errors == "true"))


def test_only_one_message_limit_applies() -> None:
    limits = [options["longer_than"] for _, options in steps("smart", THRESHER_MAX_MESSAGE_LENGTH="500")
              if "longer_than" in options]  # fmt: skip
    assert limits == [500]


def test_the_preset_can_be_chosen_by_either_name() -> None:
    assert load_settings(environment={"CLAUDIST_FILTER_PRESET": "minimal"}).policy == "minimal"
    assert load_settings(environment={"CLAUDIST_FILTER_PRESET": "minimal", "THRESHER_POLICY": "mask"}).policy == "mask"


def test_every_option_of_a_policy_has_an_environment_name() -> None:
    made = load_settings(
        environment={"THRESHER_READS_MAX_FILE_READS": "3", "THRESHER_BATCH_SUMMARY_EXCLUDE_TOOLS": "a,b"}
    )
    assert dict(made.steps("reads")) == {"reads": {"max_file_reads": 3}}
    assert dict(made.steps("batch-summary")) == {"batch-summary": {"exclude_tools": ("a", "b")}}


def test_the_call_overrides_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text('budget = "1k"\nmodel = "a"\npolicy = "mask"\n')
    made = load_settings(environment={"THRESHER_BUDGET": "2k", "THRESHER_MODEL": "b"}, file=file, budget="3k")
    assert (made.budget, made.model, made.policy) == (3000, "b", "mask")


def test_a_file_adds_presets_and_options(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text(
        'exclude_tools = ["Edit"]\n[policies.reads]\nmax_file_reads = 3\n'
        '[presets]\nmine = ["thinking", {policy = "reads", samples = 1}]\n'
    )
    found = load_settings(environment=NOTHING, file=file).steps("mine")
    assert [name for name, _ in found] == ["thinking", "reads", "tools"]
    assert dict(found[1][1]) == {"samples": 1, "max_file_reads": 3}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"THRESHER_EXCLUDE_TOOL": "Edit"}, "THRESHER_EXCLUDE_TOOL"),
        ({"THRESHER_READS_SPEED": "3"}, "THRESHER_READS_SPEED"),
        ({"CLAUDIST_EXCLUDE_THINKING": "perhaps"}, "CLAUDIST_EXCLUDE_THINKING"),
        ({"THRESHER_MAX_MESSAGE_LENGTH": "long"}, "THRESHER_MAX_MESSAGE_LENGTH"),
        ({"THRESHER_THRESHOLDS_HASTE": "3"}, "THRESHER_THRESHOLDS_HASTE.*haste.*patience"),
        ({"THRESHER_THRESHOLDS_PATIENCE": "much"}, "THRESHER_THRESHOLDS_PATIENCE"),
    ],
)
def test_invalid_values_are_reported(environment: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        load_settings(environment=environment)


def test_a_preset_can_include_another(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text('[presets]\nmine = ["minimal", "output"]\nyours = ["yours"]')
    made = load_settings(environment=NOTHING, file=file)
    assert [name for name, _ in made.steps("mine")] == ["thinking", "subagents", "output"]
    with pytest.raises(OptionError, match="includes itself"):
        made.steps("yours")


@pytest.mark.parametrize(
    "text",
    [
        "colour = 1",
        "policy = ",
        "presets = 5",
        "[presets]\nmine = [3]",
        '[presets]\nmine = "thinking"',
        "policies.output = 5",
        "[policies.output]\nlength = 5",
        '[policies.output]\nhead = "long"',
        "thresholds = 5",
        "[thresholds]\nhaste = 5",
        "[thresholds]\nmin_expected_calls = 5.5",
        '[thresholds]\nlow_water = "deep"',
    ],
)
def test_an_invalid_file_is_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=r"thresher\.toml"):
        load_settings(environment=NOTHING, file=file)


def test_the_environment_overrides_thresholds_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text("[thresholds]\npatience = 2\nmin_expected_calls = 40\n")
    assert load_settings(environment=NOTHING, file=file).thresholds == {"patience": 2.0, "min_expected_calls": 40}
    made = load_settings(
        environment={"THRESHER_THRESHOLDS_MIN_EXPECTED_CALLS": "30", "THRESHER_THRESHOLDS_LOW_WATER": ""}, file=file
    )
    assert made.thresholds == {"patience": 2.0, "min_expected_calls": 30}
    assert {name: type(value) for name, value in made.thresholds.items()} == {
        "patience": float,
        "min_expected_calls": int,
    }
    assert load_settings(environment={"CLAUDIST_THRESHOLDS_MIN_EXPECTED_CALLS": "30"}).thresholds == {}


def test_the_old_names_of_thresholds_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "thresher.toml"
    file.write_text("[pace]\nmin_expected_calls = 40\n")
    with pytest.warns(DeprecationWarning, match="`pace` is deprecated.*`thresholds`"):
        assert load_settings(environment=NOTHING, file=file).thresholds == {"min_expected_calls": 40}
    with pytest.warns(DeprecationWarning, match="`age` is deprecated.*`keep_calls`"):
        assert load_settings(environment={"THRESHER_PACE_AGE": "9"}).thresholds == {"keep_calls": 9}


def test_an_unknown_preset_is_rejected_with_the_valid_names() -> None:
    with pytest.raises(OptionError, match="moderate"):
        steps("modest")


def test_every_step_of_every_preset_can_be_made() -> None:
    made = [make_policy(name, **options) for preset in PRESETS.values() for name, options in preset]
    assert {policy_name(policy) for policy in made} <= set(POLICIES)


@pytest.mark.parametrize("options", [{"max_file_reads": "3"}, {"max_file_reads": -1}, {"speed": 1}])
def test_a_policy_rejects_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="reads"):
        make_policy("reads", **options)
