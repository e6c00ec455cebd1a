"""`thresher replay`, for people and for programs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result

from command_line import run as run_command
from command_line import run_json
from thresher.budget import parse_token_count
from thresher.cli.replay import DEFAULT_BUDGETS as SAID
from thresher.cli.replay import PRICE_TABLES as CHOICES
from thresher.errors import ConvertError, OptionError, ReadError
from thresher.replay import scores
from thresher.replay.strategies import upper_bound
from thresher.replay.strategies.registry import BUDGETS, PRICES
from thresher.store import get_data_folder

FIGURES = {
    "name",
    "tokens_per_turn",
    "served",
    "lost_share",
    "cost",
    "cost_with_refetch",
    "tokens_at_95",
    "cost_at_95",
    "points",
    "gap_closed",
}
FEW = ("--budget", "800,2400,6000", "--jobs", "1")


def conversation(calls: int, seed: int) -> list[dict[str, Any]]:
    """Build an agent's session that reads modules and sometimes edits a line that it read long before."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Please tidy these modules."}]
    for n in range(calls):
        arguments = {"file_path": f"/p/file_{n}.py"}
        name, told = "Read", "\n".join([f"# part {n} of {seed}: " + "filler words " * 30, _line(seed, n)])
        if n % 3 == 2:
            name, told = "Edit", "done"
            arguments |= {"old_string": _line(seed, n // 3), "new_string": "pass"}
        call = {"type": "tool_use", "id": f"t{n}", "name": name, "input": arguments}
        rows.append({"role": "assistant", "content": [call]})
        rows.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": told}]})
    return rows


def chat(calls: int) -> list[dict[str, Any]]:
    """Build a similar session in another dialect."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Please tidy these modules."}]
    for n in range(calls):
        arguments = {"path": f"/p/file_{n // 2}.py", "wanted": f"handler_{n // 2}_x"}
        call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": json.dumps(arguments)}}
        rows.append({"role": "assistant", "content": None, "tool_calls": [call]})
        rows.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"handler_{n}_x " + "and more words " * 20})
    return rows


def _line(seed: int, n: int) -> str:
    return f"value_{seed}_{n} = compute_total(order_{n}, discount_{n})"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed, calls in enumerate((20, 26, 32, 6)):
        (folder / f"run-{seed}.json").write_text(json.dumps(conversation(calls, seed)))
    return folder


def run(*arguments: str) -> Result:
    return run_command("replay", *arguments)


def data(*arguments: str) -> Any:
    return run_json("replay", *arguments)


def test_json_contains_the_figures_of_each_policy(runs: Path) -> None:
    value = data(str(runs), *FEW)
    assert value["reference_definition"] == "v1"
    assert [one["name"] for one in value["strategies"]] == ["auto", "newest-batched", "oracle-batched", "full"]
    assert all(one.keys() >= FIGURES for one in value["strategies"])
    by_name = {one["name"]: one for one in value["strategies"]}
    assert [point["budget"] for point in by_name["newest-batched"]["points"]] == [800, 2400, 6000]
    assert (by_name["full"]["served"], by_name["full"]["cost"], by_name["full"]["budget"]) == (1.0, 1.0, None)
    assert (
        by_name["oracle-batched"]["tokens_at_95"]
        < by_name["newest-batched"]["tokens_at_95"]
        < by_name["full"]["tokens_at_95"]
    )
    assert (by_name["oracle-batched"]["gap_closed"], by_name["newest-batched"]["gap_closed"]) == (1.0, 0.0)
    assert value["upper_bound"]["tokens_at_95"] <= by_name["oracle-batched"]["tokens_at_95"]
    assert [(Path(one["file"]).name, one["agent"], one["calls"]) for one in value["sessions"]] == [
        ("run-2.json", "anthropic", 32), ("run-1.json", "anthropic", 26), ("run-0.json", "anthropic", 20)
    ]  # fmt: skip
    assert (value["calls"], value["short_recordings"], value["failures"], value["formats"]) == (78, 1, [], [])
    assert value["references"] == sum(one["references"] for one in value["sessions"]) > 0


def test_top_level_figures_are_those_of_the_smallest_sufficient_budget(runs: Path) -> None:
    for one in data(str(runs), *FEW)["strategies"]:
        enough = [point for point in one["points"] if point["served"] >= 0.95]
        expected = (
            min(enough, key=lambda point: point["budget"] or 0)
            if enough
            else max(one["points"], key=lambda point: point["served"])
        )
        assert expected.items() <= one.items()


def test_report_shows_the_data_skipped_files_and_next_steps(runs: Path) -> None:
    (runs / "shopping.txt").write_text("milk")
    result = run(str(runs), *FEW)
    assert result.exit_code == 0
    output = " ".join(result.output.split())
    for expected in (
        "definition v1", "3 sessions, 78 turns", "references", "prices: anthropic", "tokens at 95 %", "cost at 95 %",
        "lost at 95 %", "gap closed",
        "newest-batched", "1 recording with fewer than 15 turns", "1 file of unknown format", "--plot", "thresher fit",
        "No policy that keeps or drops whole messages", "Gap closed: 0 % = newest-batched, 100 % = oracle-batched",
        "Lost at 95 %: share of the reused text that is neither in the request nor recoverable.",
        "By token budget: turns served @ tokens per turn / cost", "Confidence intervals need at least 5 sessions.",
        "full (no budget): 100.0 % @",
    ):  # fmt: skip
        assert expected in output
    assert "shopping" not in output


def test_several_formats_have_a_table_each(runs: Path) -> None:
    (runs / "chat.json").write_text(json.dumps(chat(24)))
    value = data(str(runs), *FEW, "--policy", "recency")
    assert [(one["name"], one["sessions"], one["calls"]) for one in value["formats"]] == [
        ("anthropic", 3, 78),
        ("openai-chat", 1, 24),
    ]
    assert all([one["name"] for one in part["strategies"]] == ["recency", "full"] for part in value["formats"])
    assert "openai-chat 1 session, 24 turns" in " ".join(run(str(runs), *FEW, "--policy", "recency").output.split())


def test_plot_draws_every_policy_and_the_bound(runs: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    result = run(str(runs), *FEW, "--plot", str(picture))
    assert "chart written to" in result.output
    text = picture.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    for name in ("auto", "newest-batched", "oracle-batched", "full", "bound"):
        assert f">{name}<" in text


def test_user_policy_is_compared_with_the_others(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def keep_all(history):\n    return ()\n")
    value = data(str(runs), *FEW, "--policy", f"{path}:keep_all", "--policy", "recency")
    assert [one["name"] for one in value["strategies"]] == [f"{path}:keep_all", "recency", "full"]
    assert value["strategies"][0]["sessions"] == 3


def test_policy_that_raises_is_reported_and_the_others_measured(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def never(history):\n    raise ValueError('no \\x1b[31m way')\n")
    arguments = (str(runs), *FEW, "--policy", f"{path}:never", "--policy", "recency")
    result = run(*arguments, "--json")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    by_name = {one["name"]: one for one in value["strategies"]}
    assert (by_name[f"{path}:never"]["excluded_sessions"], by_name[f"{path}:never"]["served"]) == (3, None)
    assert by_name["recency"]["sessions"] == 3
    assert len(value["failures"]) == 3
    assert "ValueError: no  way" in result.stderr
    assert len({failure["session"] for failure in value["failures"]}) == 3
    shown = run(*arguments)
    assert shown.exit_code == 1
    assert "failed on 3 sessions" in shown.output
    assert shown.stderr.count("never failed on") == 1
    assert "and 2 more sessions: ValueError: no  way" in shown.stderr


def test_unreadable_named_file_is_reported(runs: Path, tmp_path: Path) -> None:
    strange = tmp_path / "shopping.txt"
    strange.write_text("milk")
    result = run(str(runs), str(strange), *FEW, "--policy", "recency", "--json")
    assert result.exit_code == 1
    assert "shopping.txt" in result.stderr
    assert len(json.loads(result.stdout)["sessions"]) == 3


def test_nothing_to_measure_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "short.json").write_text(json.dumps(conversation(6, 0)))
    result = run(str(tmp_path), *FEW)
    assert isinstance(result.exception, ReadError)
    assert "nothing to measure in 1 file: no recording of 15 turns" in str(result.exception)
    assert "(1 is shorter)" in str(result.exception)


def test_no_files_is_a_clear_error(tmp_path: Path) -> None:
    result = run(str(tmp_path))
    assert isinstance(result.exception, ReadError)
    assert f"no session files found in `{tmp_path}`" in str(result.exception)
    assert "no session files found in the folders of known agents" in str(run().exception)


@pytest.mark.parametrize("place", ["missing/curves.svg", "run-0.json/curves.svg"])
def test_unwritable_chart_is_refused_before_any_work(place: str, runs: Path) -> None:
    result = run(str(runs), *FEW, "--plot", str(runs / place))
    assert isinstance(result.exception, OptionError)
    assert "does not exist" in str(result.exception)
    assert not (get_data_folder() / "replay").exists()


@pytest.mark.parametrize("as_json", [True, False])
def test_failed_chart_keeps_the_figures(as_json: bool, runs: Path, tmp_path: Path) -> None:
    chart = tmp_path / "curves.svg"
    chart.symlink_to(tmp_path / "missing" / "curves.svg")
    arguments = ("--json",) if as_json else ()
    result = run(str(runs), *FEW, "--policy", "recency", "--plot", str(chart), *arguments)
    assert isinstance(result.exception, ConvertError)
    assert "tokens at 95 %" in result.output or json.loads(result.stdout)["strategies"]
    assert "chart written to" not in result.output


def test_interrupted_replay_says_that_it_resumes(runs: Path, tmp_path: Path) -> None:
    policy = tmp_path / "stop.py"
    policy.write_text("def stop(history):\n    raise KeyboardInterrupt\n")
    result = run(str(runs), *FEW, "--policy", f"{policy}:stop")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted. Run the same command to resume.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policy", "newset"), "newest-batched"),
        (("--budget", "much"), "60k"),
        (("--budget", "0"), "above 0"),
        (("--budget", ","), "above 0"),
    ],
)
def test_wrong_use_is_refused_before_any_work(arguments: tuple[str, ...], told: str, runs: Path) -> None:
    result = run(str(runs), *arguments)
    assert isinstance(result.exception, OptionError)
    assert told in str(result.exception)


@pytest.mark.parametrize("policy", ["auto", "presets", "mine.py:keep_all"])
def test_invalid_setting_is_refused_before_any_work(policy: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    Path("mine.py").write_text("def keep_all(history):\n    return ()\n")
    monkeypatch.setenv("THRESHER_EXCLUDE_TOOL_CATEGORIES", "fil_read")
    result = run(str(runs), *FEW, "--policy", policy)
    assert isinstance(result.exception, OptionError)
    assert "fil_read" in str(result.exception)
    assert result.output == ""


def test_policy_that_needs_a_budget_gets_the_one_of_the_replay(runs: Path) -> None:
    value = data(str(runs), *FEW, "--policy", "sliding-window")
    assert value["failures"] == []
    assert [point["budget"] for point in value["strategies"][0]["points"]] == [800, 2400, 6000]


def test_strategy_above_the_bound_fails_the_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(str(runs), *FEW, "--policy", "controls").exit_code == 0

    def stingy(minimum_costs: list[upper_bound.MinimumCost], tokens: float) -> float:
        return upper_bound.most_served(minimum_costs, tokens) / 2

    monkeypatch.setattr(scores, "most_served", stingy)
    result = run(str(runs), *FEW, "--policy", "recency")
    assert result.exit_code == 1
    assert "recency at 6000 serves" in result.stderr
    assert "the measurement is wrong" in result.stderr


def test_price_lists_agree_with_the_registry(runs: Path) -> None:
    assert tuple(PRICES) == CHOICES
    found = [data(str(runs), *FEW, "--policy", "recency", "--prices", prices) for prices in PRICES]
    assert [value["prices"] for value in found] == list(PRICES)
    assert len({value["strategies"][0]["points"][0]["cost"] for value in found}) > 1


def test_budgets_agree_with_the_registry(runs: Path) -> None:
    assert tuple(map(parse_token_count, SAID.split(","))) == BUDGETS
    points = data(str(runs), "--policy", "recency", "--jobs", "1")["strategies"][0]["points"]
    assert sorted(point["budget"] for point in points) == [*BUDGETS]
    assert f"Default: {SAID}." in "".join(run("--help").output.split()).replace("Default:", "Default: ")


def test_sources_are_selected_as_in_other_commands(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    value = data("--no-discover", "--source", str(runs), *FEW, "--policy", "recency")
    assert len(value["sessions"]) == 3


def test_help_does_not_load_replay() -> None:
    script = (
        "import sys\nfrom thresher.cli import cli\n"
        "try:\n    cli(['replay', '--help'], standalone_mode=False)\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split("MODULES")[1].split()
    assert [name for name in loaded if name == "rich" or name.startswith("thresher.replay")] == []
